/* Which protocol a type speaks, found out once per exact type.
 *
 * In order: built-in numbers, the DLPack exchange table, __cuda_array_interface__,
 * __dlpack__, Arrow's device arrays, number protocols, the buffer protocol; fewer where
 * the library is known (adapter.c) or registered (register.c). */
#include "binding.h"

static bool has_attribute(PyTypeObject* type, PyObject* name) {
  PyObject* found = PyObject_GetAttr((PyObject*)type, name);
  PyErr_Clear();
  Py_XDECREF(found);
  return found != NULL;
}

/* ---- the exchange table ----------------------------------------------------------- */

/* The newest table of our major version, or NULL. Longer chains than this are broken
 * ones. */
static const DLPackExchangeAPI* walk_versions(const DLPackExchangeAPIHeader* header) {
  for (int i = 0; header != NULL && i < 16; ++i) {
    if (header->version.major == DLPACK_MAJOR_VERSION)
      return (const DLPackExchangeAPI*)header;
    if (header->version.major < DLPACK_MAJOR_VERSION) return NULL;
    header = header->prev_api;
  }
  return NULL;
}

static const DLPackExchangeAPI* table_named(PyTypeObject* type, PyObject* name) {
  PyObject* capsule = PyObject_GetAttr((PyObject*)type, name);
  const DLPackExchangeAPI* table = NULL;
  if (capsule != NULL && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    table = walk_versions(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  }
  Py_XDECREF(capsule);
  PyErr_Clear();
  return table;
}

static const DLPackExchangeAPI* exchange_of(onspy_state* state,
                                            const onspy_producer* producer) {
  const DLPackExchangeAPI* table = table_named(producer->type, state->str_exchange_api);
  if (table == NULL) table = table_named(producer->type, state->str_old_exchange_api);
  if (table == NULL || (table->dltensor_from_py_object_no_sync == NULL &&
                        table->managed_tensor_from_py_object_no_sync == NULL)) {
    return NULL;
  }
  if (producer->library == ONSPY_LIBRARY_TORCH && onspy_torch_table_is_wrong(state)) {
    return NULL;
  }
  /* Without a current stream __dlpack__, which orders, says more than the table. */
  bool tells = table->current_work_stream != NULL || producer->stream_of != NULL;
  return tells || !producer->has_dlpack ? table : NULL;
}

/* ---- classification --------------------------------------------------------------- */

static bool classify_builtin(onspy_state* state, onspy_producer* producer) {
  const PyTypeObject* type = producer->type;
  if (type == &PyFloat_Type) {
    producer->kind = ONSPY_KIND_FLOAT;
  } else if (type == &PyLong_Type) {
    producer->kind = ONSPY_KIND_INT;
  } else if (type == &PyBool_Type) {
    producer->kind = ONSPY_KIND_BOOL;
  } else if (type == Py_TYPE(Py_None)) {
    producer->kind = ONSPY_KIND_NONE;
  } else if (type == state->output_type) {
    producer->kind = ONSPY_KIND_OUTPUT;
  } else if (type == state->tensor_type) {
    producer->kind = ONSPY_KIND_TENSOR;
  } else if (type == &PyBytes_Type || type == &PyByteArray_Type ||
             type == &PyMemoryView_Type) {
    producer->kind = ONSPY_KIND_BYTES;
  } else {
    return false;
  }
  return true;
}

static bool is_number(const PyTypeObject* type) {
  const PyNumberMethods* methods = type->tp_as_number;
  return methods != NULL && (methods->nb_index != NULL || methods->nb_float != NULL);
}

/* A masked array's memory holds values that the array says are not there; NumPy's text
 * and times, and tracers, have number protocols without being numbers. */
static bool is_refused(const onspy_state* state, PyTypeObject* type) {
  static const char* const refused[][2] = {
      {"numpy", "MaskedArray"}, {"numpy", "character"},   {"numpy", "datetime64"},
      {"jax", "Tracer"},        {"numpy", "timedelta64"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
    if (onspy_find_base(state, type, refused[i][0], refused[i][1]) != NULL) return true;
  }
  return false;
}

static onspy_kind kind_of(onspy_state* state, onspy_producer* producer,
                          uint32_t protocols) {
  PyTypeObject* type = producer->type;
  if (is_refused(state, type)) return ONSPY_KIND_UNKNOWN;
  if (producer->library == ONSPY_LIBRARY_NUMPY) return ONSPY_KIND_BUFFER;
  producer->has_dlpack = (protocols & ONSPY_PROTOCOL_DLPACK) &&
                         has_attribute(type, state->str_dlpack) &&
                         has_attribute(type, state->str_dlpack_device);
  if (protocols & ONSPY_PROTOCOL_EXCHANGE) {
    producer->exchange = exchange_of(state, producer);
  }
  if (producer->exchange != NULL) return ONSPY_KIND_EXCHANGE;
  if ((protocols & ONSPY_PROTOCOL_ARRAY_INTERFACE) &&
      has_attribute(type, state->str_array_interface)) {
    return ONSPY_KIND_ARRAY_INTERFACE;
  }
  if (onspy_find_base(state, type, "numpy", "void") != NULL) return ONSPY_KIND_BUFFER;
  if (onspy_find_base(state, type, "numpy", "generic") != NULL) return ONSPY_KIND_NUMBER;
  if (producer->has_dlpack) return ONSPY_KIND_DLPACK;
  if ((protocols & ONSPY_PROTOCOL_ARROW) &&
      has_attribute(type, state->str_arrow_device_array)) {
    return ONSPY_KIND_ARROW;
  }
  if (is_number(type)) return ONSPY_KIND_NUMBER;
  if (type->tp_as_buffer != NULL && type->tp_as_buffer->bf_getbuffer != NULL) {
    return ONSPY_KIND_BUFFER;
  }
  return ONSPY_KIND_UNKNOWN;
}

/* The function that tells the stream of the library's arrays (borrowed), where neither
 * the caller has registered one nor the exchange table has one. */
static PyObject* stream_helper(onspy_state* state, const char* name) {
  PyObject* helpers = onspy_helpers(state);
  PyObject* function = helpers != NULL ? PyObject_GetAttrString(helpers, name) : NULL;
  bool kept = function != NULL && onspy_keep(state, function);
  Py_XDECREF(function);
  PyErr_Clear();
  return kept ? function : NULL;
}

static void classify(onspy_state* state, PyTypeObject* type,
                     onspy_producer* out_producer) {
  onspy_producer* producer = out_producer;
  *producer = (onspy_producer){.type = type};
  if (classify_builtin(state, producer)) return;
  const onspy_adapter* adapter = onspy_adapter_find(state, type);
  uint32_t protocols = adapter->protocols;
  producer->library = adapter->library;
  producer->traits = adapter->traits;
  onspy_register_look_up(state, type, producer, &protocols);
  producer->kind = kind_of(state, producer, protocols);
  if (producer->library == ONSPY_LIBRARY_TORCH) {
    onspy_torch_find(onspy_find_base(state, type, "torch", "Tensor"), &producer->torch);
  }
  if (producer->stream_of == NULL && producer->exchange == NULL) {
    if (producer->library == ONSPY_LIBRARY_CUPY)
      producer->cupy_stream = onspy_cupy_entry();
    if (producer->cupy_stream == NULL && adapter->stream != NULL) {
      producer->stream_of = stream_helper(state, adapter->stream);
    }
  }
  /* The fast way knows nothing but the table. */
  if (producer->exchange != NULL && producer->stream_of == NULL &&
      producer->traits == 0) {
    producer->borrow = producer->exchange->dltensor_from_py_object_no_sync;
    producer->work_stream = producer->exchange->current_work_stream;
  }
}

/* ---- the table -------------------------------------------------------------------- */

static size_t slot_of(const PyTypeObject* type) {
  uint64_t bits = (uint64_t)(uintptr_t)type >> 4;
  return (size_t)((bits * UINT64_C(0x9E3779B97F4A7C15)) >> 40) &
         (ONSPY_PRODUCER_SLOTS - 1);
}

const onspy_producer* onspy_producer_find(onspy_state* state, PyTypeObject* type,
                                          onspy_producer* scratch) {
  size_t slot = slot_of(type);
  for (; state->producers[slot] != NULL; slot = (slot + 1) & (ONSPY_PRODUCER_SLOTS - 1)) {
    if (state->producers[slot]->type == type) return state->producers[slot];
  }
  classify(state, type, scratch);
  bool is_known = scratch->library != ONSPY_LIBRARY_OTHER;
  if (state->producer_count >= (is_known ? ONSPY_KNOWN_LIMIT : ONSPY_PRODUCER_LIMIT))
    return scratch;
  onspy_producer* entry = PyMem_Malloc(sizeof *entry);
  if (entry == NULL) return (onspy_producer*)PyErr_NoMemory();
  *entry = *scratch;
  Py_INCREF(type);
  /* Classifying may have run Python code, and that have filled the slot. */
  while (state->producers[slot] != NULL) slot = (slot + 1) & (ONSPY_PRODUCER_SLOTS - 1);
  state->producers[slot] = entry;
  ++state->producer_count;
  return entry;
}

void onspy_producer_forget(onspy_state* state, PyTypeObject* base) {
  for (size_t i = 0; i < ONSPY_PRODUCER_SLOTS; ++i) {
    onspy_producer* entry = state->producers[i];
    if (entry == NULL || !PyType_IsSubtype(entry->type, base)) continue;
    onspy_producer fresh;
    classify(state, entry->type, &fresh);
    *entry = fresh;
  }
}

bool onspy_type_is_builtin(onspy_state* state, PyTypeObject* type) {
  onspy_producer producer = {.type = type};
  return classify_builtin(state, &producer);
}

void onspy_producer_clear(onspy_state* state) {
  for (size_t i = 0; i < ONSPY_PRODUCER_SLOTS; ++i) {
    if (state->producers[i] == NULL) continue;
    Py_DECREF(state->producers[i]->type);
    PyMem_Free(state->producers[i]);
    state->producers[i] = NULL;
  }
  state->producer_count = 0;
}

int onspy_producer_traverse(onspy_state* state, visitproc visit, void* arg) {
  for (size_t i = 0; i < ONSPY_PRODUCER_SLOTS; ++i) {
    if (state->producers[i] != NULL) Py_VISIT((PyObject*)state->producers[i]->type);
  }
  return 0;
}
