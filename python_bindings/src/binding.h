/* What the files of the extension module share.
 *
 *   module.c           the module, its state, its functions
 *   errors.c           the exception tree, ons_error -> exception
 *   module_object.c    onstream.Module
 *   module_global.c    its variables
 *   kernel_object.c    onstream.Kernel
 *   launch_options.c   graphs and events of the caller
 *   launch_attributes.c  clusters and the like; occupancy
 *   launcher.c         kernel[grid, block]
 *   fast_call.c        the call of it that most are, the hot path
 *   gather.h           ... its arguments
 *   generic.[ch]       onstream.GenericKernel
 *   generic_name.c     ... how it is asked for
 *   call.c             any call
 *   kept.c             ... what it keeps
 *   producer.c         which protocol a type speaks, found once per type
 *   exchange.c         arguments through an exchange table
 *   torch.c            what torch's table leaves unchecked
 *   ask.c              arguments through __dlpack__
 *   by_value.c         arguments that are several: vectors, lists of tensors
 *   tensor_map.c       onstream.TensorMap
 *   buffer.c           ... the buffer protocol
 *   array_interface.c  ... __cuda_array_interface__
 *   arrow.c            ... __arrow_c_device_array__
 *   adapter.c          what is known of each array library, and their streams
 *   register.c         onstream.register_producer
 *   tensor_object.c    onstream.Tensor
 *   tensor_import.c    ... made of an array of another library
 *   tensor_export*.c   ... as an array for others
 *   output.c           arguments that the call allocates
 *   output_shape.c     ... their shapes and dtypes
 *   output_allocate.c  ... their memory
 *   xla.c              handlers for XLA, and the modules that they know
 *   scalar.c, stream_arg.c, device_arg.c, dtype.c
 *
 * All functions need the GIL. Unless said otherwise, those that return bool or a pointer
 * report failure as false or NULL with a Python exception set. */
#ifndef ONSPY_BINDING_H_
#define ONSPY_BINDING_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <onstream/onstream.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

#ifdef ONS_TEST_STEPS
#include "runtime/base/steps.h"
#else
#define ONS__DOES(name) 1
#endif

/* The path of a call is kept together, and apart from what only failures need. */
#if defined(__has_attribute) && __has_attribute(no_stack_protector)
#define ONSPY_HOT                                                      \
  __attribute__((hot, no_stack_protector)) /* a canary is a cache miss \
                                            */
#else
#define ONSPY_HOT __attribute__((hot))
#endif
#define ONSPY_COLD __attribute__((cold, noinline))
#define ONSPY_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define ONSPY_NOINLINE __attribute__((noinline))

/* ---- errors ----------------------------------------------------------------------- */

/* XX(identifier, Python name) in the order in which they are created. */
#define ONSPY_ERRORS(XX)                   \
  XX(base, "Error")                        \
  XX(compile, "CompileError")              \
  XX(compile_warning, "CompileWarning")    \
  XX(argument, "ArgumentError")            \
  XX(argument_type, "ArgumentTypeError")   \
  XX(argument_value, "ArgumentValueError") \
  XX(order, "OrderError")                  \
  XX(device, "DeviceError")                \
  XX(unavailable, "UnavailableError")      \
  XX(unsupported, "UnsupportedError")      \
  XX(not_found, "NotFoundError")

/* Interned names: XX(identifier, text). */
#define ONSPY_NAMES(XX)                              \
  XX(dlpack, "__dlpack__")                           \
  XX(dlpack_device, "__dlpack_device__")             \
  XX(exchange_api, "__dlpack_c_exchange_api__")      \
  XX(old_exchange_api, "__c_dlpack_exchange_api__")  \
  XX(arrow_device_array, "__arrow_c_device_array__") \
  XX(array_interface, "__cuda_array_interface__")    \
  XX(cuda_stream_protocol, "__cuda_stream__")        \
  XX(module, "__module__")                           \
  XX(stream, "stream")                               \
  XX(max_version, "max_version")                     \
  XX(cuda_stream, "cuda_stream")                     \
  XX(ptr, "ptr")                                     \
  XX(handle, "handle")                               \
  XX(native_handle, "native_handle")                 \
  XX(item, "item")                                   \
  XX(shape, "shape")                                 \
  XX(typestr, "typestr")                             \
  XX(strides, "strides")                             \
  XX(mask, "mask")                                   \
  XX(data, "data")                                   \
  XX(version, "version")                             \
  XX(dtype, "dtype")                                 \
  XX(name, "name")                                   \
  XX(view, "view")                                   \
  XX(log, "log")                                     \
  XX(source, "source")                               \
  XX(line, "line")                                   \
  XX(uint8, "uint8")                                 \
  XX(torch_like, "torch_like")                       \
  XX(torch_empty, "torch_empty")                     \
  XX(numpy_like, "numpy_like")                       \
  XX(numpy_empty, "numpy_empty")                     \
  XX(cupy_like, "cupy_like")                         \
  XX(cupy_empty, "cupy_empty")                       \
  XX(jax_like, "jax_like")                           \
  XX(jax_empty, "jax_empty")                         \
  XX(code, "code")

