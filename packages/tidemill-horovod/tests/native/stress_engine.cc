// Stress test with ranks as threads of one process, each with a separate engine: collectives from many threads over
// shared memory and over sockets, refused calls, and a rank that ends while the others wait for it. So a sanitizer sees
// all ranks.
//
//     stress_engine SECONDS
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "engine.h"

namespace tidemill {
namespace {

constexpr int kRanks = 3;
constexpr int kCalls = 40;
constexpr int kFloat = 1;  // TensorFlow's number of the dtype
constexpr unsigned kStuckSeconds = 120;

[[noreturn]] void Wrong(const std::string& what) {
  std::fprintf(stderr, "wrong: %s\n", what.c_str());
  std::abort();
}

// One call of a collective, and its result.
class Call {
 public:
  Call(Kind kind, std::string name, std::vector<std::int64_t> shape, float value) {
    request_.kind = kind;
    request_.dtype = kFloat;
    request_.name = std::move(name);
    request_.shape = std::move(shape);
    request_.members.resize(kRanks);
    std::iota(request_.members.begin(), request_.members.end(), 0);
    std::int64_t count = 1;
    for (const std::int64_t size : request_.shape) count *= size;
    input_.assign(static_cast<std::size_t>(count), value);
  }

  void set_root(int root) { request_.root = root; }
  void set_step(std::int64_t step) { request_.step = step; }
  void set_splits(std::vector<std::int64_t> splits) { request_.splits = std::move(splits); }

  Ending Run(Engine* engine, bool drives) {
    std::vector<Task> tasks(1);
    tasks[0].request = request_;
    tasks[0].input = reinterpret_cast<const char*>(input_.data());
    tasks[0].bytes = input_.size() * sizeof(float);
    tasks[0].output = [this](const std::vector<std::int64_t>& shape) {
      std::int64_t count = 1;
      for (const std::int64_t size : shape) count *= size;
      output_.assign(static_cast<std::size_t>(count), -1.0F);
      return reinterpret_cast<char*>(output_.data());
    };
    tasks[0].done = [this](const Ending& ending) {
      const std::lock_guard<std::mutex> guard(mutex_);
      ending_ = ending;
      is_done_ = true;
      changed_.notify_all();
    };
    if (drives) {
      engine->SubmitAndDrive(std::move(tasks), is_done_);
    } else {
      engine->Submit(std::move(tasks));
    }
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return is_done_.load(); });
    return ending_;
  }

  // Runs the collective and compares the result.
  void Expect(Engine* engine, bool drives, const std::vector<float>& expected) {
    const Ending ending = Run(engine, drives);
    if (ending.kind != Ending::kDone) Wrong(request_.name + ": " + ending.words);
    if (output_ != expected) Wrong(request_.name + " has another result");
  }

 private:
  Request request_;
  std::vector<float> input_;
  std::vector<float> output_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_done_{false};
  Ending ending_;
};

void Reductions(Engine* engine, int rank, int thread) {
  for (int number = 0; number < kCalls; ++number) {
    // Some tensors are larger than a slot of the shared memory.
    const std::int64_t count = number % 16 == 15 ? 700001 : number * 37 % 101 + 1;
    Call call(Kind::kAllreduce, "sum." + std::to_string(thread), {count}, static_cast<float>(rank + number));
    const auto sum = static_cast<float>(kRanks * (kRanks - 1) / 2 + kRanks * number);
    call.Expect(engine, thread % 2 == 0, std::vector<float>(static_cast<std::size_t>(count), sum));
  }
}

void Exchanges(Engine* engine, int rank, int) {
  for (int number = 0; number < kCalls; ++number) {
    std::vector<float> gathered;
    for (int other = 0; other < kRanks; ++other) {
      gathered.insert(gathered.end(), static_cast<std::size_t>((other + number) % 3 * 2), static_cast<float>(other));
    }
    Call gather(Kind::kAllgather, "gather", {(rank + number) % 3, 2}, static_cast<float>(rank));
    gather.Expect(engine, false, gathered);

    Call broadcast(Kind::kBroadcast, "broadcast", {number + 1}, static_cast<float>(rank));
    broadcast.set_root(number % kRanks);
    broadcast.Expect(engine, true, std::vector<float>(static_cast<std::size_t>(number + 1),
                                                      static_cast<float>(number % kRanks)));

    std::vector<float> dealt;  // member i gets i + 1 rows from each member
    for (int other = 0; other < kRanks; ++other) {
      dealt.insert(dealt.end(), static_cast<std::size_t>(rank + 1), static_cast<float>(other));
    }
    Call deal(Kind::kAlltoall, "alltoall", {6}, static_cast<float>(rank));
    deal.set_splits({1, 2, 3});
    deal.Expect(engine, false, dealt);
  }
}

