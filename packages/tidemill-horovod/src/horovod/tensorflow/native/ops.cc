// The collectives as one TensorFlow op on the C kernel API. The op passes its tensors to the engine and releases its
// thread; the engine's thread completes the op.

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "current_engine.h"
#include "done.h"
#include "engine.h"
#include "old_glibc_threads.h"
#include "tensorflow_ops.h"

namespace tidemill {
namespace {

int registration = -1;  // 0: the op is registered
bool is_asynchronous = false;
std::atomic<bool> block_always{false};

// One status and three functions of the C API that the other native libraries do not need.
constexpr int TF_FAILED_PRECONDITION = 9;
int (*num_inputs)(TF_OpKernelContext*) = nullptr;
std::int64_t (*step_id)(TF_OpKernelContext*) = nullptr;
TF_Tensor* (*forward_input)(TF_OpKernelContext*, const int*, int, int, const std::int64_t*, int, int*,
                            TF_Status*) = nullptr;

std::mutex engine_mutex;
std::shared_ptr<Engine>* const current_engine = new std::shared_ptr<Engine>;  // outlives the process's destructors

void CloseInChild() {
  if (*current_engine != nullptr) (*current_engine)->CloseInChild();
}

// --- memory of large results ------------------------------------------------------------------------------------

// New memory costs a page fault for every 4 KB, which for large tensors takes as long as the reduction. So freed memory
// is kept for the next result of the same size.
class ResultMemory {
 public:
  static constexpr std::size_t kLeast = 1 << 20;
  static constexpr std::size_t kMost = 256 << 20;  // limit for all kept memory

  void* Take(std::size_t size) {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      for (std::size_t place = kept_.size(); place-- > 0;) {
        if (kept_[place].size != size) continue;
        void* const memory = kept_[place].memory;
        kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(place));
        kept_bytes_ -= size;
        return memory;
      }
    }
    void* memory = nullptr;
    return ::posix_memalign(&memory, 64, size) == 0 ? memory : nullptr;
  }

  void GiveBack(void* memory, std::size_t size) {
    std::vector<void*> freed;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      kept_.push_back({memory, size});
      kept_bytes_ += size;
      while (kept_bytes_ > kMost) {
        freed.push_back(kept_.front().memory);
        kept_bytes_ -= kept_.front().size;
        kept_.erase(kept_.begin());
      }
    }
    for (void* one : freed) std::free(one);
  }

 private:
  struct Kept {
    void* memory;
    std::size_t size;
  };
  std::mutex mutex_;
  std::vector<Kept> kept_;
  std::size_t kept_bytes_ = 0;
};

ResultMemory& Results() {
  static ResultMemory* const results = new ResultMemory;
  return *results;
}

void GiveBack(void* memory, std::size_t size, void*) { Results().GiveBack(memory, size); }

// --- the kernel ---------------------------------------------------------------------------------------------------

struct Kernel {
  Kind kind = Kind::kAllreduce;
  int reduction = 0;
  int root = 0;
  double scale = 1.0;
  bool is_eager = false;
  std::vector<std::string> names;
  std::vector<std::int64_t> members;
};

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + 1) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

