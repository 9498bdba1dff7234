/* A programmable DLPack producer for tests.
 *
 * make_type(slot, ...) gives a type with an exchange table of its own; instances describe
 * a tensor field by field, sensible or not. What a table's functions cannot learn from an
 * instance is kept per slot: the stream of each device, and who allocates. What is handed
 * over keeps the owner of its instance. Counters say what was called, and how often each
 * tensor was deleted. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "onstream/dlpack.h"

enum { SLOTS = 4, DEVICES = 8, MAX_NDIM = 8 };

static struct slot {
  void* streams[DEVICES];
  int stream_fails; /* 2: without an exception */
  PyObject* allocate;
  long borrows, takes, allocations, queries, imports;
} slots[SLOTS];

static long handed_out, deleted;

typedef struct {
  PyObject_HEAD int slot;
  unsigned long long data;
  int device_type, device_id, ndim;
  int code, bits, lanes;
  int64_t shape[MAX_NDIM], strides[MAX_NDIM];
  int has_shape, has_strides;
  unsigned long long byte_offset, flags;
  unsigned int major;
  unsigned int minor;
  int fail; /* the borrowing and owning slots raise; 2: fail without an exception */
  int null_deleter;
  PyObject* owner; /* what keeps the memory */
} Tensor;

/* ---- managed tensors -------------------------------------------------------------- */

typedef struct {
  DLManagedTensorVersioned versioned;
  DLManagedTensor legacy;
  int64_t shape[MAX_NDIM], strides[MAX_NDIM];
  void* memory; /* of an allocated one */
  PyObject* owner;
} Managed;

/* On any thread, with or without the GIL. */
static void delete_managed(Managed* managed) {
  ++deleted;
  if (managed->owner != NULL && Py_IsInitialized()) {
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF(managed->owner);
    PyGILState_Release(gil);
  }
  free(managed->memory);
  free(managed);
}

static void delete_versioned(DLManagedTensorVersioned* self) {
  delete_managed(self->manager_ctx);
}

static void delete_legacy(DLManagedTensor* self) { delete_managed(self->manager_ctx); }

static void fill(const Tensor* self, DLTensor* out, int64_t* shape, int64_t* strides) {
  memcpy(shape, self->shape, sizeof self->shape);
  memcpy(strides, self->strides, sizeof self->strides);
  out->data = (void*)(uintptr_t)self->data;
  out->device.device_type = (DLDeviceType)self->device_type;
  out->device.device_id = self->device_id;
  out->ndim = self->ndim;
  out->dtype.code = (uint8_t)self->code;
  out->dtype.bits = (uint8_t)self->bits;
  out->dtype.lanes = (uint16_t)self->lanes;
  out->shape = self->has_shape ? shape : NULL;
  out->strides = self->has_strides ? strides : NULL;
  out->byte_offset = self->byte_offset;
}

static Managed* make_managed(const Tensor* self) {
  Managed* managed = calloc(1, sizeof *managed);
  ++handed_out;
  fill(self, &managed->versioned.dl_tensor, managed->shape, managed->strides);
  managed->legacy.dl_tensor = managed->versioned.dl_tensor;
  managed->versioned.version.major = self->major;
  managed->versioned.version.minor = self->minor;
  managed->versioned.flags = self->flags;
  managed->versioned.manager_ctx = managed->legacy.manager_ctx = managed;
  managed->owner = Py_XNewRef(self->owner);
  managed->versioned.deleter = self->null_deleter ? NULL : delete_versioned;
  managed->legacy.deleter = self->null_deleter ? NULL : delete_legacy;
  if (self->major != 1) {
    /* Of a foreign major version nothing but the deleter may be used. */
    memset(&managed->versioned.dl_tensor, 0xff, sizeof(DLTensor));
  }
  return managed;
}

/* ---- the table's slots ------------------------------------------------------------ */

static int fail(const Tensor* self) {
  if (self->fail == 1) PyErr_SetString(PyExc_BufferError, "told to fail");
  return -1;
}

static int borrow(void* object, DLTensor* out) {
  Tensor* self = object;
  ++slots[self->slot].borrows;
  if (self->fail) return fail(self);
  fill(self, out, self->shape, self->strides);
  return 0;
}