/* ---- state ------------------------------------------------------------------------ */

typedef enum onspy_kind {
  ONSPY_KIND_FLOAT, /* exact float, and so on */
  ONSPY_KIND_INT,
  ONSPY_KIND_BOOL,
  ONSPY_KIND_NONE,
  ONSPY_KIND_EXCHANGE, /* speaks the C exchange table */
  ONSPY_KIND_DLPACK,
  ONSPY_KIND_ARRAY_INTERFACE,
  ONSPY_KIND_ARROW,
  ONSPY_KIND_BUFFER,
  ONSPY_KIND_BYTES,  /* bytes, bytearray, memoryview */
  ONSPY_KIND_NUMBER, /* numpy scalars, subclasses of float, anything with __index__ */
  ONSPY_KIND_OUTPUT,
  ONSPY_KIND_TENSOR, /* onstream.Tensor */
  ONSPY_KIND_UNKNOWN
} onspy_kind;

typedef struct onspy_producer onspy_producer;
typedef struct onspy_launcher onspy_launcher;

enum {
  ONSPY_PRODUCER_SLOTS = 256, /* of the open-addressed table; a power of two */
  ONSPY_PRODUCER_LIMIT = 192, /* types remembered; further ones are looked up anew, but */
  ONSPY_KNOWN_LIMIT = 240,    /* those of torch and the like, which takes long, not yet */
  ONSPY_FREE_LAUNCHERS = 16,
  /* More go to the heap. Calls nest, as a producer may call kernels itself. */
  ONSPY_STACK_ARGUMENTS = 16,
};

typedef struct onspy_state {
#define ONSPY_FIELD(id, text) PyObject* error_##id;
  ONSPY_ERRORS(ONSPY_FIELD)
#undef ONSPY_FIELD
#define ONSPY_FIELD(id, text) PyObject* str_##id;
  ONSPY_NAMES(ONSPY_FIELD)
#undef ONSPY_FIELD
  PyTypeObject* module_type;
  PyTypeObject* kernel_type;
  PyTypeObject* launcher_type;
  PyTypeObject* output_type;
  PyTypeObject* tensor_type;
  PyTypeObject* tensor_map_type;
  PyTypeObject* generic_type;
  PyObject* helpers;            /* onstream._helpers, imported at the first need */
  PyObject* torch_empty_like;   /* torch.empty_like, kept at the first output like x */
  PyObject* max_version;        /* (1, 3) */
  PyObject* ask_stream_version; /* keyword tuples of __dlpack__ calls */
  PyObject* ask_stream;
  PyObject* ask_version;
  ons_runtime* runtime; /* made at the first need */
  onspy_producer* producers[ONSPY_PRODUCER_SLOTS];
  size_t producer_count;
  PyObject* registered; /* dict: type -> what register_producer was given; or NULL */
  PyObject* kept;       /* list: functions that producers point at; or NULL */
  onspy_launcher* free_launchers[ONSPY_FREE_LAUNCHERS];
  size_t free_launcher_count;
} onspy_state;

/* The runtime of this interpreter (borrowed). */
ons_runtime* onspy_runtime(onspy_state* state);
/* onstream._helpers (borrowed). */
PyObject* onspy_helpers(onspy_state* state);

/* ---- objects ---------------------------------------------------------------------- */

typedef struct onspy_module {
  PyObject_HEAD onspy_state* state;
  ons_module* handle;
  PyObject* name;       /* str */
  PyObject* source;     /* str, or None for a file */
  PyObject* options;    /* tuple of str */
  PyObject* headers;    /* list of (name, content) */
  uint32_t flags;       /* ons_module_flags */
  PyObject* warned;     /* set of the compilers' logs that were warned of */
  PyObject* bundle;     /* bytes, or None for a source */
  PyObject* kernels;    /* dict: name expression -> Kernel */
  PyObject* attributes; /* the instance's dict: kernels that attribute access finds */
} onspy_module;

/* What the binding itself must know of a parameter. */
enum {
  ONSPY_PARAMETER_WRITTEN = 1, /* a pointer or view to non-const */
  ONSPY_PARAMETER_VALUE = 2,   /* a scalar or struct: a tensor must be read on the host */
  ONSPY_PARAMETER_STRUCT = 4,  /* takes bytes as they are; set together with VALUE */
  ONSPY_PARAMETER_VECTOR = 8,  /* numbers side by side; set together with these two */
  ONSPY_PARAMETER_POINTERS = 16, /* a list of tensors */
  ONSPY_PARAMETER_MAP = 32       /* a tensor map */
};

