/* Kernels and launches.
 *
 * A launch checks every argument against the signature that the compiler reported,
 * chooses the device and the stream from the arguments, and enqueues. It never
 * synchronises the host, never copies a tensor and allocates no device memory. Anything
 * that is refused is refused before any stream is touched, but for what can only be
 * known once the caller's own events have been waited for (ons_launch_events). */
#ifndef ONSTREAM_LAUNCH_H_
#define ONSTREAM_LAUNCH_H_

#include <onstream/dlpack.h>
#include <onstream/export.h>
#include <onstream/module.h>
#include <onstream/status.h>
#include <stddef.h>
#include <stdint.h>

ONS_BEGIN_DECLS

/* ---- kernels ---------------------------------------------------------------------- */

/* Reference counting; any thread; NULL is accepted. */
ONS_API void ons_kernel_retain(ons_kernel* kernel);
ONS_API void ons_kernel_release(ons_kernel* kernel);

/* The name expression it was asked for by, without needless blanks. Borrowed; valid as
 * long as the kernel. */
ONS_API const char* ons_kernel_name(const ons_kernel* kernel);

/* Compiles and loads this kernel for one device, as ons_module_prepare does. Errors: also
 * NOT_FOUND where the compiler knows no such kernel. */
ONS_API ONS_NODISCARD ons_status ons_kernel_prepare(ons_kernel* kernel, DLDevice device,
                                                    ons_blob** out_log, ons_error* error);

typedef enum ons_parameter_kind {
  ONS_PARAMETER_POINTER = 1, /* T*: a dense tensor of dtype `dtype` */
  ONS_PARAMETER_VIEW =
      2, /* ons::view<T, N, Index>: a tensor of rank `ndim`, any strides */
  ONS_PARAMETER_SCALAR = 3, /* a number of type `dtype` */
  ONS_PARAMETER_STRUCT =
      4, /* any other type by value: `size_bytes` bytes, 0 if unknown */
  ONS_PARAMETER_VECTOR = 5,    /* `dtype` by value, of several lanes or complex: a list of
                                  numbers, or their bytes */
  ONS_PARAMETER_POINTERS = 6,  /* ons::ptrs<T, N>: a list of `item_count` dense tensors */
  ONS_PARAMETER_TENSOR_MAP = 7 /* ons::tensor_map, CUtensorMap: ONS_ARG_TENSOR_MAP, or
                                  the bytes of an encoded one */
} ons_parameter_kind;

typedef struct ons_parameter {
  uint32_t struct_size; /* sizeof(ons_parameter), set by the caller */
  ons_parameter_kind kind;
  DLDataType dtype;  /* of the element or the scalar; bits 0 where DLPack has no such type
                        (then a pointer takes any tensor: void*) */
  int32_t ndim;      /* of a view, else 0 */
  uint32_t is_const; /* the kernel only reads through it */
  uint32_t size_bytes; /* in the parameter block; 0 if unknown */
  uint32_t index_bits; /* of a view: 32 or 64, else 0 */
  const char* name;    /* as spelt in the source, or NULL; borrowed from the kernel */
  const char* type;    /* C++ spelling; borrowed from the kernel */
  uint32_t item_count; /* of ONS_PARAMETER_POINTERS, else 0 */
} ons_parameter;

/* How many parameters the kernel declares. Known once the kernel has been prepared on any
 * device. Errors: NOT_READY. */
ONS_API ONS_NODISCARD ons_status ons_kernel_parameter_count(const ons_kernel* kernel,
                                                            size_t* out_count,
                                                            ons_error* error);

/* One parameter. Errors: NOT_READY, INVALID_ARGUMENT past the end. */
ONS_API ONS_NODISCARD ons_status ons_kernel_parameter(const ons_kernel* kernel,
                                                      size_t index,
                                                      ons_parameter* out_parameter,
                                                      ons_error* error);

/* The signature as text, "axpy(float a, const float* x, long long n)". Borrowed; NULL
 * until the kernel has been prepared. */
ONS_API const char* ons_kernel_signature(const ons_kernel* kernel);

/* What one block of the kernel uses on a device. */
typedef struct ons_kernel_attributes {
  uint32_t struct_size;           /* sizeof(ons_kernel_attributes), set by the caller */
  uint32_t max_threads_per_block; /* 0 on devices that do not say */
  uint32_t register_count;        /* per thread */
  uint32_t static_shared_bytes;
  uint32_t local_bytes; /* per thread */
  uint32_t constant_bytes;
  uint32_t max_dynamic_shared_bytes; /* what a launch may ask for */
} ons_kernel_attributes;