void* CreateKernel(TF_OpKernelConstruction* construction) {
  Status status;
  auto kernel = std::make_unique<Kernel>();
  kernel->kind = static_cast<Kind>(IntAttr(construction, "kind", &status));
  kernel->reduction = static_cast<int>(IntAttr(construction, "reduction", &status));
  kernel->root = static_cast<int>(IntAttr(construction, "root", &status));
  kernel->is_eager = IntAttr(construction, "eager", &status) != 0;
  kernel->scale = std::strtod(StringAttr(construction, "scale", &status).c_str(), nullptr);
  kernel->names = Split(StringAttr(construction, "names", &status), '\n');
  for (const std::string& member : Split(StringAttr(construction, "members", &status), ',')) {
    kernel->members.push_back(std::atoll(member.c_str()));
  }
  if (!status.ok()) {
    tf.TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  return kernel.release();
}

void DeleteKernel(void* kernel) { delete static_cast<Kernel*>(kernel); }

// One execution of the op, which ends when its last tensor is done.
class Call {
 public:
  Call(const Kernel& kernel, TF_OpKernelContext* context) : kernel_(kernel), context_(context) {}
  ~Call() { Release(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Gets the inputs, and allocates the results that have the shapes of the inputs.
  bool Prepare(Status* status) {
    const int count = num_inputs(context_);
    const bool keeps_shape = kernel_.kind == Kind::kAllreduce || kernel_.kind == Kind::kBroadcast;
    outputs_.resize(static_cast<std::size_t>(count));
    for (int index = 0; index < count && status->ok(); ++index) {
      if (keeps_shape && !kernel_.is_eager) Forward(index, status);  // before this call holds a reference to the input
      if (!status->ok()) break;
      TF_Tensor* input = nullptr;
      tf.TF_GetInput(context_, index, &input, status->get());
      if (status->ok()) inputs_.push_back(input);
    }
    return status->ok();
  }

  std::vector<Task> Tasks(const std::shared_ptr<Call>& self) {
    const std::size_t count = kernel_.kind == Kind::kAlltoall ? 1 : inputs_.size();
    left_ = static_cast<int>(count);
    std::vector<Task> tasks(count);
    for (std::size_t index = 0; index < count; ++index) {
      Task& task = tasks[index];
      TF_Tensor* const input = inputs_[index];
      task.request.kind = kernel_.kind;
      task.request.reduction = kernel_.reduction;
      task.request.dtype = tf.TF_TensorType(input);
      task.request.root = kernel_.root;
      task.request.scale = kernel_.scale;
      task.request.name = kernel_.names[index];
      task.request.members = kernel_.members;
      for (int axis = 0; axis < tf.TF_NumDims(input); ++axis) task.request.shape.push_back(tf.TF_Dim(input, axis));
      if (kernel_.kind == Kind::kAlltoall) {
        TF_Tensor* const splits = inputs_[1];
        const std::int64_t number = tf.TF_NumDims(splits) == 1 ? tf.TF_Dim(splits, 0) : -1;
        SplitRows(static_cast<const std::int64_t*>(tf.TF_TensorData(splits)), number, &task.request);
        task.received = [self](const std::vector<std::int64_t>& rows) { self->OutputReceived(rows); };
      }
      CheckTensor(&task.request);
      if (!kernel_.is_eager) task.request.step = step_id(context_);
      task.input = static_cast<const char*>(tf.TF_TensorData(input));
      task.bytes = tf.TF_TensorByteSize(input);
      task.output = [self, index](const std::vector<std::int64_t>& shape) { return self->Output(index, shape); };
      task.done = [self](const Ending& ending) { self->End(ending); };
    }
    return tasks;
  }

  // Called once, by the thread that finishes the last tensor.
  std::function<void()> finish;

 private:
  void Forward(int index, Status* status) {
    TF_Tensor* input = nullptr;
    tf.TF_GetInput(context_, index, &input, status->get());
    if (!status->ok()) return;
    std::vector<std::int64_t> shape;
    for (int axis = 0; axis < tf.TF_NumDims(input); ++axis) shape.push_back(tf.TF_Dim(input, axis));
    tf.TF_DeleteTensor(input);
    int forwarded = -1;
    outputs_[static_cast<std::size_t>(index)] = forward_input(
        context_, &index, 1, index, shape.data(), static_cast<int>(shape.size()), &forwarded, status->get());
  }

  // Sets the second result of an alltoall.
  void OutputReceived(const std::vector<std::int64_t>& rows) {
    Status status;
    const auto count = static_cast<std::int64_t>(rows.size());
    const std::size_t bytes = rows.size() * sizeof(std::int64_t);
    outputs_[1] = tf.TF_AllocateOutput(context_, 1, TF_INT64, &count, 1, bytes, status.get());
    if (status.ok()) std::memcpy(tf.TF_TensorData(outputs_[1]), rows.data(), bytes);
  }

  char* Output(std::size_t index, const std::vector<std::int64_t>& shape) {
    if (outputs_[index] == nullptr) outputs_[index] = Allocate(static_cast<int>(index), shape);
    return outputs_[index] == nullptr ? nullptr : static_cast<char*>(tf.TF_TensorData(outputs_[index]));
  }

  TF_Tensor* Allocate(int index, const std::vector<std::int64_t>& shape) {
    const int dtype = tf.TF_TensorType(inputs_[static_cast<std::size_t>(index)]);
    const int dimensions = static_cast<int>(shape.size());
    std::size_t bytes = tf.TF_DataTypeSize(dtype);
    for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
    Status status;
    if (bytes < ResultMemory::kLeast) {
      return tf.TF_AllocateOutput(context_, index, dtype, shape.data(), dimensions, bytes, status.get());
    }
    void* const memory = Results().Take(bytes);
    if (memory == nullptr) return nullptr;
    TF_Tensor* const tensor = tf.TF_NewTensor(dtype, shape.data(), dimensions, memory, bytes, GiveBack, nullptr);
    tf.TF_SetOutput(context_, index, tensor, status.get());
    return tensor;
  }

  void End(const Ending& ending) {
    if (ending.kind != Ending::kDone && !failed_.exchange(true)) {
      Status status;
      if (ending.kind == Ending::kInvalid || ending.kind == Ending::kRefused) {
        status.Set(ending.kind == Ending::kInvalid ? TF_INVALID_ARGUMENT : TF_FAILED_PRECONDITION, ending.words);
      } else {
        // errors.py looks for these marks around the text in the exception.
        status.Set(TF_ABORTED, "HorovodInternalError: " + ending.words + " [horovod]");
      }
      tf.TF_OpKernelContext_Failure(context_, status.get());
    }
    if (--left_ > 0) return;
    Release();  // before TensorFlow continues, which overwrites tensors without other owners in place
    finish();
  }

  void Release() {
    for (TF_Tensor* tensor : inputs_) tf.TF_DeleteTensor(tensor);
    for (TF_Tensor* tensor : outputs_) {
      if (tensor != nullptr) tf.TF_DeleteTensor(tensor);
    }
    inputs_.clear();
    outputs_.clear();
  }

  const Kernel& kernel_;
  TF_OpKernelContext* const context_;
  std::vector<TF_Tensor*> inputs_;
  std::vector<TF_Tensor*> outputs_;
  std::atomic<int> left_{0};
  std::atomic<bool> failed_{false};
};

// Occupies the thread, like an ordinary op: if the callback cannot be copied, or the caller waits anyway.
void RunBlocking(const std::shared_ptr<Engine>& engine, const std::shared_ptr<Call>& call, bool is_eager) {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> is_done{false};
  call->finish = [&] {
    const std::lock_guard<std::mutex> guard(mutex);
    is_done = true;
    changed.notify_all();
  };
  if (is_eager) {
    engine->SubmitAndDrive(call->Tasks(call), is_done);
  } else {
    engine->Submit(call->Tasks(call));
  }
  std::unique_lock<std::mutex> guard(mutex);
  changed.wait(guard, [&] { return is_done.load(); });
}

// Returns whether the engine completes the op later. It does so only if there is a callback.
bool Start(void* raw, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const Kernel& kernel = *static_cast<Kernel*>(raw);
  Status status;
  try {
    const std::shared_ptr<Engine> engine = CurrentEngine();
    if (engine == nullptr) {
      status.Set(TF_ABORTED, "HorovodInternalError: there is no group of ranks: call hvd.init() first [horovod]");
    }
    auto call = std::make_shared<Call>(kernel, context);
    if (status.ok() && call->Prepare(&status)) {
      auto done = std::make_shared<Done>();
      if (callback != nullptr && !block_always && !kernel.is_eager && done->Keep(callback)) {
        call->finish = [done] { done->Run(); };
        engine->Submit(call->Tasks(call));
        return true;
      }
      RunBlocking(engine, call, kernel.is_eager);
    }
  } catch (const std::exception& failure) {
    status.Set(TF_INTERNAL, std::string("HorovodInternalError: ") + failure.what() + " [horovod]");
  }
  if (!status.ok()) tf.TF_OpKernelContext_Failure(context, status.get());
  return false;
}

void Compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  if (!Start(kernel, context, callback)) tf.TF_RunAsyncOpKernelDoneCallback(callback);
}

void ComputeAndWait(void* kernel, TF_OpKernelContext* context) { Start(kernel, context, nullptr); }

// --- registration -------------------------------------------------------------------------------------------------

constexpr const char* kOp = "HorovodCollective";
const std::vector<const char*> kAttributes = {"Ts: list(type) >= 1", "kind: int",   "reduction: int", "root: int",
                                              "eager: int",          "scale: string", "names: string", "members: string"};

template <typename Function>
bool LookUp(void* framework, const char* name, Function* function) {
  void* found = ::dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) found = ::dlsym(framework, name);
  std::memcpy(function, &found, sizeof found);
  return found != nullptr;
}

bool RegisterAll() {
  if (!LookUpTensorFlow("horovod", false)) return false;
  void* const framework = ::dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (!LookUp(framework, "TF_NumInputs", &num_inputs) || !LookUp(framework, "TF_StepId", &step_id) ||
      !LookUp(framework, "TF_ForwardInputOrAllocateOutput", &forward_input)) {
    return false;
  }
  is_asynchronous = tf.TF_NewAsyncKernelBuilder != nullptr && tf.TF_RunAsyncOpKernelDoneCallback != nullptr;
  return RegisterOp(kOp, {"tensors: Ts"}, {"results: Ts"}, kAttributes) &&
         RegisterKernel(kOp, is_asynchronous
                                 ? tf.TF_NewAsyncKernelBuilder(kOp, "CPU", CreateKernel, Compute, DeleteKernel)
                                 : tf.TF_NewKernelBuilder(kOp, "CPU", CreateKernel, ComputeAndWait, DeleteKernel));
}

// TensorFlow collects the ops that are registered while it loads the library, so a static initializer registers them.
struct Registration {
  Registration() {
    registration = RegisterAll() ? 0 : 1;
    ::pthread_atfork(nullptr, nullptr, CloseInChild);
  }
} registration_at_load;

}  // namespace

