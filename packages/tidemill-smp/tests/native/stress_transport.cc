// Stress test of the native transport without TensorFlow: many messages of all sizes from many threads, connections
// that break everywhere, receives that time out. Runs under a sanitizer, and compares received with sent messages.
//
//     stress_transport SECONDS SEED
//
// Both ends of every connection are in this process: a message to one rank is received from another.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "fake_tensorflow.h"

extern "C" {
int tidemill_smp_registration();
void tidemill_smp_open(int rank, int descriptor, const char* name, double hang_timeout_s);
void tidemill_smp_lose_all(const char* why);
void tidemill_smp_waiting(char* text, int size);
void tidemill_smp_flush(double seconds);
int tidemill_smp_block(int always);
}

namespace {

using Clock = std::chrono::steady_clock;
using Random = std::minstd_rand;

enum : int { kOk = 0, kInvalidArgument = 3, kDeadlineExceeded = 4, kAborted = 10, kInternal = 13 };
constexpr double kLong = 600;

#define EXPECT(condition)                                                                  \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);         \
      std::abort();                                                                        \
    }                                                                                      \
  } while (false)

// --- tensors ----------------------------------------------------------------------------------------------------

std::vector<std::int64_t> ShapeOf(std::size_t elements, unsigned form) {
  const auto size = static_cast<std::int64_t>(elements);
  switch (form % 5) {
    case 0:
      return elements == 1 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{size};
    case 1:
      return elements % 2 == 0 ? std::vector<std::int64_t>{2, size / 2} : std::vector<std::int64_t>{1, size, 1};
    case 2:
      return {1, 1, 1, size, 1, 1, 1, 1};
    case 3:
      return elements == 0 ? std::vector<std::int64_t>{3, 0, 7} : std::vector<std::int64_t>{size, 1};
    default: {
      std::vector<std::int64_t> many(254, 1);
      many[100] = size;
      return many;
    }
  }
}

char ByteAt(std::uint64_t seed, std::size_t place) { return static_cast<char>((seed * 31 + place * 7) >> 2); }


TF_Tensor* MakeTensor(std::uint64_t seed, std::size_t bytes) {
  auto* const tensor = new TF_Tensor;
  tensor->dtype = bytes % 4 == 0 && seed % 2 == 0 ? kFloat : kBool;
  tensor->shape = ShapeOf(tensor->dtype == kFloat ? bytes / 4 : bytes, static_cast<unsigned>(seed % 5));
  tensor->size = bytes;
  tensor->data = std::malloc(std::max<std::size_t>(bytes, 1));
  tensor->release = [](void* data, std::size_t, void*) { std::free(data); };
  for (std::size_t place = 0; place < bytes; ++place) static_cast<char*>(tensor->data)[place] = ByteAt(seed, place);
  return tensor;
}

void Drop(TF_Tensor* tensor) {
  if (--tensor->references == 0) delete tensor;
}

void ExpectIs(const TF_Tensor& tensor, std::uint64_t seed, std::size_t bytes) {
  TF_Tensor* const wanted = MakeTensor(seed, bytes);
  EXPECT(tensor.dtype == wanted->dtype);
  EXPECT(tensor.shape == wanted->shape);
  EXPECT(tensor.size == bytes);
  EXPECT(std::memcmp(tensor.data, wanted->data, bytes) == 0);
  Drop(wanted);
}

// --- ops --------------------------------------------------------------------------------------------------------

// An op of a graph: lives as long as the graph, and runs many times.
class Op {
 public:
  Op(const std::string& name, int peer, std::int64_t channel, int dtype) : kernel_(FakeKernel(name)) {
    TF_OpKernelConstruction attributes{peer, channel, dtype, "the forward of microbatch " + std::to_string(channel)};
    state_ = kernel_.create(&attributes);
  }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  ~Op() { kernel_.remove(state_); }

  // Takes ownership of the tensor.
  int Send(TF_Tensor* tensor) {
    TF_OpKernelContext context;
    context.input = tensor;
    kernel_.compute(state_, &context);
    Drop(tensor);
    return context.status.code;
  }