/* Prepares the kernel on `device` where needed. Errors: as ons_kernel_prepare. */
ONS_API ONS_NODISCARD ons_status
ons_kernel_get_attributes(ons_kernel* kernel, DLDevice device,
                          ons_kernel_attributes* out_attributes, ons_error* error);

/* How much of a multiprocessor blocks of a size occupy; on the CPU, which has a
 * multiprocessor for each of its threads, how many a cooperative launch may have. */
typedef struct ons_occupancy {
  uint32_t struct_size;                /* sizeof(ons_occupancy), set by the caller */
  uint32_t blocks_per_multiprocessor;  /* that run at a time */
  uint32_t threads_per_multiprocessor; /* the most there can be, of any kernel */
  uint32_t multiprocessor_count;
} ons_occupancy;

/* Prepares the kernel on `device` where needed. A cooperative launch has at most
 * blocks_per_multiprocessor * multiprocessor_count blocks. Errors: as ons_kernel_prepare;
 * ARGUMENT_VALUE for blocks that the kernel cannot have. */
ONS_API ONS_NODISCARD ons_status ons_kernel_occupancy(ons_kernel* kernel, DLDevice device,
                                                      uint32_t block_threads,
                                                      uint32_t shared_bytes,
                                                      ons_occupancy* out_occupancy,
                                                      ons_error* error);

/* The block size with which the most threads of the kernel run at a time, up to `limit`
 * (0: the kernel's own), and the fewest such blocks that fill the device. On the CPU a
 * size that the thread loop runs well with, and the number of its threads. Errors: as
 * ons_kernel_prepare; ARGUMENT_VALUE for shared memory that no block can have. */
ONS_API ONS_NODISCARD ons_status ons_kernel_max_potential_block_size(
    ons_kernel* kernel, DLDevice device, uint32_t shared_bytes, uint32_t limit,
    uint32_t* out_grid_blocks, uint32_t* out_block_threads, ons_error* error);

/* ---- arguments -------------------------------------------------------------------- */

typedef enum ons_arg_kind {
  ONS_ARG_NULL = 0,   /* a null pointer, for pointer parameters only */
  ONS_ARG_TENSOR = 1, /* value.tensor */
  ONS_ARG_INT = 2,    /* value.i */
  ONS_ARG_UINT = 3,   /* value.u, for values above INT64_MAX */
  ONS_ARG_FLOAT = 4,  /* value.f */
  ONS_ARG_BOOL = 5,   /* value.i, 0 or 1 */
  ONS_ARG_BYTES =
      6, /* value.bytes, size_bytes of them, copied into the parameter as they are */
  ONS_ARG_PENDING = 7,   /* a tensor whose producer still has to be asked; only for
                            ons_launch_resolve */
  ONS_ARG_LIST = 8,      /* value.items, item_count of them: the tensors (or nulls) of an
                            ons::ptrs, each with its own flags and stream; the numbers of a
                            vector; real and imaginary part of a complex number */
  ONS_ARG_TENSOR_MAP = 9 /* value.tensor, to be encoded as `tensor_map` says; in all else
                            a tensor like any */
} ons_arg_kind;

typedef enum ons_arg_flags {
  /* `stream` is the stream the tensor's producer is working on. A tensor in device memory
     needs this or ONS_ARG_ORDERED; with neither its order is unknown and the launch is
     refused. */
  ONS_ARG_STREAM_KNOWN = 1u << 0,
  /* The producer has already ordered the tensor onto the launch stream (DLPack's
     __dlpack__(stream=...)); nothing is known of its later work. Enough for const
     parameters and outside of captures. */
  ONS_ARG_ORDERED = 1u << 1,
  /* The memory must not be written. */
  ONS_ARG_READ_ONLY = 1u << 2,
  /* Freshly allocated for this launch: may be written although its producer is otherwise
     immutable or of unknown order. Refused for parameters that the kernel only reads. */
  ONS_ARG_OUTPUT = 1u << 3,
  /* The owner's automatic differentiation would not see a write: refused for parameters
     that are written through. */
  ONS_ARG_REQUIRES_GRAD = 1u << 4
} ons_arg_flags;

enum { ONS_TENSOR_MAP_BYTES = 128, ONS_TENSOR_MAP_RANK_MAX = 5 };

typedef enum ons_tensor_map_swizzle {
  ONS_SWIZZLE_NONE = 0,
  ONS_SWIZZLE_32B = 1,
  ONS_SWIZZLE_64B = 2,
  ONS_SWIZZLE_128B = 3
} ons_tensor_map_swizzle;

