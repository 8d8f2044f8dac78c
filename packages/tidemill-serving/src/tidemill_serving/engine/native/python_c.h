// The few functions of Python's stable ABI that the library calls, declared here: one binary serves every Python from
// 3.10 on, and no headers of Python are needed to build it. The interpreter that loads the library provides them.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct PyObject;
struct PyThreadState;
using Py_ssize_t = std::ptrdiff_t;

struct Py_buffer {
  void* buf;
  PyObject* obj;
  Py_ssize_t len;
  Py_ssize_t itemsize;
  int readonly;
  int ndim;
  char* format;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  Py_ssize_t* suboffsets;
  void* internal;
};

enum : int { PyBUF_WRITABLE = 0x1, PyBUF_C_CONTIGUOUS = 0x8 | 0x10 | 0x20 };

int PyObject_GetBuffer(PyObject*, Py_buffer*, int);
void PyBuffer_Release(Py_buffer*);
PyObject* PyObject_CallFunctionObjArgs(PyObject*, ...);
PyObject* PyBytes_FromString(const char*);
PyObject* PyErr_NoMemory();
std::size_t PyLong_AsSize_t(PyObject*);
PyObject* PyLong_FromLongLong(long long);
PyObject* PyLong_FromSize_t(std::size_t);
PyObject* PyList_New(Py_ssize_t);
PyObject* PyList_GetItem(PyObject*, Py_ssize_t);
int PyList_SetItem(PyObject*, Py_ssize_t, PyObject*);
PyObject* PyTuple_New(Py_ssize_t);
int PyTuple_SetItem(PyObject*, Py_ssize_t, PyObject*);
void Py_DecRef(PyObject*);
PyThreadState* PyEval_SaveThread();
void PyEval_RestoreThread(PyThreadState*);

}  // extern "C"
