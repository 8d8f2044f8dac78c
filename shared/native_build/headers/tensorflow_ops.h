// What a library of TensorFlow ops needs before its own kernels: the functions of the loaded TensorFlow, its statuses,
// and the registration of ops and kernels. To be included by one source file of a library.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "old_glibc.h"
#include "tensorflow_c.h"

namespace tidemill {
namespace {

TensorFlow tf;

class Status {
 public:
  Status() : status_(tf.TF_NewStatus()) {}
  ~Status() { tf.TF_DeleteStatus(status_); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;
  TF_Status* get() { return status_; }
  bool ok() const { return tf.TF_GetCode(status_) == TF_OK; }
  void Set(int code, const std::string& text) { tf.TF_SetStatus(status_, code, text.c_str()); }

 private:
  TF_Status* status_;
};

std::string StringAttr(TF_OpKernelConstruction* construction, const char* name, Status* status) {
  if (!status->ok()) return "";
  std::int32_t list_size = 0;
  std::int32_t size = 0;
  tf.TF_OpKernelConstruction_GetAttrSize(construction, name, &list_size, &size, status->get());
  if (!status->ok() || size <= 0) return "";
  std::string value(static_cast<std::size_t>(size), '\0');
  tf.TF_OpKernelConstruction_GetAttrString(construction, name, &value[0], value.size(), status->get());
  return value;
}

std::int64_t IntAttr(TF_OpKernelConstruction* construction, const char* name, Status* status) {
  std::int64_t value = 0;
  if (status->ok()) tf.TF_OpKernelConstruction_GetAttrInt64(construction, name, &value, status->get());
  return value;
}

// Fills `tf`; false, with a line on standard error for each, if functions are missing. `library` begins those lines.
// Without `needs_async` those of asynchronous kernels may be missing, and are then null. A TensorFlow without any of
// these functions (before 2.6) gets no lines: its packages have another way.
bool LookUpTensorFlow(const char* library, bool needs_async = true) {
  void* framework = nullptr;
  for (const char* name : {"libtensorflow_framework.so.2", "libtensorflow_framework.2.dylib"}) {
    framework = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (framework != nullptr) break;
  }
  if (framework == nullptr || ::dlsym(framework, "TF_NewKernelBuilder") == nullptr) return false;
  bool complete = true;
  bool needed = true;
#define TIDEMILL_LOOK_UP(result, name, arguments)                                  \
  {                                                                                \
    void* const symbol = ::dlsym(framework, #name);                                \
    if (symbol == nullptr && needed) {                                             \
      std::fprintf(stderr, "%s missing TensorFlow symbol %s\n", library, #name);   \
      complete = false;                                                            \
    }                                                                              \
    std::memcpy(&tf.name, &symbol, sizeof symbol);                                 \
  }
  TIDEMILL_TENSORFLOW_FUNCTIONS(TIDEMILL_LOOK_UP)
  needed = needs_async;
  TIDEMILL_ASYNC_FUNCTIONS(TIDEMILL_LOOK_UP)
#undef TIDEMILL_LOOK_UP
  return complete;
}

// For ops with outputs whose shapes are not known before they run.
void UnknownShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
}

void NoShape(TF_ShapeInferenceContext*, TF_Status*) {}

// Registers an op that is stateful, so that a tf.function runs it in order and each time.
bool RegisterOp(const char* name, const std::vector<const char*>& inputs, const std::vector<const char*>& outputs,
                const std::vector<const char*>& attributes) {
  Status status;
  TF_OpDefinitionBuilder* builder = tf.TF_NewOpDefinitionBuilder(name);
  for (const char* input : inputs) tf.TF_OpDefinitionBuilderAddInput(builder, input);
  for (const char* output : outputs) tf.TF_OpDefinitionBuilderAddOutput(builder, output);
  for (const char* attribute : attributes) tf.TF_OpDefinitionBuilderAddAttr(builder, attribute);
  tf.TF_OpDefinitionBuilderSetIsStateful(builder, true);
  tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, outputs.empty() ? NoShape : UnknownShape);
  tf.TF_RegisterOpDefinition(builder, status.get());
  return status.ok();
}

bool RegisterKernel(const char* name, TF_KernelBuilder* builder) {
  Status status;
  tf.TF_RegisterKernelBuilder(name, builder, status.get());
  return status.ok();
}

}  // namespace
}  // namespace tidemill

#define TIDEMILL_EXPORT extern "C" __attribute__((visibility("default")))