typedef enum ons_tensor_map_l2 {
  ONS_L2_PROMOTION_NONE = 0,
  ONS_L2_PROMOTION_64B = 1,
  ONS_L2_PROMOTION_128B = 2,
  ONS_L2_PROMOTION_256B = 3
} ons_tensor_map_l2;

typedef enum ons_tensor_map_flags {
  ONS_TENSOR_MAP_WRITE = 1u << 0,   /* the kernel writes through it */
  ONS_TENSOR_MAP_FILL_NAN = 1u << 1 /* elements out of bounds read as NaN, not 0 */
} ons_tensor_map_flags;

/* How a tensor becomes a tensor map (TMA's descriptor, in tiled mode). In the tensor's
 * own order of dimensions: the last is the innermost. The map is encoded anew by each
 * launch, from the memory that the tensor has then. */
typedef struct ons_tensor_map {
  uint32_t struct_size;                  /* sizeof(ons_tensor_map) */
  uint32_t flags;                        /* ons_tensor_map_flags */
  uint32_t rank;                         /* of the tensor: 1 to ONS_TENSOR_MAP_RANK_MAX */
  uint32_t swizzle;                      /* ons_tensor_map_swizzle */
  uint32_t l2;                           /* ons_tensor_map_l2 */
  uint32_t box[ONS_TENSOR_MAP_RANK_MAX]; /* elements that one copy moves: 1 to 256 */
  uint32_t steps[ONS_TENSOR_MAP_RANK_MAX]; /* between them, in elements; 0 is 1 */
} ons_tensor_map;

#define ONS_TENSOR_MAP_INIT                                                \
  {                                                                        \
    sizeof(ons_tensor_map), 0, 0, 0, 0, {0, 0, 0, 0, 0}, { 0, 0, 0, 0, 0 } \
  }

/* One argument. The struct is fixed: arrays of it are passed. Tensors are borrowed for
 * the call. Their memory is used until the device is past the launch: for memory that its
 * producer reuses in the order of the launch stream nothing needs to be done; other
 * memory (pinned host memory, say) is kept by the caller, or handed over in
 * ons_launch.retained. */
typedef struct ons_arg {
  uint32_t kind;  /* ons_arg_kind */
  uint32_t flags; /* ons_arg_flags; 0 for host memory and scalars */
  union {
    const DLTensor* tensor;
    int64_t i;
    uint64_t u;
    double f;
    const void* bytes;
    const struct ons_arg* items;
  } value;
  void* stream; /* with ONS_ARG_STREAM_KNOWN: the native handle (CUstream) */
  union {
    size_t size_bytes;                /* of ONS_ARG_BYTES */
    size_t item_count;                /* of ONS_ARG_LIST */
    const ons_tensor_map* tensor_map; /* of ONS_ARG_TENSOR_MAP */
  };
} ons_arg;

/* ---- launches --------------------------------------------------------------------- */

typedef enum ons_launch_flags {
  /* `stream` is given; else the first argument's with a known one. Refused when the
     launch would be on the CPU. */
  ONS_LAUNCH_STREAM = 1u << 0,
  /* `device` is given; else that of the first tensor in GPU memory, else the CPU. */
  ONS_LAUNCH_DEVICE = 1u << 1,
  /* Return NOT_READY instead of compiling or loading. */
  ONS_LAUNCH_NO_COMPILE = 1u << 2,
  /* `grid` counts threads: each axis is divided by the block's, rounded up, and so the
     kernel checks its range. A block of {0, 0, 0} then stands for {n, 1, 1}, with n from
     ons_kernel_max_potential_block_size, which is remembered. */
  ONS_LAUNCH_THREADS = 1u << 3
} ons_launch_flags;

/* What is done about arguments whose producers work on other streams than the launch
 * stream. */
typedef enum ons_order {
  ONS_ORDER_DEFAULT = 0, /* the runtime's */
  /* The launch stream waits, on the device, for what each other stream holds now, and
     each of them waits for the launch. The host never waits. */
  ONS_ORDER_JOIN = 1,
  /* Such a launch is refused. */
  ONS_ORDER_STRICT = 2,
  /* The caller vouches that every tensor may be used on the launch stream, and be used
     and freed by its producer afterwards: nothing is joined but the streams on which
     ONS_ARG_OUTPUT tensors were allocated. */
  ONS_ORDER_TRUST = 3
} ons_order;

