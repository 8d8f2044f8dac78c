// The types behind the functions of fake_tensorflow.cc.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

enum : int { kFloat = 1, kBool = 10 };

using Deallocator = void (*)(void*, std::size_t, void*);

struct TF_Status {
  int code = 0;
  std::string text;
};

struct TF_Tensor {
  ~TF_Tensor();
  int dtype = 0;
  std::vector<std::int64_t> shape;
  void* data = nullptr;
  std::size_t size = 0;
  Deallocator release = nullptr;
  void* argument = nullptr;
  std::atomic<int> references{1};
};

struct TF_OpKernelConstruction {
  std::int64_t peer;
  std::int64_t channel;
  int dtype;
  std::string label;
};

struct TF_OpKernelContext {
  TF_Tensor* input = nullptr;
  TF_Tensor* output = nullptr;
  TF_Status status;
};

using CreateFunction = void* (*)(TF_OpKernelConstruction*);
using ComputeFunction = void (*)(void*, TF_OpKernelContext*);
using AsyncComputeFunction = void (*)(void*, TF_OpKernelContext*, std::function<void()>*);
using DeleteFunction = void (*)(void*);

struct Kernel {
  CreateFunction create;
  ComputeFunction compute;
  AsyncComputeFunction compute_async;
  DeleteFunction remove;
};

// Returns the kernel registered under a name.
const Kernel& FakeKernel(const std::string& name);