static int take(void* object, DLManagedTensorVersioned** out) {
  Tensor* self = object;
  ++slots[self->slot].takes;
  if (self->fail) return fail(self);
  *out = &make_managed(self)->versioned;
  return 0;
}

static int query(int slot, int device, void** out) {
  ++slots[slot].queries;
  if (slots[slot].stream_fails) {
    if (slots[slot].stream_fails == 1) {
      PyErr_SetString(PyExc_RuntimeError, "no stream today");
    }
    return -1;
  }
  *out = slots[slot].streams[device];
  return 0;
}

static PyTypeObject* slot_types[SLOTS]; /* the newest type of each slot, for import */

static int allocate(int slot, DLTensor* prototype, DLManagedTensorVersioned** out) {
  ++slots[slot].allocations;
  Tensor like = {.has_shape = 1, .major = 1, .ndim = prototype->ndim};
  like.device_type = (int)prototype->device.device_type;
  like.device_id = prototype->device.device_id;
  like.code = prototype->dtype.code;
  like.bits = prototype->dtype.bits;
  like.lanes = prototype->dtype.lanes;
  size_t count = 1;
  for (int i = 0; i < prototype->ndim; ++i) {
    like.shape[i] = prototype->shape[i];
    count *= (size_t)prototype->shape[i];
  }
  if (slots[slot].allocate != NULL) {
    PyObject* pair = PyObject_CallFunction(slots[slot].allocate, "in", like.device_id,
                                           (Py_ssize_t)(count * (size_t)like.bits / 8));
    if (pair == NULL || !PyArg_ParseTuple(pair, "KO", &like.data, &like.owner)) {
      Py_XDECREF(pair);
      return -1;
    }
    *out = &make_managed(&like)->versioned;
    Py_DECREF(pair);
    return 0;
  }
  void* memory = calloc(count + 1, 16);
  like.data = (unsigned long long)(uintptr_t)memory;
  Managed* managed = make_managed(&like);
  managed->memory = memory;
  *out = &managed->versioned;
  return 0;
}

static void drop(PyObject* capsule) {
  DLManagedTensorVersioned* managed = PyCapsule_GetPointer(capsule, "kept");
  managed->deleter(managed);
}

static int import(int slot, DLManagedTensorVersioned* managed, void** out) {
  ++slots[slot].imports;
  Tensor* self = (Tensor*)slot_types[slot]->tp_alloc(slot_types[slot], 0);
  if (self == NULL) return -1;
  const DLTensor* tensor = &managed->dl_tensor;
  self->slot = slot;
  self->data = (unsigned long long)(uintptr_t)tensor->data;
  self->device_type = (int)tensor->device.device_type;
  self->device_id = tensor->device.device_id;
  self->ndim = tensor->ndim;
  self->code = tensor->dtype.code;
  self->bits = tensor->dtype.bits;
  self->lanes = tensor->dtype.lanes;
  self->has_shape = self->major = 1;
  memcpy(self->shape, tensor->shape, (size_t)tensor->ndim * sizeof *tensor->shape);
  self->owner = PyCapsule_New(managed, "kept", drop);
  *out = self;
  return self->owner != NULL ? 0 : -1;
}

typedef void (*set_error)(void*, const char*, const char*);

/* One set of slots with a number each, as a table's functions get no context. */
#define SLOT(n)                                                                \
  static int query_##n(DLDeviceType type, int32_t id, void** out) {            \
    (void)type;                                                                \
    return query(n, id, out);                                                  \
  }                                                                            \
  static int allocate_##n(DLTensor* prototype, DLManagedTensorVersioned** out, \
                          void* context, set_error set) {                      \
    (void)context, (void)set;                                                  \
    return allocate(n, prototype, out);                                        \
  }                                                                            \
  static int import_##n(DLManagedTensorVersioned* managed, void** out) {       \
    return import(n, managed, out);                                            \
  }
SLOT(0)
SLOT(1)
SLOT(2)
SLOT(3)