typedef struct onspy_slot {
  const PyTypeObject*
      type; /* of the argument seen last here; these three are set together */
  const onspy_producer* producer; /* owned by the state, which keeps the type too */
  onspy_kind kind;
  uint32_t traits;
} onspy_slot;

typedef struct onspy_kernel {
  PyObject_HEAD ons_kernel* handle;
  size_t slot_count; /* 0 until the signature is known */
  onspy_slot* slots;
  bool known;       /* the signature is: slots and parameters are filled */
  bool takes_lists; /* or tensor maps: an argument may stand for several, or another */
  const struct onspy_expansion* expansion; /* of a kernel made up for one call; or NULL */
  size_t output_index; /* where an output was seen last; past the end: nowhere */
  ons_parameter* parameters;
  onspy_module* module;
  onspy_state* state;
} onspy_kernel;

struct onspy_launcher {
  PyObject_HEAD vectorcallfunc vectorcall;
  onspy_kernel* kernel;
  PyObject* stream; /* keeps the stream's owner alive; NULL for none */
  ons_launch launch;
  struct onspy_generic* generic; /* owned; chooses the kernel. NULL for most */
};

typedef struct onspy_output {
  PyObject_HEAD PyObject* like; /* the array to take after, or NULL */
  PyObject* shape;              /* tuple of int and str, or a function, or NULL */
  PyObject* dtype;              /* str, or NULL */
  uint32_t flags;               /* ONSPY_OUTPUT_* */
} onspy_output;

enum {
  ONSPY_OUTPUT_ZERO = 1,     /* filled with zeros */
  ONSPY_OUTPUT_WORKSPACE = 2 /* not returned */
};

/* ---- producers -------------------------------------------------------------------- */

typedef enum onspy_library {
  ONSPY_LIBRARY_OTHER,
  ONSPY_LIBRARY_TORCH,
  ONSPY_LIBRARY_CUPY,
  ONSPY_LIBRARY_JAX,
  ONSPY_LIBRARY_NUMPY
} onspy_library;

/* What a type may be asked by. */
enum {
  ONSPY_PROTOCOL_EXCHANGE = 1,
  ONSPY_PROTOCOL_ARRAY_INTERFACE = 2,
  ONSPY_PROTOCOL_DLPACK = 4,
  ONSPY_PROTOCOL_ARROW = 8
};

enum {
  ONSPY_PRODUCER_READ_ONLY = 1, /* immutable, whatever its protocol says */
  /* It has no stream: the arrays are on the one that the caller of the kernel names. */
  ONSPY_PRODUCER_ON_CALLERS_STREAM = 2,
  ONSPY_PRODUCER_RETAINED = 4,       /* the memory may be freed in no stream's order */
  ONSPY_PRODUCER_NONE_IS_LEGACY = 8, /* in __cuda_array_interface__, that is */
  ONSPY_PRODUCER_STOP_GRADIENT = 16  /* an attribute, false where autograd looks on */
};

/* An array library: where its class is found, and what is known of it. */
typedef struct onspy_adapter {
  const char* package;
  const char* name;
  onspy_library library;
  uint32_t protocols;
  uint32_t traits;
  const char* stream; /* the function of _helpers that tells the stream, or NULL */
} onspy_adapter;

typedef intptr_t (*onspy_raw_stream)(void);

/* Where torch keeps what its exchange table does not look at; see torch.c. */
typedef struct onspy_torch {
  uint32_t offset; /* of the C++ object's address in the Python object; 0: not known */
  uint32_t marks_word; /* of the C++ object: has a bit for lazy views */
  uint32_t
      grad_word;  /* ditto: null as long as autograd has nothing to do with the tensor */
  uint64_t marks; /* the bits of negated and conjugated views */
} onspy_torch;

enum { ONSPY_TORCH_REQUIRES_GRAD = 1, ONSPY_TORCH_NEG = 2, ONSPY_TORCH_CONJ = 4 };

/* |tensor_class| is torch.Tensor. Raises nothing. */
void onspy_torch_find(PyTypeObject* tensor_class, onspy_torch* out_torch);

/* Asks torch: the ONSPY_TORCH_* that hold for a tensor; -1 with an exception. */
int onspy_torch_ask(PyObject* tensor);

/* Nothing to ask about: no lazy view, and if it is written, no business of autograd's. */
static inline bool onspy_torch_is_plain(const onspy_torch* torch, PyObject* tensor,
                                        bool is_written) {
  if (torch->offset == 0) return false;
  const uint64_t* object = *(const uint64_t* const*)((const char*)tensor + torch->offset);
  return (object[torch->marks_word] & torch->marks) == 0 &&
         (!is_written || object[torch->grad_word] == 0);
}

/* What is known of an exact type. Owned by the state for its whole life, so that call
 * sites may point at it; only ons.register_producer changes it. */
