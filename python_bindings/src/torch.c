/* What torch's exchange table leaves unchecked.
 *
 * The table hands out the memory of lazily negated and conjugated views, whose values are
 * other ones, and of tensors that autograd watches. torch answers by requires_grad,
 * is_neg() and is_conj(), 40 to 100 ns each, more than the rest of a call. All three are
 * in the tensor's C++ object, whose address is its `_cdata`: a word with a bit for either
 * view, and a pointer that is null as long as autograd has never touched the tensor.
 * Where they are is learnt from torch when its first tensor comes: a tensor made for that
 * is looked at before and after torch itself sets the bits. Reading two words costs about
 * a nanosecond. If anything is not as expected, torch is asked in Python. */
#include <malloc.h>
#include <string.h>

#include "binding.h"

/* More than the C++ object has in any version so far: 22 or 23. */
enum { MAX_WORDS = 64 };

/* What can be read of it; it is a heap block of its own. */
static size_t readable_words(const uint64_t* object) {
  size_t words = malloc_usable_size((void*)object) / sizeof *object;
  return words < MAX_WORDS ? words : MAX_WORDS;
}

static const uint64_t* object_of(PyObject* tensor) {
  PyObject* number = PyObject_GetAttrString(tensor, "_cdata");
  void* address = number != NULL ? PyLong_AsVoidPtr(number) : NULL;
  Py_XDECREF(number);
  return address;
}

/* Where in the Python object the address of the C++ object is; 0: nowhere. */
static uint32_t find_offset(PyObject* tensor, const uint64_t* object) {
  size_t end = (size_t)Py_TYPE(tensor)->tp_basicsize;
  for (size_t offset = sizeof(PyObject); offset + sizeof object <= end;
       offset += sizeof object) {
    if (memcmp((char*)tensor + offset, &object, sizeof object) == 0)
      return (uint32_t)offset;
  }
  return 0;
}

/* The one word that calling `change` on the tensor changes; -1 if there is not one. */
static int changed_word(PyObject* tensor, const uint64_t* object, PyObject* change,
                        PyObject* value, uint64_t* out_difference) {
  uint64_t before[MAX_WORDS];
  size_t words = readable_words(object);
  memcpy(before, object, words * sizeof *object);
  PyObject* done = PyObject_CallFunctionObjArgs(change, tensor, value, NULL);
  if (done == NULL) return -1;
  Py_DECREF(done);
  int found = -1;
  for (size_t i = 0; i < words; ++i) {
    if (object[i] == before[i]) continue;
    if (found >= 0) return -1;
    found = (int)i;
    *out_difference = object[i] ^ before[i];
  }
  return found;
}

static bool is_one_bit(uint64_t word) { return word != 0 && (word & (word - 1)) == 0; }

/* Learns the place of one bit from a setter of torch. */
static bool find_bit(PyObject* tensor, PyObject* setter, int* out_word,
                     uint64_t* out_bit) {
  const uint64_t* object = object_of(tensor);
  if (object == NULL) return false;
  *out_word = changed_word(tensor, object, setter, Py_True, out_bit);
  return *out_word >= 0 && is_one_bit(*out_bit);
}

static bool find_words(PyObject* real, PyObject* complex, PyObject* set_neg,
                       PyObject* set_conj, PyObject* set_grad, onspy_torch* torch) {
  int neg_word, conj_word;
  uint64_t neg_bit, conj_bit, pointer;
  if (!find_bit(real, set_neg, &neg_word, &neg_bit) ||
      !find_bit(complex, set_conj, &conj_word, &conj_bit) || neg_word != conj_word) {
    return false;
  }
  const uint64_t* object = object_of(real);
  if (object == NULL) return false;
  int grad_word = changed_word(real, object, set_grad, Py_True, &pointer);
  if (grad_word < 0 || object[grad_word] != pointer)
    return false; /* it was not null before */
  torch->marks_word = (uint32_t)neg_word;
  torch->grad_word = (uint32_t)grad_word;
  torch->marks = neg_bit | conj_bit;
  torch->offset = find_offset(real, object);
  return torch->offset != 0;
}

void onspy_torch_find(PyTypeObject* tensor_class, onspy_torch* out_torch) {
  *out_torch = (onspy_torch){0};
  PyObject* helpers = PyImport_ImportModule("torch._C"); /* loaded long ago */
  PyObject* set_neg = helpers ? PyObject_GetAttrString(helpers, "_set_neg") : NULL;
  PyObject* set_conj = helpers ? PyObject_GetAttrString(helpers, "_set_conj") : NULL;
  PyObject* set_grad = PyObject_GetAttrString((PyObject*)tensor_class, "requires_grad_");
  PyObject* real = PyObject_CallNoArgs((PyObject*)tensor_class);
  PyObject* complex = real ? PyObject_CallMethod(real, "cfloat", NULL) : NULL;
  if (set_neg == NULL || set_conj == NULL || set_grad == NULL || complex == NULL ||
      !find_words(real, complex, set_neg, set_conj, set_grad, out_torch)) {
    *out_torch = (onspy_torch){0};
  }
  Py_XDECREF(complex);
  Py_XDECREF(real);
  Py_XDECREF(set_grad);
  Py_XDECREF(set_conj);
  Py_XDECREF(set_neg);
  Py_XDECREF(helpers);
  PyErr_Clear();
}

/* A bool attribute, or what a method of no arguments answers; -1 with an exception. */
static int ask(PyObject* tensor, const char* name) {
  PyObject* answer = PyObject_GetAttrString(tensor, name);
  if (answer != NULL && PyCallable_Check(answer)) {
    PyObject* method = answer;
    answer = PyObject_CallNoArgs(method);
    Py_DECREF(method);
  }
  if (answer == NULL) return -1;
  int truth = PyObject_IsTrue(answer);
  Py_DECREF(answer);
  return truth;
}

int onspy_torch_ask(PyObject* tensor) {
  int grad = ask(tensor, "requires_grad");
  int neg = grad < 0 ? -1 : ask(tensor, "is_neg");
  int conj = neg < 0 ? -1 : ask(tensor, "is_conj");
  if (conj < 0) return -1;
  return (grad ? ONSPY_TORCH_REQUIRES_GRAD : 0) | (neg ? ONSPY_TORCH_NEG : 0) |
         (conj ? ONSPY_TORCH_CONJ : 0);
}
