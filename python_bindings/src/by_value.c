/* Arguments that are several: a vector's numbers, a complex number's parts, the tensors
 * of an ons::ptrs; and tensors that go as a tensor map.
 *
 * A call with tensors in lists is made as one whose arguments are all the tensors, of a
 * kernel that is made up for it; what the library gets is put together again. */
#include <string.h>

#include "binding.h"

/* ---- numbers ---------------------------------------------------------------------- */

/* Room for numbers as arguments of the library's, freed after the call. */
static ons_arg* items_of(onspy_call* call, size_t count) {
  return (ons_arg*)onspy_call_extents(call, count * sizeof(ons_arg) / sizeof(int64_t));
}

static bool pass_list(onspy_call* call, size_t index, const ons_arg* items,
                      size_t count) {
  call->args[index] =
      (ons_arg){.kind = ONS_ARG_LIST, .value.items = items, .item_count = count};
  return true;
}

bool onspy_complex(onspy_call* call, size_t index, PyObject* number) {
  ons_arg* parts = items_of(call, 2);
  if (parts == NULL) return false;
  const Py_complex value = PyComplex_AsCComplex(number);
  parts[0] = (ons_arg){.kind = ONS_ARG_FLOAT, .value.f = value.real};
  parts[1] = (ons_arg){.kind = ONS_ARG_FLOAT, .value.f = value.imag};
  return pass_list(call, index, parts, 2);
}

bool onspy_vector(onspy_call* call, size_t index, PyObject* list) {
  /* A tuple of our own: __index__ of an element may change a list. */
  PyObject* numbers = PySequence_Tuple(list);
  if (numbers == NULL) return false;
  size_t count = (size_t)PyTuple_GET_SIZE(numbers);
  ons_arg* items = items_of(call, count);
  bool taken = items != NULL;
  for (size_t i = 0; taken && i < count; ++i) {
    PyObject* number = PyTuple_GET_ITEM(numbers, (Py_ssize_t)i);
    taken = onspy_scalar_from_number(call, index, number);
    items[i] = call->args[index];
  }
  Py_DECREF(numbers);
  return taken && pass_list(call, index, items, count);
}

/* ---- tensors in lists ------------------------------------------------------------- */

/* One argument as given, and where its tensors are among all. */
typedef struct part {
  PyObject* tuple; /* of a list, owned; else NULL */
  const ons_tensor_map* map;
  size_t begin, count;
} part;

struct onspy_expansion {
  part* parts;
  size_t count;
  ons_arg* args; /* what the library gets */
};

static bool is_list(PyObject* object) {
  return PyList_Check(object) || PyTuple_Check(object);
}

static bool is_expanded(const onspy_kernel* kernel, size_t index, PyObject* object) {
  uint32_t traits = onspy_traits(kernel, index);
  return ((traits & ONSPY_PARAMETER_POINTERS) && is_list(object)) ||
         ((traits & ONSPY_PARAMETER_MAP) &&
          Py_IS_TYPE(object, kernel->state->tensor_map_type));
}

bool onspy_call_is_expanded(const onspy_call* call) {
  if (!call->kernel->takes_lists) return false;
  for (size_t i = 0; i < call->count; ++i) {
    if (is_expanded(call->kernel, i, call->objects[i])) return true;
  }
  return false;
}

PyObject* onspy_first_of(const onspy_state* state, PyObject* object) {
  if (Py_IS_TYPE(object, state->tensor_map_type))
    return onspy_tensor_map_of(object, NULL);
  if (!is_list(object)) return object;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(object);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(object, i);
    if (item != Py_None) return item;
  }
  return object;
}

void onspy_expansion_locate(const onspy_expansion* expansion, size_t index,
                            size_t* out_argument, size_t* out_item) {
  size_t i = 0;
  while (i + 1 < expansion->count && expansion->parts[i + 1].begin <= index) ++i;
  *out_argument = i;
  *out_item =
      expansion->parts[i].tuple != NULL ? index - expansion->parts[i].begin : SIZE_MAX;
}