std::shared_ptr<Engine> CurrentEngine() {
  const std::lock_guard<std::mutex> guard(engine_mutex);
  return *current_engine;
}

}  // namespace tidemill

// Returns 0 if the op is registered.
TIDEMILL_EXPORT int tidemill_horovod_registration() { return tidemill::registration; }

// Returns 1 if the op occupies no thread of TensorFlow while it waits.
TIDEMILL_EXPORT int tidemill_horovod_is_asynchronous() { return tidemill::is_asynchronous ? 1 : 0; }

// Returns the bytes of the memory that `size` ranks share.
TIDEMILL_EXPORT std::size_t tidemill_horovod_memory(int size) { return tidemill::SharedMemory::Bytes(size); }

// Starts the engine of this rank, which takes ownership of all descriptors. `names` are the ranks' names, separated by
// line feeds. `control` and `data` have `size` descriptors each, -1 for none; `memory` is -1 if `data` is used instead.
// Returns 0, or -1 with the reason in `problem`.
TIDEMILL_EXPORT int tidemill_horovod_start(int rank, int size, const char* names, const int* control, const int* data,
                                           int memory, double warn_s, double limit_s, std::int64_t fusion_bytes,
                                           char* problem, std::size_t problem_size) {
  tidemill::Settings settings;
  settings.rank = rank;
  settings.names = tidemill::Split(names, '\n');
  settings.control.assign(control, control + size);
  settings.data.assign(data, data + size);
  settings.memory = memory;
  settings.warn_s = warn_s;
  settings.limit_s = limit_s;
  settings.fusion_bytes = fusion_bytes;
  try {
    auto engine = std::make_shared<tidemill::Engine>(std::move(settings));
    const std::lock_guard<std::mutex> guard(tidemill::engine_mutex);
    *tidemill::current_engine = std::move(engine);
    return 0;
  } catch (const std::exception& failure) {
    std::strncpy(problem, failure.what(), problem_size - 1);
    problem[problem_size - 1] = '\0';
    return -1;
  }
}

