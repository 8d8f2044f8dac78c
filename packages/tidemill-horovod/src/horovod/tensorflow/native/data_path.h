// How the bytes of a collective get from rank to rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "reduction.h"

namespace tidemill {

// A collective that cannot go on: a rank is lost, or silent for too long. All later ones fail too.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Called while a rank waits for others: throws Failure if the wait is in vain.
class Watch {
 public:
  virtual ~Watch() = default;
  // `rank` is the one that is waited for, `seconds` how long.
  virtual void Check(int rank, double seconds) = 0;
};

// Pieces of memory as one sequence of bytes: fused tensors.
class Pieces {
 public:
  // Null stands for zeros when it is read, and for nothing when it is written.
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

// What goes from one member to another: `size` bytes of what it shows, from `begin` on, to memory of the receiver.
struct Part {
  std::size_t begin = 0;
  std::size_t size = 0;
  char* to = nullptr;
};

struct Collective {
  std::uint64_t number = 0;           // ascending, the same on all members
  std::vector<int> members;           // ranks
  int position = 0;                   // of this rank among them
};

class DataPath {
 public:
  virtual ~DataPath() = default;

  // Reduces `pieces` in place of their targets: the same bits on all members.
  virtual void Allreduce(const Collective& collective, const Pieces& pieces, int dtype, Reduction reduction,
                         double scale) = 0;

  // Shows `own` to all members. Member i shows sizes[i] bytes, of which this rank takes taken[i], and takes given[i] of
  // those of this rank.
  virtual void Exchange(const Collective& collective, const char* own, const std::vector<std::size_t>& sizes,
                        const std::vector<Part>& taken, const std::vector<Part>& given) = 0;
};

}  // namespace tidemill