struct onspy_producer {
  PyTypeObject* type; /* strong: its address cannot be reused */
  onspy_kind kind;
  onspy_library library;
  /* These two: of `exchange`, beside what a call reads; NULL where that is not all. */
  DLPackDLTensorFromPyObjectNoSync borrow;
  DLPackCurrentWorkStream work_stream;
  onspy_torch torch; /* of torch's types only */
  const DLPackExchangeAPI* exchange;
  bool has_dlpack;
  uint32_t traits;              /* ONSPY_PRODUCER_* */
  PyObject* stream_of;          /* called with an array, tells its stream; or NULL */
  onspy_raw_stream cupy_stream; /* of the current device; NULL with several devices */
};

/* The entry of an exact type (borrowed); |scratch| once too many types are known, good
 * for as long as the caller has an object of the type. */
const onspy_producer* onspy_producer_find(onspy_state* state, PyTypeObject* type,
                                          onspy_producer* scratch);
/* Looks anew at |base| and its subclasses, where they have been seen. */
void onspy_producer_forget(onspy_state* state, PyTypeObject* base);
/* float, int and so on, which are no arrays whatever is registered. */
bool onspy_type_is_builtin(onspy_state* state, PyTypeObject* type);
void onspy_producer_clear(onspy_state* state);
int onspy_producer_traverse(onspy_state* state, visitproc visit, void* arg);

/* The class of that name and package among |type| and its bases (borrowed), or NULL. */
PyTypeObject* onspy_find_base(const onspy_state* state, PyTypeObject* type,
                              const char* package, const char* name);
const onspy_adapter* onspy_adapter_find(const onspy_state* state, PyTypeObject* type);
/* Raise nothing. */
onspy_raw_stream onspy_cupy_entry(void);
bool onspy_torch_table_is_wrong(onspy_state* state);

/* The stream on which the library of |object| works on a device; `*out_known` is false
 * where nobody tells. Exceptions are the library's own. `*out_owner` (a new reference, or
 * NULL) is the object that the stream was told by; |out_owner| may be NULL. */
bool onspy_stream_of(onspy_state* state, const onspy_producer* producer, PyObject* object,
                     DLDevice device, bool* out_known, void** out_stream,
                     PyObject** out_owner);

PyObject* onspy_register(onspy_state* state, PyObject* args, PyObject* kwargs);
/* What is registered for |type| or a base of it, into |producer| and |protocols|. */
void onspy_register_look_up(const onspy_state* state, const PyTypeObject* type,
                            onspy_producer* producer, uint32_t* protocols);
/* Keeps an object for the life of the state. */
bool onspy_keep(onspy_state* state, PyObject* object);

/* ---- ons.use_stream -----------------------------------------------------------------
 */

typedef struct onspy_use_stream {
  PyObject_HEAD PyObject* object; /* as given: keeps the stream's owner alive */
  struct onspy_use_stream* outer; /* while entered: the one around it; owned */
  bool entered;
  bool given;        /* false: the arrays decide */
  int32_t device_id; /* -1: any GPU */
  void* stream;
} onspy_use_stream;

/* Of this thread; NULL outside of all blocks. */
extern _Thread_local onspy_use_stream* onspy_innermost_stream
    __attribute__((tls_model("initial-exec")));

/* The one that counts for a device (borrowed), or NULL. */
const onspy_use_stream* onspy_used_stream(DLDevice device);

/* ---- what is kept ------------------------------------------------------------------ */

/* What is to be released, in this order. Has room for any number. */
typedef struct onspy_kept {
  ons_retained* items;
  size_t count, capacity;
  bool on_heap;
} onspy_kept;

/* What cannot be kept, for want of memory, is released at once. */
bool onspy_kept_add(onspy_kept* kept, void* object, void (*release)(void*));
/* What was added last is the memory of a tensor on a device. */
void onspy_kept_measure(onspy_kept* kept, const DLTensor* tensor);
/* Releases all. Deleters may run Python code: the exception that is set, if any, is kept
 * from it. */
void onspy_kept_release(onspy_kept* kept);
/* For a tp_traverse of who alone owns what is kept. */
int onspy_kept_traverse(const onspy_kept* kept, visitproc visit, void* arg);
/* A reference to an object, in any thread, with or without the GIL. */
void onspy_release_object(void* object);
/* A buffer's export (buffer.c), and whose it is (borrowed). */
void onspy_release_export(void* held);
PyObject* onspy_export_owner(const void* held);

/* ---- one call --------------------------------------------------------------------- */

/* Instead of a launch: a node of an instantiated graph gets other arguments. */
typedef struct onspy_update {
  void* exec;
  void* node;
} onspy_update;

