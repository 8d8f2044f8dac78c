// The memory that Python and this library share, in the layout that engine/native_call.py describes to ctypes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "python_c.h"

namespace tidemill {

struct TF_Buffer;
struct TF_Graph;
struct TF_Operation;
struct TF_Session;
struct TF_Status;
struct TF_Tensor;

struct TF_Output {
  TF_Operation* operation;
  int index;
};

// Functions of TensorFlow's C API, of the library that Python has loaded.
struct Functions {
  TF_Tensor* (*allocate_tensor)(int, const std::int64_t*, int, std::size_t);
  void (*delete_tensor)(TF_Tensor*);
  void* (*tensor_data)(const TF_Tensor*);
  int (*tensor_type)(const TF_Tensor*);
  int (*num_dims)(const TF_Tensor*);
  std::int64_t (*dim)(const TF_Tensor*, int);
  TF_Status* (*new_status)();
  void (*delete_status)(TF_Status*);
  int (*get_code)(const TF_Status*);
  const char* (*message)(const TF_Status*);
  void (*session_run)(TF_Session*, const TF_Buffer*, const TF_Output*, TF_Tensor* const*, int, const TF_Output*,
                      TF_Tensor**, int, const TF_Operation* const*, int, TF_Buffer*, TF_Status*);
};

// One signature of a loaded model. Types are numbers of TensorFlow's DataType.
struct Call {
  const Functions* functions;
  TF_Session* session;
  const TF_Output* inputs;
  const int* input_types;
  std::int64_t num_inputs;
  const TF_Output* outputs;
  const int* output_types;          // -1: the result is left to Python, whatever it is
  PyObject* const* output_dtypes;   // of NumPy; borrowed
  std::int64_t num_outputs;
  PyObject* empty;                  // numpy.empty; borrowed
};

}  // namespace tidemill
