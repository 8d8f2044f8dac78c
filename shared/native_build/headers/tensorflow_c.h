// The few functions of TensorFlow's C API that the native libraries call, declared here and looked up in the TensorFlow
// that the process has loaded. So nothing of TensorFlow is needed to build, and one binary serves every release.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemill {

struct TF_Status;
struct TF_Tensor;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_AsyncOpKernelDoneCallback;

enum : int {
  TF_OK = 0,
  TF_INVALID_ARGUMENT = 3,
  TF_DEADLINE_EXCEEDED = 4,
  TF_ABORTED = 10,
  TF_OUT_OF_RANGE = 11,
  TF_INTERNAL = 13,
};

enum : int { TF_STRING = 7, TF_INT64 = 9 };

using CreateFunction = void* (*)(TF_OpKernelConstruction*);
using ComputeFunction = void (*)(void*, TF_OpKernelContext*);
using AsyncComputeFunction = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using DeleteFunction = void (*)(void*);
using ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);
using Deallocator = void (*)(void*, std::size_t, void*);

#define TIDEMILL_TENSORFLOW_FUNCTIONS(F)                                                                          \
  F(TF_Status*, TF_NewStatus, ())                                                                                 \
  F(void, TF_DeleteStatus, (TF_Status*))                                                                          \
  F(void, TF_SetStatus, (TF_Status*, int, const char*))                                                           \
  F(int, TF_GetCode, (const TF_Status*))                                                                          \
  F(std::size_t, TF_DataTypeSize, (int))                                                                          \
  F(int, TF_TensorType, (const TF_Tensor*))                                                                       \
  F(int, TF_NumDims, (const TF_Tensor*))                                                                          \
  F(std::int64_t, TF_Dim, (const TF_Tensor*, int))                                                                \
  F(std::size_t, TF_TensorByteSize, (const TF_Tensor*))                                                           \
  F(void*, TF_TensorData, (const TF_Tensor*))                                                                     \
  F(TF_Tensor*, TF_NewTensor, (int, const std::int64_t*, int, void*, std::size_t, Deallocator, void*))            \
  F(void, TF_DeleteTensor, (TF_Tensor*))                                                                          \
  F(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char*))                                            \
  F(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*))                                  \
  F(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*))                                 \
  F(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*))                                \
  F(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                                   \
  F(void, TF_OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder*, ShapeFunction))              \
  F(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                         \
  F(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext*, TF_Status*))                       \
  F(TF_KernelBuilder*, TF_NewKernelBuilder,                                                                       \
    (const char*, const char*, CreateFunction, ComputeFunction, DeleteFunction))                                  \
  F(void, TF_RegisterKernelBuilder, (const char*, TF_KernelBuilder*, TF_Status*))                                 \
  F(void, TF_OpKernelConstruction_GetAttrSize,                                                                    \
    (TF_OpKernelConstruction*, const char*, std::int32_t*, std::int32_t*, TF_Status*))                            \
  F(void, TF_OpKernelConstruction_GetAttrString,                                                                  \
    (TF_OpKernelConstruction*, const char*, char*, std::size_t, TF_Status*))                                      \
  F(void, TF_OpKernelConstruction_GetAttrInt64, (TF_OpKernelConstruction*, const char*, std::int64_t*, TF_Status*)) \
  F(void, TF_OpKernelConstruction_GetAttrBool, (TF_OpKernelConstruction*, const char*, unsigned char*, TF_Status*)) \
  F(void, TF_OpKernelConstruction_GetAttrType, (TF_OpKernelConstruction*, const char*, int*, TF_Status*))         \
  F(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                                \
  F(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))                                          \
  F(void, TF_GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                       \
  F(TF_Tensor*, TF_AllocateOutput,                                                                                \
    (TF_OpKernelContext*, int, int, const std::int64_t*, int, std::size_t, TF_Status*))                           \
  F(void, TF_SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))

// TensorFlow 2.6 to 2.12 have the functions above but not these: their kernels cannot be asynchronous.
#define TIDEMILL_ASYNC_FUNCTIONS(F)                                                   \
  F(TF_KernelBuilder*, TF_NewAsyncKernelBuilder,                                      \
    (const char*, const char*, CreateFunction, AsyncComputeFunction, DeleteFunction)) \
  F(void, TF_RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback*))

struct TensorFlow {
#define TIDEMILL_DECLARE(result, name, arguments) result(*name) arguments = nullptr;
  TIDEMILL_TENSORFLOW_FUNCTIONS(TIDEMILL_DECLARE)
  TIDEMILL_ASYNC_FUNCTIONS(TIDEMILL_DECLARE)
#undef TIDEMILL_DECLARE
};

}  // namespace tidemill