typedef struct onspy_call {
  onspy_state* state;
  onspy_kernel* kernel;
  const ons_launch* launch;      /* with a graph: no stream has to do with the call */
  struct onspy_generic* generic; /* chooses the kernel first; NULL for most */
  const onspy_update* update;    /* or NULL; `launch` then has a graph, of no content */
  PyObject* const* objects;      /* the arguments, as given */
  PyObject* const* replaced;     /* the placeholder that out= gave an array for, one per
                                    argument, NULL where there was none; or NULL */
  size_t count;
  ons_arg* args;
  DLTensor* tensors;    /* one per argument */
  onspy_kept temporary; /* released after the call */
  onspy_kept retained;  /* kept until the device is past the launch */
  PyObject** outputs;   /* owned; room for one each */
  void** events;        /* that the launch waits for, those of launch->events included;
                           NULL until an argument brings one */
  size_t event_count;
  size_t event_argument; /* the first that brought one */
  size_t output_count;
  size_t pending_count; /* arguments that need the second pass */
  ons_launch_plan plan; /* valid in the second pass */
  bool is_import;       /* of a Tensor: what is taken outlives the call */
  bool finish_outputs;  /* some output is to be exchanged for another object in the end */
  bool python_ran;      /* some argument was asked by Python code */
  bool device_seen;     /* some tensor is not in plain host memory */
  /* The stream asked for last, as most calls have one producer and one device. */
  const DLPackExchangeAPI* stream_api;
  DLDevice stream_device;
  void* stream;
} onspy_call;

/* Does a launch on the CPU run without the GIL? Giving it up costs about 100 ns: a launch
 * of one block keeps it. */
static inline bool onspy_launch_is_long(const ons_launch* launch) {
  return launch->grid[0] > 1 || launch->grid[1] > 1 || launch->grid[2] > 1;
}

/* The vectorcall of launchers. */
ONSPY_HOT PyObject* onspy_launcher_call(PyObject* launcher, PyObject* const* objects,
                                        size_t nargsf, PyObject* kwnames);

/* Any call of one, out= included. */
ONSPY_NOINLINE PyObject* onspy_launcher_call_general(onspy_launcher* self,
                                                     PyObject* const* objects,
                                                     size_t count, PyObject* kwnames);
ons_status onspy_launch_without_gil(ons_kernel* kernel, const ons_launch* launch,
                                    const ons_arg* args, size_t count, ons_error* error);

/* Calls |kernel| on the objects; returns the outputs or None. */
ONSPY_HOT PyObject* onspy_kernel_call(onspy_kernel* kernel, const ons_launch* launch,
                                      PyObject* const* objects, size_t count);

/* The same with |out|, what is given for the outputs: an array, or a sequence of arrays
 * and None; NULL or None: nothing. */
PyObject* onspy_kernel_call_out(onspy_kernel* kernel, const ons_launch* launch,
                                PyObject* const* objects, size_t count, PyObject* out);

/* The same for the update of a node. */
PyObject* onspy_kernel_update(onspy_kernel* kernel, const ons_launch* launch,
                              const onspy_update* update, PyObject* const* objects,
                              size_t count);

/* Fills args[index], first pass: pending where the producer must be told the stream. */
bool onspy_call_gather(onspy_call* call, size_t index, PyObject* object);
/* Fills args[index] from an object through its exchange table, checks included. */
ONSPY_HOT bool onspy_call_exchange(onspy_call* call, size_t index, PyObject* object,
                                   const onspy_producer* producer);
/* Fills args[index] from any other kind; may leave it ONS_ARG_PENDING. */
bool onspy_call_slow(onspy_call* call, size_t index, PyObject* object,
                     const onspy_producer* producer);
bool onspy_call_buffer(onspy_call* call, size_t index, PyObject* object,
                       const onspy_producer* producer);
bool onspy_call_array_interface(onspy_call* call, size_t index, PyObject* object,
                                const onspy_producer* producer);
/* ... through __dlpack__, pending if it is on a device. */
bool onspy_call_dlpack(onspy_call* call, size_t index, PyObject* object,
                       const onspy_producer* producer);
bool onspy_dlpack_device(onspy_call* call, size_t index, PyObject* object,
                         DLDevice* out_device);
/* Puts a tensor that a producer has handed over into tensors[index] and what it says of
 * writing into args[index]. It is deleted after the call, with |retain| after the launch
 * has run; when it is refused too. */
bool onspy_take_managed(onspy_call* call, size_t index, PyObject* object,
                        DLManagedTensorVersioned* managed, bool retain);
/* Memory for the extents of tensors[index], freed after the call. */
int64_t* onspy_call_extents(onspy_call* call, size_t count);
/* Asks for an output that JAX has just made: written through before anyone sees it. */
bool onspy_call_ask_output(onspy_call* call, size_t index, PyObject* object);
/* Refuses a pending argument that no answer of its producer could make right. Touches
 * nothing. */
bool onspy_call_check(onspy_call* call, size_t index, PyObject* object,
                      const onspy_producer* producer);
