// Runs a signature on NumPy arrays: what engine/c_api.py does by a dozen calls through ctypes, in one.

#include "call.h"

#include <cstring>
#include <memory>
#include <new>

namespace tidemill {
namespace {

// The tensors of a run, which are deleted at its end.
class Tensors {
 public:
  Tensors(const Functions& functions, std::int64_t number)
      : functions_(functions), number_(number), tensors_(new (std::nothrow) TF_Tensor*[number + 1]()) {}
  Tensors(const Tensors&) = delete;
  ~Tensors() {
    for (std::int64_t index = 0; tensors_ && index < number_; ++index) {
      if (tensors_[index] != nullptr) functions_.delete_tensor(tensors_[index]);
    }
  }
  explicit operator bool() const { return tensors_ != nullptr; }
  TF_Tensor** data() { return tensors_.get(); }
  TF_Tensor*& operator[](std::int64_t index) { return tensors_[index]; }

 private:
  const Functions& functions_;
  const std::int64_t number_;
  const std::unique_ptr<TF_Tensor*[]> tensors_;
};

// Returns a tensor with the content of a C-contiguous array; null with an exception set.
TF_Tensor* tensor_of_array(const Functions& functions, PyObject* array, int type) {
  Py_buffer view;
  if (PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS) != 0) return nullptr;
  static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
  const auto* shape = reinterpret_cast<const std::int64_t*>(view.shape);
  TF_Tensor* tensor = functions.allocate_tensor(type, shape, view.ndim, static_cast<std::size_t>(view.len));
  if (tensor == nullptr) {
    PyErr_NoMemory();
  } else if (view.len > 0) {
    std::memcpy(functions.tensor_data(tensor), view.buf, static_cast<std::size_t>(view.len));
  }
  PyBuffer_Release(&view);
  return tensor;
}

// A feed is an array, or the number of a tensor that Python has made and hands over.
TF_Tensor* tensor_of_feed(const Functions& functions, PyObject* feed, int type) {
  if (type < 0) return reinterpret_cast<TF_Tensor*>(PyLong_AsSize_t(feed));
  return tensor_of_array(functions, feed, type);
}

PyObject* shape_of(const Functions& functions, const TF_Tensor* tensor) {
  const int rank = functions.num_dims(tensor);
  PyObject* shape = PyTuple_New(rank);
  for (int axis = 0; shape != nullptr && axis < rank; ++axis) {
    PyObject* size = PyLong_FromLongLong(functions.dim(tensor, axis));
    if (size == nullptr || PyTuple_SetItem(shape, axis, size) != 0) {
      Py_DecRef(shape);
      return nullptr;
    }
  }
  return shape;
}

// Returns a new array with the content of a tensor; null with an exception set.
PyObject* array_of(const Call& call, const TF_Tensor* tensor, PyObject* dtype) {
  const Functions& functions = *call.functions;
  PyObject* shape = shape_of(functions, tensor);
  if (shape == nullptr) return nullptr;
  PyObject* array = PyObject_CallFunctionObjArgs(call.empty, shape, dtype, nullptr);
  Py_DecRef(shape);
  Py_buffer view;
  if (array == nullptr || PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0) {
    Py_DecRef(array);
    return nullptr;
  }
  if (view.len > 0) std::memcpy(view.buf, functions.tensor_data(tensor), static_cast<std::size_t>(view.len));
  PyBuffer_Release(&view);
  return array;
}

// Returns the results as a list. One of another type than expected is the number of its tensor, which Python takes over.
PyObject* results_of(const Call& call, Tensors& tensors) {
  PyObject* results = PyList_New(call.num_outputs);
  for (std::int64_t index = 0; results != nullptr && index < call.num_outputs; ++index) {
    const bool is_expected = call.functions->tensor_type(tensors[index]) == call.output_types[index];
    PyObject* result = is_expected ? array_of(call, tensors[index], call.output_dtypes[index])
                                   : PyLong_FromSize_t(reinterpret_cast<std::size_t>(tensors[index]));
    if (result == nullptr || PyList_SetItem(results, index, result) != 0) {
      Py_DecRef(results);
      return nullptr;
    }
  }
  for (std::int64_t index = 0; results != nullptr && index < call.num_outputs; ++index) {
    if (call.functions->tensor_type(tensors[index]) != call.output_types[index]) tensors[index] = nullptr;
  }
  return results;
}

PyObject* error_of(const Functions& functions, const TF_Status* status) {
  PyObject* error = PyTuple_New(2);
  if (error == nullptr) return nullptr;
  PyTuple_SetItem(error, 0, PyLong_FromLongLong(functions.get_code(status)));
  PyTuple_SetItem(error, 1, PyBytes_FromString(functions.message(status)));
  return error;
}

}  // namespace
}  // namespace tidemill

// Runs a signature. `feeds` is a list: for each input a C-contiguous array, or, where `feed_types` has -1, the number of
// a TF_Tensor, which this function deletes in any case. Returns the list of results; a tuple of TensorFlow's code and
// message if it failed; or null with an exception of Python. Called with the GIL, which is free during the run.
extern "C" __attribute__((visibility("default"))) PyObject* tidemill_serving_run(const tidemill::Call* call,
                                                                                 const tidemill::TF_Buffer* run_options,
                                                                                 const int* feed_types,
                                                                                 PyObject* feeds) {
  const tidemill::Functions& functions = *call->functions;
  tidemill::Tensors inputs(functions, call->num_inputs);
  tidemill::Tensors outputs(functions, call->num_outputs);
  if (!inputs || !outputs) return PyErr_NoMemory();
  bool made_all = true;
  for (std::int64_t index = 0; index < call->num_inputs; ++index) {
    if (!made_all && feed_types[index] >= 0) continue;  // only what is handed over still matters
    inputs[index] = tidemill::tensor_of_feed(functions, PyList_GetItem(feeds, index), feed_types[index]);
    made_all = made_all && inputs[index] != nullptr;
  }
  if (!made_all) return nullptr;
  tidemill::TF_Status* status = functions.new_status();
  PyThreadState* thread = PyEval_SaveThread();
  functions.session_run(call->session, run_options, call->inputs, inputs.data(), static_cast<int>(call->num_inputs),
                        call->outputs, outputs.data(), static_cast<int>(call->num_outputs), nullptr, 0, nullptr, status);
  PyEval_RestoreThread(thread);
  PyObject* result = functions.get_code(status) == 0 ? tidemill::results_of(*call, outputs)
                                                     : tidemill::error_of(functions, status);
  functions.delete_status(status);
  return result;
}