static const DLPackCurrentWorkStream queries[] = {query_0, query_1, query_2, query_3};
static const DLPackManagedTensorAllocator allocators[] = {allocate_0, allocate_1,
                                                          allocate_2, allocate_3};
static const DLPackManagedTensorToPyObjectNoSync imports[] = {import_0, import_1,
                                                              import_2, import_3};

/* ---- the types -------------------------------------------------------------------- */

static int read_extents(PyObject* tuple, int64_t* out, int* out_given, int* out_count) {
  *out_given = tuple != Py_None;
  if (tuple == Py_None) return 0;
  PyObject* fast = PySequence_Tuple(tuple);
  if (fast == NULL) return -1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(fast) && i < MAX_NDIM; ++i) {
    out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(fast, i));
  }
  if (out_count != NULL) *out_count = (int)PyTuple_GET_SIZE(fast);
  Py_DECREF(fast);
  return PyErr_Occurred() ? -1 : 0;
}

static int tensor_init(PyObject* object, PyObject* args, PyObject* kwargs) {
  Tensor* self = (Tensor*)object;
  static char* keywords[] = {"data",   "shape", "dtype",        "strides",
                             "device", "flags", "byte_offset",  "major",
                             "fail",   "owner", "null_deleter", NULL};
  PyObject *shape = Py_None, *strides = Py_None, *owner = NULL;
  self->code = kDLFloat;
  self->bits = 32;
  self->lanes = self->device_type = 1;
  self->major = 1;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "KO|(iii)O(ii)KKIpOp", keywords, &self->data, &shape, &self->code,
          &self->bits, &self->lanes, &strides, &self->device_type, &self->device_id,
          &self->flags, &self->byte_offset, &self->major, &self->fail, &owner,
          &self->null_deleter)) {
    return -1;
  }
  Py_XINCREF(owner);
  Py_XSETREF(self->owner, owner);
  PyObject* slot = PyObject_GetAttrString((PyObject*)Py_TYPE(self), "slot");
  if (slot == NULL) return -1;
  self->slot = (int)PyLong_AsLong(slot);
  Py_DECREF(slot);
  return read_extents(shape, self->shape, &self->has_shape, &self->ndim) < 0 ||
                 read_extents(strides, self->strides, &self->has_strides, NULL) < 0
             ? -1
             : 0;
}

static void tensor_dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Py_XDECREF(((Tensor*)object)->owner);
  type->tp_free(object);
  Py_DECREF(type);
}

static PyMemberDef tensor_members[] = {
    {"data", T_ULONGLONG, offsetof(Tensor, data), 0, NULL},
    {"owner", T_OBJECT, offsetof(Tensor, owner), 0, NULL},
    {"fail", T_INT, offsetof(Tensor, fail), 0, NULL},
    {"minor", T_UINT, offsetof(Tensor, minor), 0, NULL},
    {"ndim", T_INT, offsetof(Tensor, ndim), 0, NULL},
    {"device_type", T_INT, offsetof(Tensor, device_type), 0, NULL},
    {"device_id", T_INT, offsetof(Tensor, device_id), 0, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot tensor_slots[] = {{Py_tp_init, tensor_init},
                                     {Py_tp_dealloc, tensor_dealloc},
                                     {Py_tp_members, tensor_members},
                                     {0, NULL}};

static PyType_Spec tensor_spec = {.name = "producer.Tensor",
                                  .basicsize = sizeof(Tensor),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                  .slots = tensor_slots};

static int is_null(PyObject* names, const char* name) {
  PyObject* text = PyUnicode_FromString(name);
  int found = PySequence_Contains(names, text);
  Py_DECREF(text);
  return found == 1;
}

/* make_type(slot, null=(), newer=0, major=1, capsule=True): `null` names the slots to
 * leave out, `newer` puts so many tables of major version 2 and up in front. */
static PyObject* make_type(PyObject* module, PyObject* args, PyObject* kwargs) {
  (void)module;
  static char* keywords[] = {"slot", "null", "newer", "major", "capsule", NULL};
  int slot, newer = 0, major = 1, with_capsule = 1;
  PyObject* null = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|Oiip", keywords, &slot, &null, &newer,
                                   &major, &with_capsule)) {
    return NULL;
  }
  PyObject* none = PyTuple_New(0);
  if (null == NULL) null = none;
  DLPackExchangeAPI* table =
      calloc(1, sizeof *table); /* for ever, as the protocol asks */
  table->header.version.major = (uint32_t)major;
  if (!is_null(null, "borrow")) table->dltensor_from_py_object_no_sync = borrow;
  if (!is_null(null, "take")) table->managed_tensor_from_py_object_no_sync = take;
  if (!is_null(null, "stream")) table->current_work_stream = queries[slot];
  if (!is_null(null, "allocate")) table->managed_tensor_allocator = allocators[slot];
  if (!is_null(null, "import"))
    table->managed_tensor_to_py_object_no_sync = imports[slot];
  Py_DECREF(none);
  for (int i = 0; i < newer; ++i) {
    /* Anything but the header of a newer table would be called at a wild address. */
    DLPackExchangeAPI* front = malloc(sizeof *front);
    memset(front, 0xff, sizeof *front);
    front->header.version.major = (uint32_t)(major + 1 + i);
    front->header.prev_api = &table->header;
    table = front;
  }
  PyObject* type = PyType_FromSpec(&tensor_spec);
  PyObject* capsule = PyCapsule_New(table, "dlpack_exchange_api", NULL);
  PyObject* number = PyLong_FromLong(slot);
  if (with_capsule) PyObject_SetAttrString(type, "__dlpack_c_exchange_api__", capsule);
  PyObject_SetAttrString(type, "slot", number);
  Py_XSETREF(slot_types[slot], (PyTypeObject*)Py_NewRef(type));
  Py_DECREF(number);
  Py_DECREF(capsule);
  return type;
}