/* Asks a pending argument's producer for the tensor, ordered onto the plan's stream. */
bool onspy_call_ask(onspy_call* call, size_t index, PyObject* object,
                    const onspy_producer* producer);
/* Only the device of an object's memory; type 0 for what has no device of its own. May
 * overwrite tensors[index]. */
bool onspy_device_of(onspy_call* call, size_t index, PyObject* object,
                     const onspy_producer* producer, DLDevice* out_device);
bool onspy_exchange_device(onspy_call* call, size_t index, PyObject* object,
                           const onspy_producer* producer, DLDevice* out_device);
/* Into args[index] the stream that the producer works on, of tensors[index]'s device. */
bool onspy_exchange_stream(onspy_call* call, size_t index, PyObject* object,
                           const onspy_producer* producer);
/* The same for the others, as far as it is known. */
bool onspy_call_stream(onspy_call* call, size_t index, PyObject* object,
                       const onspy_producer* producer, DLDevice device);
/* Fills args[index] from an object of Arrow's device protocol. */
bool onspy_call_arrow(onspy_call* call, size_t index, PyObject* object);
/* Refuses to wait for the events that such arguments brought while the launch stream is
 * being captured. */
bool onspy_arrow_check_capture(onspy_call* call);
bool onspy_arrow_device(onspy_call* call, size_t index, PyObject* object,
                        DLDevice* out_device);
/* Inside ons.use_stream, for a launch that is given no stream: puts it into |launch|. */
bool onspy_use_stream_apply(const onspy_call* call, ons_launch* launch);

static inline uint32_t onspy_traits(const onspy_kernel* kernel, size_t index) {
  return index < kernel->slot_count ? kernel->slots[index].traits : 0;
}
static inline bool onspy_on_host(DLDevice device) {
  return device.device_type == kDLCPU || device.device_type == kDLCUDAHost ||
         device.device_type == kDLROCMHost;
}

/* ---- arguments by value and in lists ---- */

typedef struct onspy_expansion onspy_expansion;

/* Fill args[index] for a vector parameter from a list of numbers, from a Python complex.
 */
bool onspy_vector(onspy_call* call, size_t index, PyObject* list);
bool onspy_complex(onspy_call* call, size_t index, PyObject* number);
/* Is there a list of tensors or a tensor map? Such a call is made by the second. */
bool onspy_call_is_expanded(const onspy_call* call);
PyObject* onspy_call_expanded(const onspy_call* call);
/* What the library gets in an expanded call, as of now. */
const ons_arg* onspy_expansion_args(const onspy_call* call, size_t* out_count);
/* Which argument, and which item of its list (or SIZE_MAX), a tensor is. */
void onspy_expansion_locate(const onspy_expansion* expansion, size_t index,
                            size_t* out_argument, size_t* out_item);
/* The first array in a list or a tensor map (borrowed); else the object itself. */
PyObject* onspy_first_of(const onspy_state* state, PyObject* object);

PyObject* onspy_tensor_map(onspy_state* state, PyObject* args, PyObject* kwargs);
/* The array (borrowed); |out_layout| may be NULL. */
PyObject* onspy_tensor_map_of(PyObject* object, const ons_tensor_map** out_layout);

/* Fill args[index]: from a number object, from a 0-dimensional host tensor, from an int.
 */
bool onspy_scalar_from_number(onspy_call* call, size_t index, PyObject* object);
bool onspy_scalar_from_tensor(onspy_call* call, size_t index, PyObject* object);
ONSPY_HOT bool onspy_scalar_from_int(onspy_call* call, size_t index, PyObject* object);

/* ---- tensors ----------------------------------------------------------------------- */

/* What an imported tensor keeps, as long as it is. */
typedef struct onspy_held onspy_held;
int onspy_held_traverse(const onspy_held* held, visitproc visit, void* arg);

/* How a tensor came in, as far as its release has to know. */
typedef struct onspy_import {
  const onspy_held* held;
  bool on_host;
  bool retained;         /* as ONSPY_PRODUCER_RETAINED */
  bool knows_producer;   /* then: */
  void* producer_stream; /* that the array was on */
} onspy_import;

/* The library's tensor of an array, on |stream| if that has an owner, which is kept as
 * long, else on ons.use_stream's, else on the array's own. */
ons_tensor* onspy_tensor_import(onspy_state* state, PyObject* object,
                                const onspy_producer* producer, PyObject* owner,
                                void* stream, onspy_import* out_import);
PyObject* onspy_from_dlpack(onspy_state* state, PyObject* object, PyObject* stream);
/* An onstream.Tensor of the library's tensor, which it takes over (on failure too).
 * Nobody is asked for a stream at its release. */
