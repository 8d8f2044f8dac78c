// Send and receive as TensorFlow ops on the C kernel API. A send queues its tensor; a receive registers its callback
// with the connection, and releases its thread until the message arrives (after TensorFlow 2.12).

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "connection.h"
#include "done.h"
#include "old_glibc_threads.h"
#include "tensorflow_ops.h"

namespace tidemill {
namespace {

int registration = -1;  // 0: the ops are registered
std::atomic<bool> block_always{false};
std::atomic<int> blocked{0};

// Connections by rank. Never destroyed: threads may still use them while the process runs its destructors.
class Connections {
 public:
  void Add(int rank, std::unique_ptr<Connection> connection) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (connections_.empty()) std::thread([this] { Watch(); }).detach();
    connections_[rank] = connection.release();
  }
  Connection* Find(std::int64_t rank) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = connections_.find(rank);
    return found == connections_.end() ? nullptr : found->second;
  }
  std::vector<Connection*> All() {
    const std::lock_guard<std::mutex> guard(mutex_);
    std::vector<Connection*> all;
    for (const auto& entry : connections_) all.push_back(entry.second);
    return all;
  }
  void CloseInChild() {
    for (const auto& entry : connections_) entry.second->CloseInChild();
  }

 private:
  void Watch() {
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      for (Connection* connection : All()) connection->EndLateWaits();
    }
  }

  std::mutex mutex_;
  std::map<std::int64_t, Connection*> connections_;
};

Connections& AllConnections() {
  static Connections* const connections = new Connections;
  return *connections;
}

void CloseAllInChild() { AllConnections().CloseInChild(); }

// --- state of both kernels --------------------------------------------------------------------------------------

struct Kernel {
  std::int64_t peer = 0;
  std::int64_t channel = 0;
  std::string label;
  int dtype = 0;
};

void* CreateKernel(TF_OpKernelConstruction* construction) {
  Status status;
  auto kernel = std::make_unique<Kernel>();
  kernel->peer = IntAttr(construction, "peer", &status);
  kernel->channel = IntAttr(construction, "channel", &status);
  kernel->label = StringAttr(construction, "label", &status);
  if (status.ok()) tf.TF_OpKernelConstruction_GetAttrType(construction, "T", &kernel->dtype, status.get());
  if (!status.ok()) {
    tf.TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  return kernel.release();
}

void DeleteKernel(void* kernel) { delete static_cast<Kernel*>(kernel); }

// errors.py looks for these marks around the text in the exception.
std::string LostText(const std::string& why, const char* what, const std::string& label) {
  return "SMPPeerLostError: " + why + "; this rank was to " + what + " " + label + " [smp]";
}

Connection* Peer(const Kernel& kernel, Status* status) {
  Connection* const connection = AllConnections().Find(kernel.peer);
  if (connection == nullptr) {
    status->Set(TF_INVALID_ARGUMENT, "there is no connection to rank " + std::to_string(kernel.peer) + " for " +
                                         kernel.label);
  }
  return connection;
}

// --- send -------------------------------------------------------------------------------------------------------

void ReleaseTensor(void* tensor) { tf.TF_DeleteTensor(static_cast<TF_Tensor*>(tensor)); }

Outgoing ToOutgoing(TF_Tensor* tensor, std::int64_t channel) {
  const int dimensions = tf.TF_NumDims(tensor);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.dtype = static_cast<std::uint8_t>(tf.TF_TensorType(tensor));
  header.dimensions = static_cast<std::uint8_t>(dimensions);
  header.channel = static_cast<std::uint64_t>(channel);
  header.size = tf.TF_TensorByteSize(tensor);
  Outgoing outgoing;
  outgoing.head.resize(sizeof header + sizeof(std::int64_t) * static_cast<std::size_t>(dimensions));
  std::memcpy(outgoing.head.data(), &header, sizeof header);
  for (int axis = 0; axis < dimensions; ++axis) {
    const std::int64_t size = tf.TF_Dim(tensor, axis);
    std::memcpy(outgoing.head.data() + sizeof header + sizeof size * static_cast<std::size_t>(axis), &size, sizeof size);
  }
  outgoing.data = static_cast<const char*>(tf.TF_TensorData(tensor));
  outgoing.size = header.size;
  outgoing.release = ReleaseTensor;
  outgoing.owner = tensor;  // a reference: TensorFlow does not write to memory that others refer to
  return outgoing;
}

void ComputeSend(void* raw, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(raw);
  Status status;
  TF_Tensor* tensor = nullptr;
  try {
    Connection* const connection = Peer(kernel, &status);
    if (connection != nullptr) tf.TF_GetInput(context, 0, &tensor, status.get());
    if (status.ok()) {
      if (connection->Send(ToOutgoing(tensor, kernel.channel))) {
        tensor = nullptr;
      } else {
        status.Set(TF_ABORTED, LostText(connection->lost(), "send", kernel.label));
      }
    }
  } catch (const std::exception& failure) {
    status.Set(TF_INTERNAL, "smp: " + kernel.label + ": " + failure.what());
  }
  if (tensor != nullptr) tf.TF_DeleteTensor(tensor);
  if (!status.ok()) tf.TF_OpKernelContext_Failure(context, status.get());
}

// --- receive ----------------------------------------------------------------------------------------------------

void FreeData(void* data, std::size_t, void*) { std::free(data); }

// Returns whether a tensor of that dtype and shape has as many bytes as were received. TensorFlow aborts the process
// for impossible shapes.
bool Fits(const Message& message) {
  std::uint64_t bytes = tf.TF_DataTypeSize(message.dtype);
  for (const std::int64_t size : message.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) return false;
  }
  return bytes == message.size;
}

