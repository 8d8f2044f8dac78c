// The reader as TensorFlow ops on the C kernel API: open an epoch, read its next records, close it.
//
// The dataset that calls them is TensorFlow's GeneratorDataset: it calls open at the first element of an iterator, read
// for each element until OUT_OF_RANGE, and close when the iterator is deleted.

#include <pthread.h>

#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "pipe_reader.h"
#include "tensorflow_ops.h"

namespace tidemill {
namespace {

int registration = -1;  // 0: the ops are registered

// Open epochs by handle; a handle is a number in a tensor.
class Epochs {
 public:
  std::int64_t Add(std::shared_ptr<PipeReader> reader) {
    const std::lock_guard<std::mutex> guard(mutex_);
    readers_.emplace(++last_, std::move(reader));
    return last_;
  }
  std::shared_ptr<PipeReader> Find(std::int64_t handle) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = readers_.find(handle);
    return found == readers_.end() ? nullptr : found->second;
  }
  std::shared_ptr<PipeReader> Remove(std::int64_t handle) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = readers_.find(handle);
    if (found == readers_.end()) return nullptr;
    std::shared_ptr<PipeReader> reader = std::move(found->second);
    readers_.erase(found);
    return reader;
  }

 private:
  std::mutex mutex_;
  std::int64_t last_ = 0;
  std::unordered_map<std::int64_t, std::shared_ptr<PipeReader>> readers_;
};

// Never destroyed: TensorFlow's threads may still read while the process runs its destructors.
Epochs& AllEpochs() {
  static Epochs* const epochs = new Epochs;
  return *epochs;
}

// --- attributes and tensors -------------------------------------------------------------------------------------

bool BoolAttr(TF_OpKernelConstruction* construction, const char* name, Status* status) {
  unsigned char value = 0;
  if (status->ok()) tf.TF_OpKernelConstruction_GetAttrBool(construction, name, &value, status->get());
  return value != 0;
}

bool HandleInput(TF_OpKernelContext* context, std::int64_t* handle, Status* status) {
  TF_Tensor* tensor = nullptr;
  tf.TF_GetInput(context, 0, &tensor, status->get());
  if (!status->ok()) return false;
  std::memcpy(handle, tf.TF_TensorData(tensor), sizeof *handle);
  tf.TF_DeleteTensor(tensor);
  return true;
}

void HandleOutput(TF_OpKernelContext* context, std::int64_t handle, Status* status) {
  TF_Tensor* tensor = tf.TF_AllocateOutput(context, 0, TF_INT64, nullptr, 0, sizeof handle, status->get());
  if (!status->ok()) return;
  std::memcpy(tf.TF_TensorData(tensor), &handle, sizeof handle);
  tf.TF_DeleteTensor(tensor);
}

void RecordsOutput(TF_OpKernelContext* context, std::vector<Bytes>* records, Status* status) {
  const std::int64_t count = static_cast<std::int64_t>(records->size());
  const std::size_t size = records->size() * sizeof(Bytes);
  TF_Tensor* tensor = tf.TF_AllocateOutput(context, 0, TF_STRING, &count, 1, size, status->get());
  if (!status->ok()) return;
  if (size != 0) {
    // The tensor's elements are empty strings, which own no memory, so they can be overwritten by the records.
    std::memcpy(tf.TF_TensorData(tensor), static_cast<const void*>(records->data()), size);
    for (Bytes& record : *records) record.Forget();
  }
  tf.TF_DeleteTensor(tensor);
}

// --- kernels ----------------------------------------------------------------------------------------------------

