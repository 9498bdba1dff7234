/* An onstream.Tensor, for the files that make it an argument and a producer. */
#ifndef ONSPY_TENSOR_OBJECT_H_
#define ONSPY_TENSOR_OBJECT_H_

#include "binding.h"

typedef struct onspy_tensor {
  PyObject_HEAD ons_tensor* handle; /* NULL when released */
  /* Whom to ask for the stream to release to; NULL: nobody. */
  PyTypeObject* type; /* of the array */
  PyObject* array;    /* only where its stream is found by asking the array itself */
  onspy_import import;
  unsigned long thread; /* that imported it */
} onspy_tensor;

/* The library's tensor (borrowed), or an exception where it has been released. */
ons_tensor* onspy_tensor_handle(PyObject* object);
/* Its argument, whatever thread asks. */
static inline ons_arg onspy_tensor_arg(const ons_tensor* handle) {
  ons_arg arg;
  ons_tensor_arg(handle, &arg);
  return arg;
}

/* Two handles of one stream: 1 names the legacy default stream as 0 does. */
static inline bool onspy_streams_match(const void* stream, const void* other) {
  return stream == other || ((uintptr_t)stream <= 1 && (uintptr_t)other <= 1);
}

/* Raises BufferError for what cannot be exported, else as onspy_raise. */
ONSPY_COLD void* onspy_raise_export(onspy_state* state, const ons_error* error);

PyObject* onspy_tensor_dlpack(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* onspy_tensor_dlpack_device(PyObject* self, PyObject* unused);
PyObject* onspy_tensor_arrow(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* onspy_tensor_array_interface(PyObject* self, void* closure);
int onspy_tensor_get_buffer(PyObject* self, Py_buffer* view, int flags);
void onspy_tensor_release_buffer(PyObject* self, Py_buffer* view);

extern const char onspy_tensor_dlpack_doc[];
extern const char onspy_tensor_dlpack_device_doc[];
extern const char onspy_tensor_arrow_doc[];

#endif /* ONSPY_TENSOR_OBJECT_H_ */