void Answer(TF_OpKernelContext* context, const Kernel& kernel, const Connection& connection, Outcome outcome) {
  Status status;
  Message& message = outcome.message;
  if (outcome.kind == Outcome::kLost) {
    status.Set(TF_ABORTED, LostText(outcome.words, "receive", kernel.label));
  } else if (outcome.kind == Outcome::kLate) {
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g", connection.hang_timeout_s());
    status.Set(TF_DEADLINE_EXCEEDED, "SMPDeadlockError: " + connection.name() + " sent nothing within " + limit +
                                         " s (hang_timeout_s) while this rank waited to receive " + kernel.label +
                                         " [smp]");
  } else if (message.dtype != kernel.dtype) {
    status.Set(TF_INVALID_ARGUMENT, connection.name() + " sent dtype " + std::to_string(message.dtype) + " where " +
                                        std::to_string(kernel.dtype) + " was expected: " + kernel.label);
  } else {
    if (!Fits(message)) {
      status.Set(TF_INTERNAL, connection.name() + " sent a message whose size does not fit its shape: " + kernel.label);
    } else {
      TF_Tensor* const tensor =
          tf.TF_NewTensor(message.dtype, message.shape.data(), static_cast<int>(message.shape.size()),
                          message.data.release(), message.size, FreeData, nullptr);
      tf.TF_SetOutput(context, 0, tensor, status.get());
      tf.TF_DeleteTensor(tensor);
    }
  }
  if (!status.ok()) tf.TF_OpKernelContext_Failure(context, status.get());
}

// Fallback if the callback cannot be copied, or there is none: occupies the thread, like an ordinary op.
void ReceiveBlocking(const Kernel& kernel, Connection* connection, TF_OpKernelContext* context) {
  ++blocked;
  std::mutex mutex;
  std::condition_variable changed;
  bool there = false;
  Outcome outcome{Outcome::kLost, {}, {}};
  connection->Receive(static_cast<std::uint64_t>(kernel.channel), kernel.label, [&](Outcome came) {
    const std::lock_guard<std::mutex> guard(mutex);
    outcome = std::move(came);
    there = true;
    changed.notify_all();
  });
  std::unique_lock<std::mutex> guard(mutex);
  changed.wait(guard, [&] { return there; });
  Answer(context, kernel, *connection, std::move(outcome));
}

void ComputeReceive(void* raw, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const Kernel& kernel = *static_cast<Kernel*>(raw);
  Status status;
  Connection* const connection = Peer(kernel, &status);
  if (connection == nullptr) {
    tf.TF_OpKernelContext_Failure(context, status.get());
    tf.TF_RunAsyncOpKernelDoneCallback(callback);
    return;
  }
  auto done = std::make_shared<Done>();
  if (block_always || !done->Keep(callback)) {
    ReceiveBlocking(kernel, connection, context);
    tf.TF_RunAsyncOpKernelDoneCallback(callback);
    return;
  }
  // The kernel and the context outlive the call of `done`.
  connection->Receive(static_cast<std::uint64_t>(kernel.channel), kernel.label,
                      [&kernel, context, connection, done](Outcome outcome) {
                        Answer(context, kernel, *connection, std::move(outcome));
                        done->Run();
                      });
}