/* ---- capsules --------------------------------------------------------------------- */

static void destroy_unused(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    DLManagedTensor* managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (managed->deleter != NULL) managed->deleter(managed);
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    DLManagedTensorVersioned* managed =
        PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed->deleter != NULL) managed->deleter(managed);
  }
}

static PyObject* capsule(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* tensor;
  int versioned;
  if (!PyArg_ParseTuple(args, "Op", &tensor, &versioned)) return NULL;
  Managed* managed = make_managed((Tensor*)tensor);
  if (versioned)
    return PyCapsule_New(&managed->versioned, "dltensor_versioned", destroy_unused);
  return PyCapsule_New(&managed->legacy, "dltensor", destroy_unused);
}

static PyObject* capsule_name(PyObject* module, PyObject* object) {
  (void)module;
  return PyUnicode_FromString(PyCapsule_GetName(object));
}

/* ---- Arrow's C device interface, by its specification ------------------------------ */

struct arrow_schema {
  const char *format, *name, *metadata;
  int64_t flags, n_children;
  void *children, *dictionary;
  void (*release)(struct arrow_schema*);
  void* private_data;
};

struct arrow_array {
  int64_t length, null_count, offset, n_buffers, n_children;
  const void** buffers;
  void *children, *dictionary;
  void (*release)(struct arrow_array*);
  void* private_data;
};

struct arrow_device_array {
  struct arrow_array array;
  int64_t device_id;
  int32_t device_type;
  void* sync_event;
  int64_t reserved[3];
};

/* What an array and its consumer refer to. */
typedef struct {
  Managed* managed;
  const void* buffers[2];
  void* event;
} ArrowParts;

static void release_schema(struct arrow_schema* schema) { schema->release = NULL; }

static void release_arrow(struct arrow_array* array) {
  ArrowParts* parts = array->private_data;
  array->release = NULL;
  delete_managed(parts->managed);
  free(parts);
}

static void destroy_schema(PyObject* capsule) {
  free(PyCapsule_GetPointer(capsule, "arrow_schema"));
}

static void destroy_arrow(PyObject* capsule) {
  struct arrow_device_array* whole = PyCapsule_GetPointer(capsule, "arrow_device_array");
  if (whole->array.release != NULL) whole->array.release(&whole->array);
  free(whole);
}

