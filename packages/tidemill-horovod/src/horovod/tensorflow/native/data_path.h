// The interface of the transports: moves the bytes of a collective between ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "reduction.h"

namespace tidemill {

// Thrown if a collective cannot continue because a rank is lost or hangs. All later collectives fail, too.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Called while a rank waits for others; throws Failure if the wait cannot succeed.
class Watch {
 public:
  virtual ~Watch() = default;
  // `rank` is the awaited rank, `seconds` the duration of the wait so far; -1 if the connection to the rank has ended.
  virtual void Check(int rank, double seconds) = 0;
};

// Fused tensors: pieces of memory, addressed as one sequence of bytes.
class Pieces {
 public:
  // Reading from null returns zeros; writing to null discards the bytes.
  void Add(const void* from, void* to, std::size_t size) {
    pieces_.push_back({static_cast<const char*>(from), static_cast<char*>(to), total_, size});
    total_ += size;
  }
  std::size_t total() const { return total_; }
  void Read(std::size_t begin, std::size_t size, char* to) const;
  void Write(std::size_t begin, std::size_t size, const char* from) const;

 private:
  struct Piece {
    const char* from;
    char* to;
    std::size_t begin;
    std::size_t size;
  };
  template <typename Visit>
  void ForEach(std::size_t begin, std::size_t size, Visit visit) const;

  std::vector<Piece> pieces_;
  std::size_t total_ = 0;
};

// A part of a member's data for another member: `size` bytes, starting at `begin`, to be copied to `to`.
struct Part {
  std::size_t begin = 0;
  std::size_t size = 0;
  char* to = nullptr;
};

struct Collective {
  std::uint64_t number = 0;           // ascending, equal on all members
  std::vector<int> members;           // ranks
  int position = 0;                   // index of this rank in `members`
};

class DataPath {
 public:
  virtual ~DataPath() = default;

  // Reduces `pieces` into their targets, with bit-identical results on all members.
  virtual void Allreduce(const Collective& collective, const Pieces& pieces, int dtype, Reduction reduction,
                         double scale) = 0;

  // Exchanges data between all members. Member i has sizes[i] bytes (this rank's are at `own`): this rank receives
  // taken[i] of them, and member i receives given[i] of this rank's.
  virtual void Exchange(const Collective& collective, const char* own, const std::vector<std::size_t>& sizes,
                        const std::vector<Part>& taken, const std::vector<Part>& given) = 0;
};

}  // namespace tidemill
