// Collectives of ranks on one machine, through shared memory.
#pragma once

#include <atomic>
#include <memory>

#include "data_path.h"

namespace tidemill {

class SharedMemory : public DataPath {
 public:
  // Maps the memory of a descriptor, which the caller keeps and closes. `size` is the number of ranks, `rank` this one.
  SharedMemory(int descriptor, int rank, int size, Watch* watch);
  ~SharedMemory() override;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Returns the size of the memory in bytes.
  static std::size_t Bytes(int size);

  void Allreduce(const Collective& collective, const Pieces& pieces, int dtype, Reduction reduction,
                 double scale) override;
  void Exchange(const Collective& collective, const char* own, const std::vector<std::size_t>& sizes,
                const std::vector<Part>& taken, const std::vector<Part>& given) override;

 private:
  struct alignas(128) Progress {
    std::atomic<std::uint64_t> step;  // of the rank: the number of the collective, and the step in it
  };

  Progress& progress(int rank) { return static_cast<Progress*>(memory_)[rank]; }
  char* slot(int rank);    // memory with the data of a rank
  char* result(int rank);  // memory with the part that the rank has reduced
  void Begin(const Collective& collective);
  void Reach(const Collective& collective, std::uint64_t step);
  void Await(const Collective& collective, std::uint64_t step);
  void AwaitRank(int rank, std::uint64_t value);

  const int rank_;
  const int size_;
  Watch* const watch_;
  void* memory_ = nullptr;
  std::vector<int> members_before_;
  std::uint64_t end_before_ = 0;
};

}  // namespace tidemill