void Refusals(Engine* engine, int rank, int) {
  for (int number = 0; number < kCalls; ++number) {
    Call call(Kind::kAllreduce, "mismatch", {rank + 1}, 1.0F);
    if (call.Run(engine, false).kind != Ending::kRefused) Wrong("shapes that differ were not refused");
  }
}

// Steps that fail, and at the same time other tensors of the step that only some ranks have.
void FailedSteps(Engine* engine, int rank, int) {
  for (int number = 0; number < kCalls; ++number) {
    std::thread other([engine, rank, number] {
      if ((rank + number) % kRanks == 0) return;
      Call call(Kind::kAllreduce, "late", {3}, 1.0F);
      call.set_step(number + 1);
      if (call.Run(engine, false).kind != Ending::kRefused) Wrong("a tensor of a failed step was not withdrawn");
    });
    Call call(Kind::kAllreduce, "mismatch in a step", {rank + 1}, 1.0F);
    call.set_step(number + 1);
    if (call.Run(engine, false).kind != Ending::kRefused) Wrong("shapes that differ in a step were not refused");
    other.join();
  }
}

void Scattered(Engine* engine, int rank, int) {
  for (int number = 0; number < kCalls; ++number) {
    const std::int64_t rows = number % 8;
    const std::int64_t own = rows / kRanks + (rank < rows % kRanks ? 1 : 0);
    Call call(Kind::kReducescatter, "scatter", {rows, 5}, static_cast<float>(rank));
    call.Expect(engine, true, std::vector<float>(static_cast<std::size_t>(5 * own), kRanks * (kRanks - 1) / 2));
  }
}

// The connected engines of all ranks.
std::vector<std::unique_ptr<Engine>> Connect(bool shares_memory) {
  std::vector<Settings> settings(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    Settings& own = settings[static_cast<std::size_t>(rank)];
    own.rank = rank;
    own.fusion_bytes = 1 << 20;
    own.control.assign(kRanks, -1);
    if (!shares_memory) own.data.assign(kRanks, -1);
    for (int other = 0; other < kRanks; ++other) own.names.push_back("rank " + std::to_string(other));
  }
  const auto pair = [&](std::vector<int> Settings::*descriptors, std::size_t one, std::size_t other) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) Wrong("no sockets");
    (settings[one].*descriptors)[other] = ends[0];
    (settings[other].*descriptors)[one] = ends[1];
  };
  for (std::size_t one = 0; one < kRanks; ++one) {
    for (std::size_t other = one + 1; other < kRanks; ++other) {
      if (one == 0) pair(&Settings::control, one, other);
      if (!shares_memory) pair(&Settings::data, one, other);
    }
  }
  if (shares_memory) {
    const int memory = ::memfd_create("stress", MFD_CLOEXEC);
    if (memory < 0 || ::ftruncate(memory, static_cast<off_t>(SharedMemory::Bytes(kRanks))) != 0) Wrong("no memory");
    for (Settings& own : settings) own.memory = ::fcntl(memory, F_DUPFD_CLOEXEC, 0);
    ::close(memory);
  }
  std::vector<std::unique_ptr<Engine>> engines;
  for (Settings& own : settings) engines.push_back(std::make_unique<Engine>(std::move(own)));
  return engines;
}

void Round(bool shares_memory) {
  std::vector<std::unique_ptr<Engine>> engines = Connect(shares_memory);
  const std::vector<void (*)(Engine*, int, int)> parts = {
      Reductions, Reductions, Reductions, Exchanges, Refusals, FailedSteps, Scattered};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (std::size_t part = 0; part < parts.size(); ++part) {
      Engine* const engine = engines[static_cast<std::size_t>(rank)].get();
      threads.emplace_back(parts[part], engine, rank, static_cast<int>(part));
    }
  }
  for (std::thread& thread : threads) thread.join();
  threads.clear();

  // The last rank ends while the others wait for it: two threads of each wait for a tensor that it never has.
  for (std::size_t rank = 0; rank + 1 < kRanks; ++rank) {
    for (int thread = 0; thread < 2; ++thread) {
      Engine* const engine = engines[rank].get();
      threads.emplace_back([engine, thread] {
        Call call(Kind::kAllreduce, "in vain " + std::to_string(thread), {5}, 1.0F);
        if (call.Run(engine, thread == 0).kind != Ending::kLost) Wrong("a lost rank was not noticed");
      });
    }
  }
  engines[kRanks - 1].reset();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tidemill

int main(int, char** arguments) {
  const auto end = tidemill::Clock::now() + std::chrono::seconds(std::atoi(arguments[1]));
  int rounds = 0;
  do {
    for (const bool shares_memory : {true, false}) {
      ::alarm(tidemill::kStuckSeconds);  // a round that hangs is an error
      tidemill::Round(shares_memory);
      ++rounds;
    }
  } while (tidemill::Clock::now() < end);
  std::printf("%d rounds, nothing wrong\n", rounds);
}
