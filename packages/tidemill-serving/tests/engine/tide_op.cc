// A custom op of a user, on TensorFlow's C API: TideDouble returns its input twice as large.
#include <cstddef>
#include <cstdint>

#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/c/tf_tensor.h"

namespace {

void compute(void*, TF_OpKernelContext* context) {
  TF_Status* status = TF_NewStatus();
  TF_Tensor* x = nullptr;
  TF_GetInput(context, 0, &x, status);
  int64_t shape[8];
  for (int axis = 0; axis < TF_NumDims(x); ++axis) shape[axis] = TF_Dim(x, axis);
  TF_Tensor* y =
      TF_AllocateOutput(context, 0, TF_FLOAT, shape, TF_NumDims(x), TF_TensorByteSize(x), status);
  const auto* from = static_cast<const float*>(TF_TensorData(x));
  auto* to = static_cast<float*>(TF_TensorData(y));
  for (std::size_t index = 0; index < TF_TensorByteSize(x) / sizeof(float); ++index) to[index] = 2 * from[index];
  TF_DeleteTensor(x);
  TF_DeleteTensor(y);
  TF_DeleteStatus(status);
}

struct Registration {
  Registration() {
    TF_Status* status = TF_NewStatus();
    TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("TideDouble");
    TF_OpDefinitionBuilderAddInput(op, "x: float");
    TF_OpDefinitionBuilderAddOutput(op, "y: float");
    TF_OpDefinitionBuilderSetShapeInferenceFunction(op, &TF_ShapeInferenceContextSetUnknownShape);
    TF_RegisterOpDefinition(op, status);
    TF_KernelBuilder* kernel = TF_NewKernelBuilder("TideDouble", "CPU", nullptr, &compute, nullptr);
    TF_RegisterKernelBuilder("TideDouble", kernel, status);
    TF_DeleteStatus(status);
  }
} registration;

}  // namespace