PyObject* onspy_tensor_wrap(onspy_state* state, ons_tensor* tensor);
/* The exchange table of the type. */
bool onspy_tensor_table_add(onspy_state* state);
void onspy_tensor_table_remove(const onspy_state* state);
/* Fills args[index] from an onstream.Tensor. */
bool onspy_call_tensor(onspy_call* call, size_t index, PyObject* object);
/* Type 0 when it has been released. */
DLDevice onspy_tensor_device(PyObject* object);

/* ---- outputs, dtypes, streams, devices -------------------------------------------- */

/* Allocates the output asked for by objects[index] and puts it into args[index]. */
bool onspy_output_allocate(onspy_call* call, size_t index);
/* Checks what out= gave for an output, and is bound in args[index]. */
bool onspy_output_given(onspy_call* call, size_t index);
/* Is one to be zero? The second fills those, once all arguments are bound. */
bool onspy_outputs_zeroed(const onspy_call* call);
bool onspy_outputs_zero(const onspy_call* call);
/* Exchanges what is in call->outputs for what the caller gets; after the launch. */
bool onspy_outputs_finish(onspy_call* call);

/* The functions of the module that make one: empty(shape, dtype), like(x, shape, dtype)
 * and the others of these forms. */
PyObject* onspy_output_empty(onspy_state* state, PyObject* args, PyObject* kwargs,
                             const char* format, uint32_t flags);
PyObject* onspy_output_like(onspy_state* state, PyObject* args, PyObject* kwargs,
                            const char* format, uint32_t flags);
PyObject* onspy_output_just_like(onspy_state* state, PyObject* like);

/* What is given as shape= and dtype=, checked as far as it is known without a call; what
 * that comes to in a call, a tuple of int and a str (new references). */
PyObject* onspy_shape_check(PyObject* shape);
PyObject* onspy_shape_resolve(onspy_call* call, size_t index, PyObject* shape);
PyObject* onspy_dtype_check(onspy_state* state, PyObject* dtype);
PyObject* onspy_dtype_resolve(onspy_call* call, size_t index, PyObject* dtype);

/* The size of all elements; false where that is past 64 bits. */
bool onspy_size_bytes(const DLTensor* tensor, int64_t* out_bytes);
/* A tuple of int (new reference), each times |unit|. */
PyObject* onspy_extents_tuple(const int64_t* values, int32_t count, int64_t unit);

/* "float32" of anything that names a dtype (new reference). */
PyObject* onspy_dtype_name(onspy_state* state, PyObject* dtype);
/* "float32" of a DLPack type; its code, bits and lanes where it has no name. */
PyObject* onspy_dtype_text(DLDataType dtype);
/* The DLPack type of such a name; false without an exception where there is none. */
bool onspy_dtype_from_name(const char* name, DLDataType* out_dtype);
/* Of a NumPy typestr ("<f4"), of a buffer's format with its item size; ditto. */
bool onspy_dtype_from_typestr(const char* typestr, DLDataType* out_dtype);
bool onspy_dtype_from_format(const char* format, Py_ssize_t item_bytes,
                             DLDataType* out_dtype);
/* And back: false and NULL where there is none. */
bool onspy_dtype_typestr(DLDataType dtype, char out_text[8]);
const char* onspy_dtype_format(DLDataType dtype);

/* Reads what is given as a stream. `*out_given` is false for None. Errors name |kernel|,
 * unless it is NULL. */
bool onspy_stream_parse(const onspy_state* state, const onspy_kernel* kernel,
                        PyObject* stream, bool* out_given, void** out_stream);
/* Reads order=: None or "join", "strict", "trust", as an ons_order. */
bool onspy_order_parse(PyObject* order, uint32_t* out_order);

/* Native handles, and what they are of. */
typedef struct onspy_handles {
  void** items;
  size_t count;
  PyObject* owners; /* tuple, or NULL */
} onspy_handles;

/* The keywords of launch() that choose where to (borrowed; NULL or None: not given). */
typedef struct onspy_target_args {
  PyObject *stream, *order, *graph, *dependencies, *wait, *signal;
  int external;
} onspy_target_args;

/* What a launch's pointers point at. */
typedef struct onspy_target {
  ons_launch_graph graph;
  ons_launch_events events;
  onspy_handles dependencies, wait, signal;
} onspy_target;

/* Puts graph and events into |launch|; |out_target|, zero before, is cleared by the
 * caller, on failure too. */
bool onspy_target_parse(const onspy_kernel* kernel, const onspy_target_args* given,
                        ons_launch* launch, onspy_target* out_target);
void onspy_target_clear(onspy_target* target);
/* Calls |kernel| on a tuple of objects; returns the node where it went into a graph.
 * |out| is what is given for outputs, or NULL. */
PyObject* onspy_target_call(onspy_kernel* kernel, const ons_launch* launch,
                            PyObject* objects, PyObject* out);
PyObject* onspy_kernel_update_node(PyObject* self, PyObject* args, PyObject* kwargs);

/* The keywords of launch() and update_node() that say how many threads (borrowed; NULL:
 * not given). */
