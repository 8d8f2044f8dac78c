// A minimal implementation of the TensorFlow functions that the native transport calls. The transport then runs without
// TensorFlow, so that a sanitizer sees both sides of every handover between threads. Built as
// libtensorflow_framework.so.2.
#include "fake_tensorflow.h"

#include <cstdlib>
#include <cstring>
#include <map>

namespace {

std::map<std::string, Kernel>& Kernels() {
  static auto* const kernels = new std::map<std::string, Kernel>;
  return *kernels;
}

}  // namespace

TF_Tensor::~TF_Tensor() {
  if (release != nullptr) release(data, size, argument);
}

const Kernel& FakeKernel(const std::string& name) { return Kernels().at(name); }

extern "C" {

TF_Status* TF_NewStatus() { return new TF_Status; }
void TF_DeleteStatus(TF_Status* status) { delete status; }
void TF_SetStatus(TF_Status* status, int code, const char* text) { *status = {code, text}; }
int TF_GetCode(const TF_Status* status) { return status->code; }

std::size_t TF_DataTypeSize(int dtype) { return dtype == kFloat ? 4 : 1; }
int TF_TensorType(const TF_Tensor* tensor) { return tensor->dtype; }
int TF_NumDims(const TF_Tensor* tensor) { return static_cast<int>(tensor->shape.size()); }
std::int64_t TF_Dim(const TF_Tensor* tensor, int axis) { return tensor->shape[static_cast<std::size_t>(axis)]; }
std::size_t TF_TensorByteSize(const TF_Tensor* tensor) { return tensor->size; }
void* TF_TensorData(const TF_Tensor* tensor) { return tensor->data; }
TF_Tensor* TF_NewTensor(int dtype, const std::int64_t* shape, int dimensions, void* data, std::size_t size,
                        Deallocator release, void* argument) {
  for (int axis = 0; axis < dimensions; ++axis) {
    if (shape[axis] < 0) std::abort();  // as TensorFlow does
  }
  auto* const tensor = new TF_Tensor;
  tensor->dtype = dtype;
  tensor->shape.assign(shape, shape + dimensions);
  tensor->data = data;
  tensor->size = size;
  tensor->release = release;
  tensor->argument = argument;
  return tensor;
}
void TF_DeleteTensor(TF_Tensor* tensor) {
  if (--tensor->references == 0) delete tensor;
}

struct TF_OpDefinitionBuilder {
  int nothing;
};
TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char*) { return new TF_OpDefinitionBuilder; }
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder*, const char*) {}
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder*, const char*) {}
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder*, const char*) {}
void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder*, bool) {}
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder*, void*) {}
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder* builder, TF_Status*) { delete builder; }
void TF_ShapeInferenceContextSetUnknownShape(void*, TF_Status*) {}

Kernel* TF_NewKernelBuilder(const char*, const char*, CreateFunction create, ComputeFunction compute,
                            DeleteFunction remove) {
  return new Kernel{create, compute, nullptr, remove};
}
Kernel* TF_NewAsyncKernelBuilder(const char*, const char*, CreateFunction create, AsyncComputeFunction compute,
                                 DeleteFunction remove) {
  return new Kernel{create, nullptr, compute, remove};
}
void TF_RegisterKernelBuilder(const char* name, Kernel* builder, TF_Status*) {
  Kernels()[name] = *builder;
  delete builder;
}
void TF_RunAsyncOpKernelDoneCallback(std::function<void()>* done) { (*done)(); }

void TF_OpKernelConstruction_GetAttrSize(TF_OpKernelConstruction* attributes, const char*, std::int32_t* list_size,
                                         std::int32_t* size, TF_Status*) {
  *list_size = -1;
  *size = static_cast<std::int32_t>(attributes->label.size());
}
void TF_OpKernelConstruction_GetAttrString(TF_OpKernelConstruction* attributes, const char*, char* text,
                                           std::size_t size, TF_Status*) {
  std::memcpy(text, attributes->label.data(), std::min(size, attributes->label.size()));
}
void TF_OpKernelConstruction_GetAttrInt64(TF_OpKernelConstruction* attributes, const char* name, std::int64_t* value,
                                          TF_Status*) {
  *value = std::strcmp(name, "peer") == 0 ? attributes->peer : attributes->channel;
}
void TF_OpKernelConstruction_GetAttrType(TF_OpKernelConstruction* attributes, const char*, int* dtype, TF_Status*) {
  *dtype = attributes->dtype;
}
// Functions that only other libraries call.
void TF_OpKernelConstruction_GetAttrBool(TF_OpKernelConstruction*, const char*, unsigned char*, TF_Status*) {
  std::abort();
}
TF_Tensor* TF_AllocateOutput(TF_OpKernelContext*, int, int, const std::int64_t*, int, std::size_t, TF_Status*) {
  std::abort();
}
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction*, TF_Status*) { std::abort(); }

void TF_OpKernelContext_Failure(TF_OpKernelContext* context, TF_Status* status) { context->status = *status; }
void TF_GetInput(TF_OpKernelContext* context, int, TF_Tensor** tensor, TF_Status*) {
  ++context->input->references;
  *tensor = context->input;
}
void TF_SetOutput(TF_OpKernelContext* context, int, const TF_Tensor* tensor, TF_Status*) {
  context->output = const_cast<TF_Tensor*>(tensor);
  ++context->output->references;
}

}  // extern "C"