/* Something to be kept alive until the device is past the launch; `release` may then be
 * called from any thread that uses the runtime, never from a driver's callback.
 *
 * Later launches on the device give back a few objects each. As soon as more than 1024
 * objects or 256 MiB are kept there, one of them gives back all that the device is past;
 * where it still needs most, the next one that does so comes at twice as much. */
typedef struct ons_retained {
  void* object;
  void (*release)(void* object);
  size_t device_bytes; /* of the device's memory that this keeps; 0 where not known */
} ons_retained;

/* Events of the caller's (native handles: CUevent) around a launch on a stream. A zero
 * grid waits and signals all the same.
 *
 * In a capture there are two kinds. One that was recorded in the same capture orders what
 * the capture records, and one that is signalled there becomes such; waiting for any
 * other breaks the capture, and the driver does not tell which kind an event is, so that
 * this cannot be refused before. EXTERNAL ones are recorded or waited for each time the
 * graph runs. Outside of captures the flags change nothing; there, waiting for an event
 * of a capture takes the stream into it. */
typedef enum ons_launch_events_flags {
  ONS_EVENTS_WAIT_EXTERNAL = 1u << 0,
  ONS_EVENTS_SIGNAL_EXTERNAL = 1u << 1
} ons_launch_events_flags;

typedef struct ons_launch_events {
  uint32_t struct_size; /* sizeof(ons_launch_events) */
  uint32_t flags;       /* ons_launch_events_flags */
  void* const* wait;    /* the stream waits for these first, on the device */
  size_t wait_count;
  void* const* signal; /* recorded last; each of the context of the stream */
  size_t signal_count;
} ons_launch_events;

#define ONS_LAUNCH_EVENTS_INIT \
  { sizeof(ons_launch_events), 0, 0, 0, 0, 0 }

/* A graph of the caller's that gets the launch as a node, instead of a stream. The
 * arguments are checked as in every launch, but no stream is looked at: their order, and
 * their memory until the graph's last run, are the caller's. The code stays loaded;
 * `retained` is kept by the graph and by what is instantiated from it. As in the driver,
 * one graph is for one thread at a time. */
typedef struct ons_launch_graph {
  uint32_t struct_size;      /* sizeof(ons_launch_graph) */
  uint32_t reserved;         /* 0 */
  void* graph;               /* CUgraph */
  void* const* dependencies; /* nodes of the graph (CUgraphNode) that run before */
  size_t dependency_count;
  void* out_node; /* set to the new node; for a zero grid an empty one */
} ons_launch_graph;

#define ONS_LAUNCH_GRAPH_INIT \
  { sizeof(ons_launch_graph), 0, 0, 0, 0, 0 }

typedef enum ons_launch_attributes_flags {
  /* All blocks of the grid run at a time, so that they may wait for each other. A grid
     that is too large for that is refused. */
  ONS_ATTRIBUTES_COOPERATIVE = 1u << 0,
  /* The kernel may begin before the one ahead of it in the stream has ended, if that one
     allows it, and waits for it by itself (griddepcontrol.wait). The kernel ahead may be
     anybody's: nothing else orders the two. */
  ONS_ATTRIBUTES_PROGRAMMATIC = 1u << 1,
  ONS_ATTRIBUTES_PRIORITY = 1u << 2, /* `priority` is given */
  ONS_ATTRIBUTES_CARVEOUT = 1u << 3  /* `carveout_percent` is given */
} ons_launch_attributes_flags;

/* What a launch may ask for beyond its configuration. On the CPU, which has no clusters,
 * a cooperative launch makes a thread of the system for each block, and the other three
 * are without effect. */
typedef struct ons_launch_attributes {
  uint32_t struct_size; /* sizeof(ons_launch_attributes) */
  uint32_t flags;       /* ons_launch_attributes_flags */
  uint32_t cluster[3];  /* in blocks, each a divisor of the grid's; {0, 0, 0}: none */
  int32_t priority;     /* as of CUDA streams: the lower, the sooner */
  uint32_t carveout_percent; /* 0 to 100 of the L1 cache as shared memory; a hint */
} ons_launch_attributes;

#define ONS_LAUNCH_ATTRIBUTES_INIT \
  { sizeof(ons_launch_attributes), 0, {0, 0, 0}, 0, 0 }

/* Threads of the caller's that share the blocks of a launch on the CPU, in place of the
 * runtime's own: another library's pool, say. */
