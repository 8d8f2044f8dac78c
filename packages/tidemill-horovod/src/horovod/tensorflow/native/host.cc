// Collectives over arrays in the memory of the host. Python calls them by ctypes where TensorFlow has no C kernel API
// (before 2.6), from ops that are Python functions.

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "current_engine.h"
#include "reduction.h"

namespace tidemill {
namespace {

struct Array {
  int dtype;  // as numbered by TensorFlow
  int dimensions;
  const std::int64_t* shape;
  const void* data;
};

// Allocates the result of an array; null if there is no memory. Called by the engine's thread or by the caller's.
using OutputFunction = void* (*)(int index, int dimensions, const std::int64_t* shape);
// Called with the number of rows from each member of an alltoall, before its end.
using ReceivedFunction = void (*)(const std::int64_t* rows, int count);

class Wait {
 public:
  explicit Wait(std::size_t count) : left_(count) {}

  void End(const Ending& ending) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (ending.kind != Ending::kDone && ending_.kind == Ending::kDone) ending_ = ending;
    if (--left_ > 0) return;
    is_done = true;
    changed_.notify_all();
  }

  Ending Result() {
    std::unique_lock<std::mutex> guard(mutex_);
    changed_.wait(guard, [this] { return is_done.load(); });
    return ending_;
  }

  std::atomic<bool> is_done{false};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t left_;
  Ending ending_;
};

std::size_t Bytes(const Array& array) {
  std::size_t bytes = ElementSize(array.dtype);
  for (int axis = 0; axis < array.dimensions; ++axis) bytes *= static_cast<std::size_t>(array.shape[axis]);
  return bytes;
}

}  // namespace
}  // namespace tidemill

// Runs a collective and waits for its end. `names` are separated by line feeds, one for each array; an alltoall has one
// name, and its second array has the int64 splits. Returns 0, or, with the reason in `problem`, 1 if the calls of the
// ranks differ, 2 if the arguments of a rank are invalid, 3 if the job has failed.
extern "C" __attribute__((visibility("default"))) int tidemill_horovod_collective(
    int kind, int reduction, int root, double scale, const char* names, const std::int64_t* members, int num_members,
    const tidemill::Array* arrays, int num_arrays, tidemill::OutputFunction output, tidemill::ReceivedFunction received,
    char* problem, std::size_t problem_size) {
  using namespace tidemill;
  const std::shared_ptr<Engine> engine = CurrentEngine();
  Ending ending{Ending::kLost, "there is no group of ranks: call hvd.init() first"};
  if (engine != nullptr) {
    const bool is_alltoall = static_cast<Kind>(kind) == Kind::kAlltoall;
    std::vector<Task> tasks(is_alltoall ? 1 : static_cast<std::size_t>(num_arrays));
    Wait wait(tasks.size());
    for (std::size_t index = 0; index < tasks.size(); ++index) {
      const Array& array = arrays[index];
      Task& task = tasks[index];
      const char* const end = std::strchr(names, '\n');
      task.request.name = end == nullptr ? std::string(names) : std::string(names, end);
      if (end != nullptr) names = end + 1;
      task.request.kind = static_cast<Kind>(kind);
      task.request.reduction = reduction;
      task.request.dtype = array.dtype;
      task.request.root = root;
      task.request.scale = scale;
      task.request.members.assign(members, members + num_members);
      task.request.shape.assign(array.shape, array.shape + array.dimensions);
      if (is_alltoall) {
        const std::int64_t count = arrays[1].dimensions == 1 ? arrays[1].shape[0] : -1;
        SplitRows(static_cast<const std::int64_t*>(arrays[1].data), count, &task.request);
        task.received = [received](const std::vector<std::int64_t>& rows) {
          received(rows.data(), static_cast<int>(rows.size()));
        };
      }
      CheckTensor(&task.request);
      task.input = static_cast<const char*>(array.data);
      task.bytes = Bytes(array);
      task.output = [output, index](const std::vector<std::int64_t>& shape) {
        return static_cast<char*>(output(static_cast<int>(index), static_cast<int>(shape.size()), shape.data()));
      };
      task.done = [&wait](const Ending& one) { wait.End(one); };
    }
    engine->SubmitAndDrive(std::move(tasks), wait.is_done);
    ending = wait.Result();
  }
  std::strncpy(problem, ending.words.c_str(), problem_size - 1);
  problem[problem_size - 1] = '\0';
  return static_cast<int>(ending.kind);
}
