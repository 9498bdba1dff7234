/* What torch's exchange table leaves unchecked, asked of torch itself.
 *
 * The table hands out the memory of lazily negated and conjugated views, whose values are
 * other ones, and of tensors that autograd watches. torch answers each question with a
 * function of a tensor's C++ object. Called directly they cost 2 to 3 ns; through
 * Python's descriptors 40 ns (requires_grad) and 100 ns (is_neg, which gives up the GIL).
 * Direct calls need the place of the C++ object in the Python object: it is found on a
 * tensor made for that, by its `_cdata`, which is that address in Python's words. Where
 * anything is not as expected the descriptors are asked. */
#include <dlfcn.h>
#include <string.h>

#include "binding.h"

static void* symbol(const char* library_name, const char* name) {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_NOLOAD);
  void* address = library != NULL ? dlsym(library, name) : NULL;
  if (library != NULL) dlclose(library); /* torch itself keeps it */
  return address;
}

/* Where in the Python object the C++ object is: a pointer to the implementation. 0: not
 * found. */
static size_t find_offset(PyObject* tensor) {
  PyObject* number = PyObject_GetAttrString(tensor, "_cdata");
  void* implementation = number != NULL ? PyLong_AsVoidPtr(number) : NULL;
  Py_XDECREF(number);
  PyErr_Clear();
  size_t end = (size_t)Py_TYPE(tensor)->tp_basicsize;
  for (size_t offset = sizeof(PyObject);
       implementation != NULL && offset + sizeof(void*) <= end; offset += sizeof(void*)) {
    if (memcmp((char*)tensor + offset, &implementation, sizeof implementation) == 0) {
      return offset;
    }
  }
  return 0;
}

static bool asks_right(const onspy_torch* torch, PyObject* tensor, bool expected) {
  const void* implementation;
  memcpy(&implementation, (char*)tensor + torch->offset, sizeof implementation);
  return torch->requires_grad(implementation) == expected;
}

/* The functions of libtorch, tried out on a fresh tensor. */
static bool find_direct(PyObject* tensor_class, onspy_torch* torch) {
  void* neg = symbol("libtorch_cpu.so", "_ZN2at6native6is_negERKNS_6TensorE");
  void* conj = symbol("libtorch_cpu.so", "_ZN2at6native7is_conjERKNS_6TensorE");
  void* grad = symbol("libc10.so", "_ZNK3c1010TensorImpl13requires_gradEv");
  if (neg == NULL || conj == NULL || grad == NULL) return false;
  memcpy(&torch->is_neg, &neg, sizeof neg);
  memcpy(&torch->is_conj, &conj, sizeof conj);
  memcpy(&torch->requires_grad, &grad, sizeof grad);
  PyObject* tensor = PyObject_CallNoArgs(tensor_class);
  bool works = false;
  if (tensor != NULL && (torch->offset = find_offset(tensor)) != 0) {
    works = asks_right(torch, tensor, false);
    PyObject* same = PyObject_CallMethod(tensor, "requires_grad_", NULL);
    works = works && same == tensor && asks_right(torch, tensor, true);
    Py_XDECREF(same);
  }
  Py_XDECREF(tensor);
  PyErr_Clear();
  return works;
}

/* Python's own way to the same answers. */
static bool find_descriptors(PyObject* tensor_class, onspy_torch* torch) {
  PyObject* grad = PyObject_GetAttrString(tensor_class, "requires_grad");
  PyObject* neg = PyObject_GetAttrString(tensor_class, "is_neg");
  PyObject* conj = PyObject_GetAttrString(tensor_class, "is_conj");
  bool found = grad != NULL && Py_IS_TYPE(grad, &PyGetSetDescr_Type) && neg != NULL &&
               Py_IS_TYPE(neg, &PyMethodDescr_Type) && conj != NULL &&
               Py_IS_TYPE(conj, &PyMethodDescr_Type);
  if (found) {
    PyMethodDef* neg_method = ((PyMethodDescrObject*)neg)->d_method;
    PyMethodDef* conj_method = ((PyMethodDescrObject*)conj)->d_method;
    found = neg_method->ml_flags == METH_NOARGS && conj_method->ml_flags == METH_NOARGS;
    torch->grad_getset = ((PyGetSetDescrObject*)grad)->d_getset;
    torch->neg_method = neg_method->ml_meth;
    torch->conj_method = conj_method->ml_meth;
  }
  Py_XDECREF(grad);
  Py_XDECREF(neg);
  Py_XDECREF(conj);
  PyErr_Clear();
  return found;
}

bool onspy_torch_find(PyTypeObject* tensor_class, onspy_torch* out_torch) {
  *out_torch = (onspy_torch){0};
  if (find_direct((PyObject*)tensor_class, out_torch)) return true;
  out_torch->offset = 0;
  return find_descriptors((PyObject*)tensor_class, out_torch);
}

static int truth(PyObject* answer) {
  if (answer == NULL) return -1;
  int flag = answer == Py_True;
  Py_DECREF(answer);
  return flag;
}

int onspy_torch_ask_slowly(const onspy_torch* torch, PyObject* tensor) {
  int grad = truth(torch->grad_getset->get(tensor, torch->grad_getset->closure));
  int neg = grad < 0 ? -1 : truth(torch->neg_method(tensor, NULL));
  int conj = neg < 0 ? -1 : truth(torch->conj_method(tensor, NULL));
  if (conj < 0) return -1;
  return (grad ? ONSPY_TORCH_REQUIRES_GRAD : 0) | (neg ? ONSPY_TORCH_NEG : 0) |
         (conj ? ONSPY_TORCH_CONJ : 0);
}