typedef struct ons_executor {
  /* Has task(data) called once, by any thread, now or later: the launch waits for no task
     that has not begun when all blocks are taken. */
  void (*schedule)(void* user_data, void (*task)(void* data), void* data);
  void* user_data;
  uint32_t thread_count; /* the calling thread among them */
  uint32_t reserved;     /* 0 */
} ons_executor;

typedef struct ons_launch {
  uint32_t struct_size;  /* sizeof(ons_launch) */
  uint32_t flags;        /* ons_launch_flags */
  uint32_t grid[3];      /* in blocks; a zero makes the launch a no-op after all checks */
  uint32_t block[3];     /* in threads */
  uint32_t shared_bytes; /* dynamic shared memory per block */
  uint32_t order;        /* ons_order */
  void* stream;          /* native handle; on CUDA 0 and 1 are the legacy stream, 2 the
                            per-thread one */
  DLDevice device;
  const ons_retained* retained; /* ownership passes when the kernel was enqueued: on OK,
                                   and on a failure whose error says `launched` */
  size_t retained_count;
  ons_launch_graph* graph;                 /* launch into this graph; NULL: on a stream */
  const ons_launch_events* events;         /* NULL: none */
  const ons_launch_attributes* attributes; /* NULL: none */
  const ons_executor* executor; /* of a launch on the CPU; NULL: the runtime's */
} ons_launch;

#define ONS_LAUNCH_INIT                                                                  \
  {                                                                                      \
    sizeof(ons_launch), 0, {1, 1, 1}, {1, 1, 1}, 0, 0, 0, {(DLDeviceType)0, 0}, 0, 0, 0, \
        0, 0, 0                                                                          \
  }

/* Launches `kernel` on the arguments. On a CPU the launch is complete on return; on a GPU
 * it has been enqueued. Thread-safe. Legal in capture. `error` may be NULL, but then
 * nobody learns whether a failed launch took what was to be retained. Errors:
 * ARGUMENT_TYPE, ARGUMENT_VALUE, ORDER, CAPTURE, NOT_READY, DEVICE, UNSUPPORTED,
 * OUT_OF_MEMORY, INVALID_ARGUMENT, and at the first use on a device those of
 * ons_kernel_prepare. */
ONS_API ONS_NODISCARD ons_status ons_kernel_launch(ons_kernel* kernel,
                                                   const ons_launch* launch,
                                                   const ons_arg* args, size_t arg_count,
                                                   ons_error* error);

/* Gives a kernel node of an instantiated graph other arguments and another configuration,
 * for its runs from now on: `exec` is a CUgraphExec, `node` the node that a launch into
 * the graph gave, of the same kernel or another on the same device. Checks as a launch
 * into a graph does; `launch` has neither stream, graph, events nor retained objects, and
 * no zero grid. Errors: as ons_kernel_launch. */
ONS_API ONS_NODISCARD ons_status ons_kernel_update_node(
    ons_kernel* kernel, void* exec, void* node, const ons_launch* launch,
    const ons_arg* args, size_t arg_count, ons_error* error);

typedef struct ons_launch_plan {
  uint32_t struct_size;   /* sizeof(ons_launch_plan), set by the caller */
  uint32_t capture_state; /* 0: `stream` is not being captured, 1: it is */
  DLDevice device;
  void* stream;      /* where a launch with these arguments would go; NULL for a graph */
  uint32_t order;    /* the ons_order in force, never 0 */
  uint32_t reserved; /* 0 */
} ons_launch_plan;

#define ONS_LAUNCH_PLAN_INIT \
  { sizeof(ons_launch_plan), 0, {(DLDeviceType)0, 0}, 0, 0, 0 }

/* Where would a launch go? For callers that must tell a producer the launch stream before
 * it hands its tensor over: those arguments are ONS_ARG_PENDING with value.tensor
 * pointing at a DLTensor of which only `device` is read. Touches no stream. With
 * ONS_LAUNCH_NO_COMPILE it is NOT_READY, and |out_plan| is set all the same, as long as
 * the kernel is not prepared there: less is then known of what would be refused. Errors:
 * ORDER, CAPTURE, UNSUPPORTED, UNAVAILABLE, DEVICE, INVALID_ARGUMENT. */
ONS_API ONS_NODISCARD ons_status ons_launch_resolve(ons_kernel* kernel,
                                                    const ons_launch* launch,
                                                    const ons_arg* args, size_t arg_count,
                                                    ons_launch_plan* out_plan,
                                                    ons_error* error);

ONS_END_DECLS

#endif /* ONSTREAM_LAUNCH_H_ */