// Fails all pending tensors, and ends the thread.
TIDEMILL_EXPORT void tidemill_horovod_stop() {
  std::shared_ptr<tidemill::Engine> engine;
  {
    const std::lock_guard<std::mutex> guard(tidemill::engine_mutex);
    engine.swap(*tidemill::current_engine);
  }
  if (engine != nullptr) engine->Stop();  // running calls may hold the engine longer
}

// Begins to record this rank's collectives in a file. Returns 0, or -1 with the reason in `problem`.
TIDEMILL_EXPORT int tidemill_horovod_start_timeline(const char* path, char* problem, std::size_t problem_size) {
  const std::shared_ptr<tidemill::Engine> engine = tidemill::CurrentEngine();
  const std::string why = engine == nullptr ? "there is no group of ranks" : engine->timeline().Start(path);
  std::strncpy(problem, why.c_str(), problem_size - 1);
  problem[problem_size - 1] = '\0';
  return why.empty() ? 0 : -1;
}

// Completes the file.
TIDEMILL_EXPORT void tidemill_horovod_stop_timeline() {
  const std::shared_ptr<tidemill::Engine> engine = tidemill::CurrentEngine();
  if (engine != nullptr) engine->timeline().Stop();
}

// For tests: occupy the thread of an op as if its callback could not be copied.
TIDEMILL_EXPORT void tidemill_horovod_block(int always) { tidemill::block_always = always != 0; }