/* arrow(tensor, event): the pair of capsules; event 0 is none. */
static PyObject* arrow(PyObject* module, PyObject* args) {
  (void)module;
  PyObject* object;
  unsigned long long event;
  if (!PyArg_ParseTuple(args, "OK", &object, &event)) return NULL;
  Tensor* tensor = (Tensor*)object;
  ArrowParts* parts = calloc(1, sizeof *parts);
  struct arrow_schema* schema = calloc(1, sizeof *schema);
  struct arrow_device_array* whole = calloc(1, sizeof *whole);
  *parts = (ArrowParts){make_managed(tensor),
                        {NULL, (const void*)(uintptr_t)tensor->data},
                        (void*)(uintptr_t)event};
  *schema = (struct arrow_schema){.format = "f", .name = "", .release = release_schema};
  *whole = (struct arrow_device_array){.device_id = tensor->device_id,
                                       .device_type = tensor->device_type,
                                       .sync_event = event ? &parts->event : NULL};
  whole->array = (struct arrow_array){.length = tensor->shape[0],
                                      .n_buffers = 2,
                                      .buffers = parts->buffers,
                                      .release = release_arrow,
                                      .private_data = parts};
  return Py_BuildValue("NN", PyCapsule_New(schema, "arrow_schema", destroy_schema),
                       PyCapsule_New(whole, "arrow_device_array", destroy_arrow));
}

/* ---- control ---------------------------------------------------------------------- */

/* set_stream(slot, stream, fails=0, device=-1): of one device, or of all. */
static PyObject* set_stream(PyObject* module, PyObject* args) {
  (void)module;
  int slot, fails = 0, device = -1;
  unsigned long long stream;
  if (!PyArg_ParseTuple(args, "iK|ii", &slot, &stream, &fails, &device)) return NULL;
  for (int i = 0; i < DEVICES; ++i) {
    if (device < 0 || device == i) slots[slot].streams[i] = (void*)(uintptr_t)stream;
  }
  slots[slot].stream_fails = fails;
  Py_RETURN_NONE;
}

/* set_allocator(slot, function): function(device, bytes) gives (address, owner). */
static PyObject* set_allocator(PyObject* module, PyObject* args) {
  (void)module;
  int slot;
  PyObject* function;
  if (!PyArg_ParseTuple(args, "iO", &slot, &function)) return NULL;
  Py_XSETREF(slots[slot].allocate, function != Py_None ? Py_NewRef(function) : NULL);
  Py_RETURN_NONE;
}

static PyObject* counts(PyObject* module, PyObject* args) {
  (void)module;
  int slot = 0;
  if (!PyArg_ParseTuple(args, "|i", &slot)) return NULL;
  const struct slot* s = &slots[slot];
  return Py_BuildValue("{s:l,s:l,s:l,s:l,s:l,s:l,s:l}", "borrows", s->borrows, "takes",
                       s->takes, "allocations", s->allocations, "queries", s->queries,
                       "imports", s->imports, "handed_out", handed_out, "deleted",
                       deleted);
}

static PyObject* reset(PyObject* module, PyObject* ignored) {
  (void)module, (void)ignored;
  for (int i = 0; i < SLOTS; ++i) Py_CLEAR(slots[i].allocate);
  memset(slots, 0, sizeof slots);
  handed_out = deleted = 0;
  Py_RETURN_NONE;
}

static PyObject* nothing(PyObject* module, PyObject* const* args, Py_ssize_t count) {
  (void)module, (void)args, (void)count;
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"make_type", (PyCFunction)(void (*)(void))make_type,
                                 METH_VARARGS | METH_KEYWORDS, NULL},
                                {"capsule", capsule, METH_VARARGS, NULL},
                                {"capsule_name", capsule_name, METH_O, NULL},
                                {"arrow", arrow, METH_VARARGS, NULL},
                                {"set_stream", set_stream, METH_VARARGS, NULL},
                                {"set_allocator", set_allocator, METH_VARARGS, NULL},
                                {"counts", counts, METH_VARARGS, NULL},
                                {"reset", reset, METH_NOARGS, NULL},
                                {"nothing", (PyCFunction)(void (*)(void))nothing,
                                 METH_FASTCALL, "A call that does nothing."},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "producer", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_producer(void) { return PyModule_Create(&definition); }
