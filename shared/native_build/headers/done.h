// A copy of the "done" callback of an asynchronous TensorFlow kernel, kept until the data has arrived.
//
// The C API passes a pointer to a std::function<void()> on the caller's stack, which is destroyed when compute returns.
// So it has to be copied, and the C API has no function for that. The copy relies on libstdc++'s layout of
// std::function: two words of captured state, then a manager (copies and destroys) and an invoker. This layout has
// never changed, but it is not guaranteed: Keep() therefore checks whether the last two words point into loaded code,
// and refuses otherwise. A libc++ function, for example, has a pointer to the heap or to itself there.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "tensorflow_c.h"

namespace tidemill {

class Done {
 public:
  Done() = default;
  Done(const Done&) = delete;
  Done& operator=(const Done&) = delete;
  ~Done() {
    if (manager_ != nullptr) manager_(state_, state_, kDestroy);
  }

  // Returns false, without copying, if the layout is unknown.
  bool Keep(const TF_AsyncOpKernelDoneCallback* callback) {
    Layout there;
    std::memcpy(&there, static_cast<const void*>(callback), sizeof there);
    if (!IsKnown(reinterpret_cast<void*>(there.manager)) || !IsKnown(reinterpret_cast<void*>(there.invoker))) {
      return false;
    }
    there.manager(state_, callback, kClone);
    manager_ = there.manager;
    invoker_ = there.invoker;
    return true;
  }

  void Run() const { invoker_(state_); }

 private:
  enum Operation : int { kClone = 2, kDestroy = 3 };
  using Manager = bool (*)(void*, const void*, Operation);
  using Invoker = void (*)(const void*);
  struct Layout {
    void* state[2];
    Manager manager;
    Invoker invoker;
  };
  static_assert(sizeof(Layout) == 32, "a 64-bit machine");

  static bool IsKnown(void* code) {
    static std::atomic<void*> known[2];
    if (code == nullptr) return false;
    if (known[0].load(std::memory_order_relaxed) == code || known[1].load(std::memory_order_relaxed) == code) return true;
    Dl_info where;
    if (::dladdr(code, &where) == 0) return false;
    known[1].store(known[0].exchange(code, std::memory_order_relaxed), std::memory_order_relaxed);
    return true;
  }

  void* state_[2] = {};
  Manager manager_ = nullptr;
  Invoker invoker_ = nullptr;
};

}  // namespace tidemill