  // Calls `then` with the code and, if that is kOk, a tensor that `then` must release. As in TensorFlow, the function
  // passed in is destroyed when this returns, and is too large for the internal buffer of std::function.
  void Receive(std::function<void(int, TF_Tensor*)> then) {
    auto* const context = new TF_OpKernelContext;
    std::function<void()> done = [context, then] {
      then(context->status.code, context->output);
      delete context;
    };
    kernel_.compute_async(state_, context, &done);
  }

  int ReceiveAndWait(TF_Tensor** tensor) {
    std::mutex mutex;
    std::condition_variable changed;
    int code = -1;
    Receive([&](int came, TF_Tensor* with) {
      const std::lock_guard<std::mutex> guard(mutex);
      code = came;
      *tensor = with;
      changed.notify_all();
    });
    std::unique_lock<std::mutex> guard(mutex);
    changed.wait(guard, [&] { return code != -1; });
    return code;
  }

 private:
  const Kernel& kernel_;
  void* state_ = nullptr;
};

int next_rank = 0;

struct Pair {
  int first;  // messages sent to it are received from `second`
  int second;
};

Pair Connect(double hang_timeout_s = kLong) {
  int ends[2];
  EXPECT(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const Pair pair{next_rank, next_rank + 1};
  next_rank += 2;
  tidemill_smp_open(pair.first, ends[0], ("rank " + std::to_string(pair.first)).c_str(), hang_timeout_s);
  tidemill_smp_open(pair.second, ends[1], ("rank " + std::to_string(pair.second)).c_str(), hang_timeout_s);
  return pair;
}

// A connection whose other end is a plain descriptor.
int ConnectToBytes(int* descriptor, double hang_timeout_s = kLong) {
  int ends[2];
  EXPECT(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  tidemill_smp_open(next_rank, ends[0], "a rank of bytes", hang_timeout_s);
  *descriptor = ends[1];
  return next_rank++;
}

// --- scenarios --------------------------------------------------------------------------------------------------

std::size_t SizeFrom(Random* random) {
  static const std::size_t edges[] = {0, 1, 3, 4, 100, 32740, 32744, 32768, 65535, 65536, 65540, 131072, 1 << 20};
  return (*random)() % 3 == 0 ? edges[(*random)() % 13] : (*random)() % 4096;
}

// Messages of one channel, in order, from one thread to another; the receives start before or after the sends.
void OneChannel(int to, int from, std::int64_t channel, unsigned seed, int messages) {
  std::thread receiver([=] {
    Random random(seed);
    for (int number = 0; number < messages; ++number) {
      const std::uint64_t value = seed + static_cast<std::uint64_t>(number);
      const std::size_t bytes = SizeFrom(&random);
      const int dtype = bytes % 4 == 0 && value % 2 == 0 ? kFloat : kBool;
      Op receive("TidemillSmpReceive", from, channel, dtype);
      TF_Tensor* tensor = nullptr;
      EXPECT(receive.ReceiveAndWait(&tensor) == kOk);
      ExpectIs(*tensor, value, bytes);
      Drop(tensor);
    }
  });
  Random random(seed);
  Op send("TidemillSmpSend", to, channel, kFloat);
  for (int number = 0; number < messages; ++number) {
    const std::uint64_t value = seed + static_cast<std::uint64_t>(number);
    EXPECT(send.Send(MakeTensor(value, SizeFrom(&random))) == kOk);
    if (number % 16 == 0) tidemill_smp_flush(kLong);
  }
  receiver.join();
}

void Traffic(unsigned seed) {
  const Pair pair = Connect();
  std::vector<std::thread> threads;
  for (unsigned channel = 0; channel < 6; ++channel) {
    const bool forward = channel % 2 == 0;
    threads.emplace_back(OneChannel, forward ? pair.first : pair.second, forward ? pair.second : pair.first,
                         static_cast<std::int64_t>(channel) << 40, seed + 1000 * channel, 60);
  }
  for (int i = 0; i < 20; ++i) {
    char text[64];
    tidemill_smp_waiting(text, sizeof text);
    EXPECT(std::memchr(text, 0, sizeof text) != nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread& thread : threads) thread.join();
}

// As if TensorFlow's callback could not be copied.
void TrafficInPlace(unsigned seed) {
  const int before = tidemill_smp_block(1);
  Traffic(seed);
  EXPECT(tidemill_smp_block(0) - before == 6 * 60);
}

// Many receives of one channel wait, then their messages arrive.
void WaitBeforeAnythingComes(unsigned seed) {
  const Pair pair = Connect();
  Op receive("TidemillSmpReceive", pair.second, 7, kBool);
  Op send("TidemillSmpSend", pair.first, 7, kBool);
  std::mutex mutex;
  std::condition_variable changed;
  int came = 0;
  for (int number = 0; number < 200; ++number) {
    receive.Receive([&](int code, TF_Tensor* tensor) {
      EXPECT(code == kOk);
      Drop(tensor);
      const std::lock_guard<std::mutex> guard(mutex);
      ++came;
      changed.notify_all();
    });
  }
  for (int number = 0; number < 200; ++number) EXPECT(send.Send(MakeTensor(2 * seed + 1, 5)) == kOk);
  std::unique_lock<std::mutex> guard(mutex);
  changed.wait(guard, [&] { return came == 200; });
}

// The other end closes in the middle of a message, while receives wait and a large tensor is being written.
void BreakAnywhere(unsigned seed) {
  Random random(seed);
  int other;
  const int rank = ConnectToBytes(&other);
  Op receive("TidemillSmpReceive", rank, 1, kBool);
  Op send("TidemillSmpSend", rank, 2, kBool);
  unsigned char bytes[24 + 16 + 100] = {'T', 'M', 'T', 'N', 1, kBool, 2, 0, 1};
  bytes[16] = 100;
  bytes[24] = 10;
  bytes[32] = 10;
  const std::size_t part = random() % sizeof bytes;
  std::thread sender([&] {
    while (send.Send(MakeTensor(1, random() % 2 ? 10 : 1 << 20)) == kOk) {
    }
  });
  std::thread breaker([&] {
    EXPECT(::send(other, bytes, part, 0) == static_cast<ssize_t>(part));
    if (part % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ::close(other);
  });
  TF_Tensor* tensor = nullptr;
  EXPECT(receive.ReceiveAndWait(&tensor) == kAborted);
  breaker.join();
  sender.join();
  EXPECT(receive.ReceiveAndWait(&tensor) == kAborted);
}

// Messages that no rank of the library sends.
int CodeOf(std::vector<unsigned char> bytes, int dtype) {
  int other;
  const int rank = ConnectToBytes(&other);
  Op receive("TidemillSmpReceive", rank, 1, dtype);
  EXPECT(::send(other, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  TF_Tensor* tensor = nullptr;
  const int code = receive.ReceiveAndWait(&tensor);
  if (code == kOk) Drop(tensor);
  ::close(other);
  return code;
}

std::vector<unsigned char> Bytes(int dtype, const std::vector<std::int64_t>& shape, std::uint64_t size,
                                 std::size_t follow) {
  std::vector<unsigned char> bytes(24 + 8 * shape.size() + follow);
  const unsigned char head[] = {'T', 'M', 'T', 'N', 1, static_cast<unsigned char>(dtype),
                                static_cast<unsigned char>(shape.size()), 0, 1};
  std::memcpy(bytes.data(), head, sizeof head);
  std::memcpy(&bytes[16], &size, sizeof size);
  if (!shape.empty()) std::memcpy(&bytes[24], shape.data(), 8 * shape.size());
  return bytes;
}

void Malformed() {
  EXPECT(CodeOf(Bytes(kBool, {2, 3}, 6, 6), kBool) == kOk);
  EXPECT(CodeOf(Bytes(kBool, {2, 3}, 6, 6), kFloat) == kInvalidArgument);
  EXPECT(CodeOf(Bytes(kBool, {2, 3}, 7, 7), kBool) == kInternal);
  EXPECT(CodeOf(Bytes(kBool, {-2, -3}, 6, 6), kBool) == kInternal);
  EXPECT(CodeOf(Bytes(kBool, {-1, 0}, 0, 0), kBool) == kInternal);
  EXPECT(CodeOf(Bytes(kFloat, {std::int64_t{1} << 62}, 0, 0), kFloat) == kInternal);
  EXPECT(CodeOf(Bytes(kBool, {1}, std::uint64_t{1} << 60, 10), kBool) == kAborted);
  EXPECT(CodeOf(std::vector<unsigned char>(24, 'x'), kBool) == kAborted);
  std::vector<unsigned char> other_version = Bytes(kBool, {}, 1, 1);
  other_version[4] = 2;
  EXPECT(CodeOf(other_version, kBool) == kAborted);
}

void NothingComesInTime(unsigned seed) {
  const Pair pair = Connect(0.05);
  Op receive("TidemillSmpReceive", pair.second, 3, kBool);
  TF_Tensor* tensor = nullptr;
  EXPECT(receive.ReceiveAndWait(&tensor) == kDeadlineExceeded);
  Op send("TidemillSmpSend", pair.first, 3, kBool);
  EXPECT(send.Send(MakeTensor(2 * seed + 1, 9)) == kOk);
  tidemill_smp_flush(kLong);
  EXPECT(receive.ReceiveAndWait(&tensor) == kOk);
  Drop(tensor);
}

void NobodyThere() {
  Op receive("TidemillSmpReceive", 1 << 30, 3, kBool);
  TF_Tensor* tensor = nullptr;
  EXPECT(receive.ReceiveAndWait(&tensor) == kInvalidArgument);
  Op send("TidemillSmpSend", 1 << 30, 3, kBool);
  EXPECT(send.Send(MakeTensor(1, 9)) == kInvalidArgument);
}

// A child is not a rank: it closes its copies, and the parent continues.
void Fork(unsigned seed) {
  const Pair pair = Connect();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  int status = -1;
  EXPECT(::waitpid(child, &status, 0) == child && status == 0);
  OneChannel(pair.first, pair.second, 5, seed, 20);
}

// All connections of the process, including those of earlier rounds, are lost during operations.
void LoseAll(unsigned seed) {
  const Pair pair = Connect();
  std::thread sender([&] {
    Op send("TidemillSmpSend", pair.first, 1, kBool);
    while (send.Send(MakeTensor(seed, 1000)) == kOk) std::this_thread::yield();
  });
  std::thread receiver([&] {
    TF_Tensor* tensor = nullptr;
    Op receive("TidemillSmpReceive", pair.second, 1, seed % 2 == 0 ? kFloat : kBool);
    while (receive.ReceiveAndWait(&tensor) == kOk) Drop(tensor);
    Op never("TidemillSmpReceive", pair.second, 2, kBool);
    EXPECT(never.ReceiveAndWait(&tensor) == kAborted);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(seed % 10));
  tidemill_smp_lose_all("rank 9 died");
  tidemill_smp_flush(0.5);
  sender.join();
  receiver.join();
}

}  // namespace

int main(int count, char** words) {
  EXPECT(count == 3);
  EXPECT(tidemill_smp_registration() == 0);
  const auto end = Clock::now() + std::chrono::seconds(std::atoi(words[1]));
  auto seed = static_cast<unsigned>(std::strtoul(words[2], nullptr, 10));
  NobodyThere();
  Malformed();
  int rounds = 0;
  while (rounds == 0 || Clock::now() < end) {
    ++seed;
    Traffic(seed);
    TrafficInPlace(seed);
    WaitBeforeAnythingComes(seed);
    for (unsigned more = 0; more < 5; ++more) BreakAnywhere(seed * 5 + more);
    NothingComesInTime(seed);
    Fork(seed);
    LoseAll(seed);
    ++rounds;
  }
  std::printf("%d rounds\n", rounds);
  std::fflush(stdout);
  ::_exit(0);  // connections live as long as the process, and so do their threads
}