// TensorFlow 2.12 has no asynchronous kernels.
void ComputeReceiveAndWait(void* raw, TF_OpKernelContext* context) {
  const Kernel& kernel = *static_cast<Kernel*>(raw);
  Status status;
  Connection* const connection = Peer(kernel, &status);
  if (connection != nullptr) {
    ReceiveBlocking(kernel, connection, context);
  } else {
    tf.TF_OpKernelContext_Failure(context, status.get());
  }
}

TF_KernelBuilder* ReceiveKernel() {
  constexpr const char* kOp = "TidemillSmpReceive";
  if (tf.TF_NewAsyncKernelBuilder == nullptr || tf.TF_RunAsyncOpKernelDoneCallback == nullptr) {
    return tf.TF_NewKernelBuilder(kOp, "CPU", CreateKernel, ComputeReceiveAndWait, DeleteKernel);
  }
  return tf.TF_NewAsyncKernelBuilder(kOp, "CPU", CreateKernel, ComputeReceive, DeleteKernel);
}

// --- registration -----------------------------------------------------------------------------------------------

const std::vector<const char*> kAttributes = {"T: type", "peer: int", "channel: int", "label: string"};

bool RegisterAll() {
  return LookUpTensorFlow("smp.transport", false) &&
         RegisterOp("TidemillSmpSend", {"tensor: T"}, {}, kAttributes) &&
         RegisterOp("TidemillSmpReceive", {}, {"tensor: T"}, kAttributes) &&
         RegisterKernel("TidemillSmpSend",
                        tf.TF_NewKernelBuilder("TidemillSmpSend", "CPU", CreateKernel, ComputeSend, DeleteKernel)) &&
         RegisterKernel("TidemillSmpReceive", ReceiveKernel());
}

// TensorFlow collects the ops that appear while it loads the library, so this happens in a static initializer.
struct Registration {
  Registration() {
    registration = RegisterAll() ? 0 : 1;
    ::pthread_atfork(nullptr, nullptr, CloseAllInChild);
  }
} registration_at_load;

}  // namespace
}  // namespace tidemill

// Returns 0 if the ops are registered.
TIDEMILL_EXPORT int tidemill_smp_registration() { return tidemill::registration; }

// Takes ownership of the descriptor.
TIDEMILL_EXPORT void tidemill_smp_open(int rank, int descriptor, const char* name, double hang_timeout_s) {
  tidemill::AllConnections().Add(rank, std::make_unique<tidemill::Connection>(descriptor, name, hang_timeout_s));
}

TIDEMILL_EXPORT void tidemill_smp_lose_all(const char* why) {
  for (tidemill::Connection* connection : tidemill::AllConnections().All()) connection->Lose(why);
}

// Writes the labels of the current waits as text of at most `size` bytes, including the terminating zero.
TIDEMILL_EXPORT void tidemill_smp_waiting(char* text, int size) {
  text[0] = '\0';
  for (tidemill::Connection* connection : tidemill::AllConnections().All()) {
    const std::string label = connection->Waiting();
    if (label.empty()) continue;
    std::snprintf(text, static_cast<std::size_t>(size), "receive %s from %s", label.c_str(),
                  connection->name().c_str());
    return;
  }
}

TIDEMILL_EXPORT void tidemill_smp_flush(double seconds) {
  const auto limit = std::chrono::duration_cast<tidemill::Clock::duration>(std::chrono::duration<double>(seconds));
  const tidemill::Clock::time_point deadline = tidemill::Clock::now() + limit;
  for (tidemill::Connection* connection : tidemill::AllConnections().All()) connection->Flush(deadline);
}

// For tests: receive as if the callback could not be copied. Returns the number of receives that did so.
TIDEMILL_EXPORT int tidemill_smp_block(int always) {
  tidemill::block_always = always != 0;
  return tidemill::blocked;
}
