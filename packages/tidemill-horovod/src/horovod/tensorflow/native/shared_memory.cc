#include "shared_memory.h"

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace tidemill {
namespace {

constexpr std::size_t kChunk = 256 << 10;  // of each rank: fits into the second-level cache
constexpr std::size_t kAlign = 128;
constexpr int kStepBits = 24;
constexpr std::uint64_t kEnd = (std::uint64_t{1} << kStepBits) - 1;
constexpr int kSpins = 2000;

std::size_t HeaderBytes(int size) { return (static_cast<std::size_t>(size) * kAlign + 4095) / 4096 * 4096; }

std::uint64_t Value(const Collective& collective, std::uint64_t step) {
  return (collective.number << kStepBits) | std::min(step, kEnd - 1);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

std::size_t SharedMemory::Bytes(int size) { return HeaderBytes(size) + static_cast<std::size_t>(size) * 2 * kChunk; }

SharedMemory::SharedMemory(int descriptor, int rank, int size, Watch* watch)
    : rank_(rank), size_(size), watch_(watch) {
  static_assert(sizeof(Progress) == kAlign, "a cache line or two each");
  void* const memory = ::mmap(nullptr, Bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) throw Failure(std::string("shared memory cannot be mapped: ") + std::strerror(errno));
  memory_ = memory;
}

SharedMemory::~SharedMemory() { ::munmap(memory_, Bytes(size_)); }

char* SharedMemory::slot(int rank) {
  return static_cast<char*>(memory_) + HeaderBytes(size_) + static_cast<std::size_t>(rank) * 2 * kChunk;
}

char* SharedMemory::result(int rank) { return slot(rank) + kChunk; }

void SharedMemory::AwaitRank(int rank, std::uint64_t value) {
  const std::atomic<std::uint64_t>& step = progress(rank).step;
  for (int spin = 0; spin < kSpins; ++spin) {
    if (step.load(std::memory_order_acquire) >= value) return;
    Pause();
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int turn = 0; step.load(std::memory_order_acquire) < value; ++turn) {
    if (turn < 200) {
      ::sched_yield();
      continue;
    }
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (turn % 16 == 0) {
      try {
        watch_->Check(rank, waited.count());
      } catch (const Failure&) {
        if (step.load(std::memory_order_acquire) >= value) return;  // it ended after it had reached this step
        throw;
      }
    }
    const timespec nap{0, waited.count() < 0.01 ? 20000 : 500000};
    ::nanosleep(&nap, nullptr);
  }
}

void SharedMemory::Await(const Collective& collective, std::uint64_t step) {
  for (const int member : collective.members) {
    if (member != rank_) AwaitRank(member, Value(collective, step));
  }
}

void SharedMemory::Reach(const Collective& collective, std::uint64_t step) {
  const std::uint64_t value = step == kEnd ? (collective.number << kStepBits) | kEnd : Value(collective, step);
  progress(rank_).step.store(value, std::memory_order_release);
}

// Waits until the members of this rank's last collective have reached its end: before that they may read the memory.
void SharedMemory::Begin(const Collective& collective) {
  for (const int member : members_before_) {
    if (member != rank_) AwaitRank(member, end_before_);
  }
  members_before_ = collective.members;
  end_before_ = (collective.number << kStepBits) | kEnd;
}

void SharedMemory::Allreduce(const Collective& collective, const Pieces& pieces, int dtype, Reduction reduction,
                             double scale) {
  Begin(collective);
  const std::size_t element = ElementSize(dtype);
  const std::size_t members = collective.members.size();
  std::vector<const void*> shown(members);
  std::uint64_t step = 0;
  for (std::size_t begin = 0; begin < pieces.total(); begin += kChunk) {
    const std::size_t size = std::min(kChunk, pieces.total() - begin);
    // Each member reduces one part of the chunk.
    const std::size_t part = ((size / element + members - 1) / members + 63) / 64 * 64 * element;
    const auto part_begin = [&](std::size_t position) { return std::min(size, position * part); };
    pieces.Read(begin, size, slot(rank_));
    Reach(collective, ++step);
    Await(collective, step);
    const std::size_t mine = part_begin(static_cast<std::size_t>(collective.position));
    const std::size_t mine_size = part_begin(static_cast<std::size_t>(collective.position) + 1) - mine;
    for (std::size_t position = 0; position < members; ++position) {
      shown[position] = slot(collective.members[position]) + mine;
    }
    Reduce(dtype, reduction, shown.data(), static_cast<int>(members), mine_size / element, scale, result(rank_));
    Reach(collective, ++step);
    for (std::size_t ahead = 0; ahead < members; ++ahead) {  // starts with its own part
      const std::size_t position = (static_cast<std::size_t>(collective.position) + ahead) % members;
      const int member = collective.members[position];
      if (member != rank_) AwaitRank(member, Value(collective, step));
      const std::size_t at = part_begin(position);
      pieces.Write(begin + at, part_begin(position + 1) - at, result(member));
    }
  }
  Reach(collective, kEnd);
}

void SharedMemory::Exchange(const Collective& collective, const char* own, const std::vector<std::size_t>& sizes,
                            const std::vector<Part>& taken, const std::vector<Part>&) {
  Begin(collective);
  constexpr std::size_t kShown = 2 * kChunk;
  const std::size_t most = *std::max_element(sizes.begin(), sizes.end());
  const std::size_t mine = sizes[static_cast<std::size_t>(collective.position)];
  std::uint64_t step = 0;
  for (std::size_t begin = 0; begin < std::max<std::size_t>(most, 1); begin += kShown) {
    if (begin < mine) std::memcpy(slot(rank_), own + begin, std::min(kShown, mine - begin));
    Reach(collective, ++step);
    for (std::size_t position = 0; position < taken.size(); ++position) {
      const int member = collective.members[position];
      if (member != rank_) AwaitRank(member, Value(collective, step));
      const Part& part = taken[position];
      const std::size_t from = std::max(begin, part.begin);
      const std::size_t to = std::min(begin + kShown, part.begin + part.size);
      if (from < to) std::memcpy(part.to + (from - part.begin), slot(member) + (from - begin), to - from);
    }
    Reach(collective, ++step);
    if (begin + kShown < most) Await(collective, step);
  }
  Reach(collective, kEnd);
}

}  // namespace tidemill