void* CreateOpen(TF_OpKernelConstruction* construction) {
  Status status;
  auto options = std::make_unique<PipeOptions>();
  options->channel = StringAttr(construction, "channel", &status);
  options->record_format = StringAttr(construction, "record_format", &status);
  options->state_dir = StringAttr(construction, "state_dir", &status);
  options->pipe_dir = StringAttr(construction, "pipe_dir", &status);
  options->framing.max_record_bytes = static_cast<std::uint64_t>(IntAttr(construction, "max_record_bytes", &status));
  options->framing.max_corrupted_records = IntAttr(construction, "max_corrupted_records", &status);
  options->framing.strict_padding = BoolAttr(construction, "strict_padding", &status);
  options->path_timeout_ms = IntAttr(construction, "path_timeout_ms", &status);
  options->benchmark = BoolAttr(construction, "benchmark", &status);
  options->benchmark_records_interval = IntAttr(construction, "benchmark_records_interval", &status);
  if (!status.ok()) {
    tf.TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  return options.release();
}

void DeleteOpen(void* kernel) { delete static_cast<PipeOptions*>(kernel); }

void ComputeOpen(void* kernel, TF_OpKernelContext* context) {
  Status status;
  try {
    HandleOutput(context, AllEpochs().Add(std::make_shared<PipeReader>(*static_cast<PipeOptions*>(kernel))), &status);
  } catch (const std::exception& failure) {
    status.Set(TF_INTERNAL, std::string("Pipe mode: ") + failure.what());
  }
  if (!status.ok()) tf.TF_OpKernelContext_Failure(context, status.get());
}

void Read(TF_OpKernelContext* context, Status* status) {
  std::int64_t handle = 0;
  if (!HandleInput(context, &handle, status)) return;
  const std::shared_ptr<PipeReader> reader = AllEpochs().Find(handle);
  if (reader == nullptr) {
    status->Set(TF_INVALID_ARGUMENT, "Pipe mode: this epoch is closed");
    return;
  }
  std::vector<Bytes> records;
  switch (reader->Next(&records)) {
    case Step::kRecords:
    case Step::kNotYet:
      RecordsOutput(context, &records, status);
      break;
    case Step::kEnd:
      status->Set(TF_OUT_OF_RANGE, "End of epoch");
      break;
    case Step::kError:
      status->Set(TF_INTERNAL, reader->error());
      break;
    case Step::kInterrupted:
      status->Set(TF_ABORTED, "A signal interrupted the wait for Pipe mode data");
      break;
  }
}

void ComputeRead(void*, TF_OpKernelContext* context) {
  Status status;
  try {
    Read(context, &status);
  } catch (const std::exception& failure) {
    status.Set(TF_INTERNAL, std::string("Pipe mode: ") + failure.what());
  }
  if (!status.ok()) tf.TF_OpKernelContext_Failure(context, status.get());
}

void ComputeClose(void*, TF_OpKernelContext* context) {
  Status status;
  std::int64_t handle = 0;
  if (HandleInput(context, &handle, &status)) {
    AllEpochs().Remove(handle);
    HandleOutput(context, handle, &status);
  }
  if (!status.ok()) tf.TF_OpKernelContext_Failure(context, status.get());
}

void* CreateNothing(TF_OpKernelConstruction*) { return nullptr; }
void DeleteNothing(void*) {}

// --- registration -----------------------------------------------------------------------------------------------

bool RegisterKernel(const char* name, CreateFunction create, ComputeFunction compute, DeleteFunction remove) {
  return RegisterKernel(name, tf.TF_NewKernelBuilder(name, "CPU", create, compute, remove));
}

bool RegisterAll() {
  return LookUpTensorFlow("pipemode.native", false) &&
         RegisterOp("TidemillPipeOpen", {}, {"handle: int64"},
                    {"channel: string", "record_format: string", "state_dir: string", "pipe_dir: string",
                     "max_record_bytes: int", "max_corrupted_records: int", "strict_padding: bool",
                     "path_timeout_ms: int", "benchmark: bool", "benchmark_records_interval: int"}) &&
         RegisterOp("TidemillPipeRead", {"handle: int64"}, {"records: string"}, {}) &&
         RegisterOp("TidemillPipeClose", {"handle: int64"}, {"closed: int64"}, {}) &&
         RegisterKernel("TidemillPipeOpen", CreateOpen, ComputeOpen, DeleteOpen) &&
         RegisterKernel("TidemillPipeRead", CreateNothing, ComputeRead, DeleteNothing) &&
         RegisterKernel("TidemillPipeClose", CreateNothing, ComputeClose, DeleteNothing);
}

// TensorFlow collects the ops that are registered while it loads the library, so a static initializer registers them.
struct Registration {
  Registration() {
    registration = RegisterAll() ? 0 : 1;
    ::pthread_atfork(nullptr, nullptr, PipeReader::CloseAllInChild);
  }
} registration_at_load;

}  // namespace
}  // namespace tidemill

// Returns 0 if the ops are registered.
TIDEMILL_EXPORT int tidemill_pipe_registration() { return tidemill::registration; }

TIDEMILL_EXPORT void tidemill_pipe_interrupt() { tidemill::PipeReader::Interrupt(); }

TIDEMILL_EXPORT void tidemill_pipe_stop() { tidemill::PipeReader::Stop(); }
