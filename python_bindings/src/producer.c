/* Which protocol a type speaks, found out once per exact type.
 *
 * In order: built-in numbers, the DLPack exchange table, the library-specific cases,
 * __cuda_array_interface__ and __dlpack__, number protocols, the buffer protocol. */
#include <string.h>

#include "binding.h"

/* ---- who made the type ------------------------------------------------------------ */

/* Is |base| the class |name| of the package |package|? Nothing is imported for it. */
static bool is_class(onspy_state* state, PyTypeObject* base, const char* package,
                     const char* name) {
  const char* dot = strrchr(base->tp_name, '.');
  if (strcmp(dot != NULL ? dot + 1 : base->tp_name, name) != 0) return false;
  PyObject* module = PyObject_GetAttr((PyObject*)base, state->str_module);
  const char* text =
      module != NULL && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : NULL;
  size_t bytes = strlen(package);
  bool found = text != NULL && strncmp(text, package, bytes) == 0 &&
               (text[bytes] == '\0' || text[bytes] == '.');
  Py_XDECREF(module);
  PyErr_Clear();
  return found;
}

/* The class of that name among |type| and its bases (borrowed), or NULL. */
static PyTypeObject* find_base(onspy_state* state, PyTypeObject* type,
                               const char* package, const char* name) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro != NULL && i < PyTuple_GET_SIZE(mro); ++i) {
    PyTypeObject* base = (PyTypeObject*)PyTuple_GET_ITEM(mro, i);
    if (is_class(state, base, package, name)) return base;
  }
  return NULL;
}

static onspy_library library_of(onspy_state* state, PyTypeObject* type) {
  static const struct {
    const char* package;
    const char* name;
    onspy_library library;
  } known[] = {{"torch", "Tensor", ONSPY_LIBRARY_TORCH},
               {"numpy", "ndarray", ONSPY_LIBRARY_NUMPY},
               {"cupy", "ndarray", ONSPY_LIBRARY_CUPY},
               {"jaxlib", "ArrayImpl", ONSPY_LIBRARY_JAX},
               {"jax", "ArrayImpl", ONSPY_LIBRARY_JAX},
               {"numba", "DeviceNDArrayBase", ONSPY_LIBRARY_NUMBA}};
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (find_base(state, type, known[i].package, known[i].name) != NULL)
      return known[i].library;
  }
  return ONSPY_LIBRARY_OTHER;
}

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

static const DLPackExchangeAPI* exchange_of(onspy_state* state,
                                            const onspy_producer* producer) {
  PyObject* capsule =
      PyObject_GetAttr((PyObject*)producer->type, state->str_exchange_api);
  const DLPackExchangeAPI* table = NULL;
  if (capsule != NULL && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    table = walk_versions(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  }
  Py_XDECREF(capsule);
  PyErr_Clear();
  if (table == NULL || (table->dltensor_from_py_object_no_sync == NULL &&
                        table->managed_tensor_from_py_object_no_sync == NULL)) {
    return NULL;
  }
  /* Without a current stream __dlpack__, which orders, says more than the table. */
  return table->current_work_stream == NULL && producer->has_dlpack ? NULL : table;
}

/* cuda.core's views answer 0 for the current stream because they have none. */
static bool table_is_trusted(onspy_state* state, PyTypeObject* type) {
  return find_base(state, type, "cuda", "StridedMemoryView") == NULL;
}

/* ---- CuPy's current stream -------------------------------------------------------- */

/* CuPy's Cython-level entry; its stream is that of CuPy's current device, so that it is
 * of use where there is but one. */
static intptr_t (*find_cupy_stream(void))(void) {
  intptr_t (*entry)(void) = NULL;
  PyObject* stream = PyImport_ImportModule("cupy.cuda.stream");
  PyObject* table =
      stream != NULL ? PyObject_GetAttrString(stream, "__pyx_capi__") : NULL;
  PyObject* capsule =
      table != NULL ? PyMapping_GetItemString(table, "get_current_stream_ptr") : NULL;
  PyObject* runtime = PyImport_ImportModule("cupy.cuda.runtime");
  PyObject* count =
      runtime != NULL ? PyObject_CallMethod(runtime, "getDeviceCount", NULL) : NULL;
  if (count != NULL && PyLong_AsLong(count) == 1 && capsule != NULL &&
      PyCapsule_IsValid(capsule, "intptr_t (void)")) {
    void* pointer = PyCapsule_GetPointer(capsule, "intptr_t (void)");
    memcpy(&entry, &pointer, sizeof entry);
  }
  Py_XDECREF(count);
  Py_XDECREF(runtime);
  Py_XDECREF(capsule);
  Py_XDECREF(table);
  Py_XDECREF(stream);
  PyErr_Clear();
  return entry;
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

static onspy_kind kind_of(onspy_state* state, onspy_producer* producer) {
  PyTypeObject* type = producer->type;
  /* A masked array's memory holds values that the array says are not there; NumPy's text
   * and times, and tracers, have number protocols without being numbers. */
  static const char* const refused[][2] = {
      {"numpy", "MaskedArray"}, {"numpy", "character"},   {"numpy", "datetime64"},
      {"jax", "Tracer"},        {"numpy", "timedelta64"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
    if (find_base(state, type, refused[i][0], refused[i][1]) != NULL)
      return ONSPY_KIND_UNKNOWN;
  }
  if (producer->library == ONSPY_LIBRARY_NUMPY) return ONSPY_KIND_BUFFER;
  producer->has_dlpack = has_attribute(type, state->str_dlpack) &&
                         has_attribute(type, state->str_dlpack_device);
  if (table_is_trusted(state, type)) producer->exchange = exchange_of(state, producer);
  if (producer->exchange != NULL) {
    producer->borrow = producer->exchange->dltensor_from_py_object_no_sync;
    producer->work_stream = producer->exchange->current_work_stream;
  }
  if (producer->library == ONSPY_LIBRARY_TORCH) {
    onspy_torch_find(find_base(state, type, "torch", "Tensor"), &producer->torch);
  }
  if (producer->exchange != NULL) return ONSPY_KIND_EXCHANGE;
  if (producer->library == ONSPY_LIBRARY_CUPY) producer->cupy_stream = find_cupy_stream();
  bool named = producer->library != ONSPY_LIBRARY_OTHER &&
               producer->library != ONSPY_LIBRARY_NUMBA && producer->has_dlpack;
  if (!named && has_attribute(type, state->str_array_interface)) {
    return ONSPY_KIND_ARRAY_INTERFACE;
  }
  if (find_base(state, type, "numpy", "void") != NULL) return ONSPY_KIND_BUFFER;
  if (find_base(state, type, "numpy", "generic") != NULL) return ONSPY_KIND_NUMBER;
  if (producer->has_dlpack) return ONSPY_KIND_DLPACK;
  if (is_number(type)) return ONSPY_KIND_NUMBER;
  if (type->tp_as_buffer != NULL && type->tp_as_buffer->bf_getbuffer != NULL) {
    return ONSPY_KIND_BUFFER;
  }
  return ONSPY_KIND_UNKNOWN;
}

static void classify(onspy_state* state, PyTypeObject* type,
                     onspy_producer* out_producer) {
  *out_producer = (onspy_producer){.type = type};
  if (classify_builtin(state, out_producer)) return;
  out_producer->library = library_of(state, type);
  out_producer->kind = kind_of(state, out_producer);
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
  if (state->producer_count >= ONSPY_PRODUCER_LIMIT) return scratch;
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