typedef struct onspy_config_args {
  PyObject *grid, *threads, *block, *shared, *stream;
} onspy_config_args;

/* The same of launch attributes. */
typedef struct onspy_attribute_args {
  PyObject *cluster, *priority, *carveout;
  int cooperative, programmatic;
} onspy_attribute_args;

/* Points |launch| at |out_attributes| where any are given. */
bool onspy_attributes_parse(const onspy_kernel* kernel, const onspy_attribute_args* given,
                            ons_launch* launch, ons_launch_attributes* out_attributes);
PyObject* onspy_kernel_occupancy(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* onspy_kernel_block_size(PyObject* self, PyObject* args, PyObject* kwargs);

/* Reads device=: None takes the first GPU, else the CPU. */
bool onspy_device_parse(onspy_state* state, PyObject* device, DLDevice* out_device);

/* ---- kernels, launchers ----------------------------------------------------------- */

PyObject* onspy_kernel_new(onspy_module* module, PyObject* name);
/* Compiles where needed, without the GIL, and reads the signature. */
bool onspy_kernel_prepare(onspy_kernel* kernel, DLDevice device);
/* An int or up to three, the rest 1. */
bool onspy_extents_parse(const onspy_kernel* kernel, PyObject* object, const char* what,
                         uint32_t out_extents[3]);
/* Fills a launch from a method's keywords. */
bool onspy_config_parse(const onspy_kernel* kernel, const char* method,
                        const onspy_config_args* given, ons_launch* out_launch);
/* Fills a launch from kernel[...]'s parts; |shared| and |stream| may be NULL. */
bool onspy_launch_parse(const onspy_kernel* kernel, PyObject* grid, PyObject* block,
                        PyObject* shared, PyObject* stream, ons_launch* out_launch);
PyObject* onspy_launcher_new(onspy_kernel* kernel, PyObject* key);
PyObject* onspy_module_global(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* onspy_module_set_global(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* onspy_module_from_bundle(onspy_state* state, PyObject* data);
PyObject* onspy_module_from_file(onspy_state* state, PyObject* args, PyObject* kwargs);

PyObject* onspy_xla_handlers(onspy_state* state);
PyObject* onspy_xla_register_module(onspy_state* state, PyObject* args);
PyObject* onspy_xla_describe(onspy_state* state, PyObject* kernel);

/* UTF-8 of a str (borrowed); refuses what C would cut short. |what| names it. */
const char* onspy_text_of(PyObject* object, const char* what);

/* ---- raising ---------------------------------------------------------------------- */

/* Each returns NULL. */
ONSPY_COLD void* onspy_raise(onspy_state* state, const ons_error* error);
ONSPY_COLD /* A CompileWarning of what a compile wrote, where it has a warning; once for
            * each log of a module. False with an exception, where warnings are errors. */
    bool
    onspy_warn_compile(onspy_module* module, const ons_blob* log);
void* onspy_raise_compile(onspy_module* module, const ons_error* error,
                          const ons_blob* log);
/* "kernel 'axpy', argument 2 ('x'): declared const float*, got MESSAGE"; an exception
 * that is already set becomes the cause. |kind| is one of the state's error classes. */
ONSPY_COLD void* onspy_raise_argument(onspy_kernel* kernel, size_t index, PyObject* kind,
                                      const char* format, ...);

/* "... got WHAT failed with ...", of the exception that is set, which becomes the cause;
 * interrupts stay as they are. */
ONSPY_COLD void* onspy_raise_failed(onspy_kernel* kernel, size_t index, PyObject* kind,
                                    const char* what);

/* "... got a TYPE whose WHAT raised ...", with the exception that is set, which becomes
 * the cause; interrupts stay as they are. |object| may be the type itself. Returns false.
 */
bool onspy_raise_from_producer(onspy_kernel* kernel, size_t index, PyObject* object,
                               const char* what);

/* ---- types and set-up ------------------------------------------------------------- */

/* A function in a type's or module's slot: ISO C has no conversion to void*. */
#define ONSPY_FUNCTION(function) ((void*)(uintptr_t)(function))

extern PyType_Spec onspy_module_spec;
extern PyType_Spec onspy_kernel_spec;
extern PyType_Spec onspy_launcher_spec;
extern PyType_Spec onspy_output_spec;
extern PyType_Spec onspy_tensor_spec;
extern PyType_Spec onspy_tensor_map_spec;
extern PyType_Spec onspy_generic_spec;
extern PyType_Spec onspy_use_stream_spec;
bool onspy_errors_create(onspy_state* state, PyObject* module);

/* The state of the type that defines |self|; none of our types can be subclassed. */
static inline onspy_state* onspy_state_of(PyObject* self) {
  return (onspy_state*)PyType_GetModuleState(Py_TYPE(self));
}

#endif /* ONSPY_BINDING_H_ */