const ons_arg* onspy_expansion_args(const onspy_call* call, size_t* out_count) {
  const onspy_expansion* expansion = call->kernel->expansion;
  for (size_t i = 0; i < expansion->count; ++i) {
    const part* one = &expansion->parts[i];
    ons_arg* arg = &expansion->args[i];
    if (one->tuple != NULL) {
      *arg = (ons_arg){.kind = ONS_ARG_LIST,
                       .value.items = &call->args[one->begin],
                       .item_count = one->count};
      continue;
    }
    *arg = call->args[one->begin];
    if (one->map == NULL || arg->kind != ONS_ARG_TENSOR) continue;
    arg->kind = ONS_ARG_TENSOR_MAP;
    arg->tensor_map = one->map;
  }
  *out_count = expansion->count;
  return expansion->args;
}

/* Sets up the parts; the number of all tensors, or -1. */
static Py_ssize_t divide(const onspy_call* call, part* parts) {
  size_t total = 0;
  for (size_t i = 0; i < call->count; ++i) {
    PyObject* object = call->objects[i];
    parts[i].begin = total;
    parts[i].count = 1;
    if (!is_expanded(call->kernel, i, object)) {
      ++total;
      continue;
    }
    if (is_list(object)) {
      parts[i].tuple = PySequence_Tuple(object);
      if (parts[i].tuple == NULL) return -1;
      parts[i].count = (size_t)PyTuple_GET_SIZE(parts[i].tuple);
    } else {
      onspy_tensor_map_of(object, &parts[i].map);
    }
    total += parts[i].count;
  }
  return (Py_ssize_t)total;
}

static void fill(const onspy_call* call, const part* parts, onspy_kernel* made_up,
                 PyObject** objects) {
  for (size_t i = 0; i < call->count; ++i) {
    const part* one = &parts[i];
    for (size_t j = 0; j < one->count; ++j) {
      size_t at = one->begin + j;
      PyObject* object = call->objects[i];
      if (one->map != NULL) object = onspy_tensor_map_of(object, NULL);
      if (one->tuple != NULL) object = PyTuple_GET_ITEM(one->tuple, (Py_ssize_t)j);
      objects[at] = object;
      if (i >= call->kernel->slot_count) continue;
      made_up->slots[at].traits = call->kernel->slots[i].traits;
      if (one->map != NULL && (one->map->flags & ONS_TENSOR_MAP_WRITE)) {
        made_up->slots[at].traits |= ONSPY_PARAMETER_WRITTEN;
      }
      made_up->parameters[at] = call->kernel->parameters[i];
    }
  }
}

static PyObject* call_divided(const onspy_call* call, onspy_expansion* expansion,
                              size_t total) {
  size_t per_tensor = sizeof(PyObject*) + sizeof(onspy_slot) + sizeof(ons_parameter);
  char* memory = PyMem_Calloc(total + 1, per_tensor);
  if (memory == NULL) return PyErr_NoMemory();
  onspy_kernel made_up = *call->kernel;
  PyObject** objects = (PyObject**)memory;
  made_up.slots = (onspy_slot*)(objects + total);
  made_up.parameters = (ons_parameter*)(made_up.slots + total);
  made_up.slot_count = total;
  made_up.takes_lists = false;
  made_up.expansion = expansion;
  fill(call, expansion->parts, &made_up, objects);
  PyObject* result =
      call->update != NULL
          ? onspy_kernel_update(&made_up, call->launch, call->update, objects, total)
          : onspy_kernel_call(&made_up, call->launch, objects, total);
  PyMem_Free(memory);
  return result;
}

PyObject* onspy_call_expanded(const onspy_call* call) {
  char* memory = PyMem_Calloc(call->count, sizeof(part) + sizeof(ons_arg));
  if (memory == NULL) return PyErr_NoMemory();
  onspy_expansion expansion = {.parts = (part*)memory, .count = call->count};
  expansion.args = (ons_arg*)(expansion.parts + call->count);
  Py_ssize_t total = divide(call, expansion.parts);
  PyObject* result = total >= 0 ? call_divided(call, &expansion, (size_t)total) : NULL;
  for (size_t i = 0; i < call->count; ++i) Py_XDECREF(expansion.parts[i].tuple);
  PyMem_Free(memory);
  return result;
}
