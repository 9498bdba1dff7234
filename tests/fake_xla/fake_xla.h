/* A stand-in for XLA: call frames with operands, results and attributes, and the table
 * that handlers call back, which counts the errors that are alive. */
#ifndef ONS_TESTS_FAKE_XLA_FAKE_XLA_H_
#define ONS_TESTS_FAKE_XLA_FAKE_XLA_H_

#include <onstream/onstream.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/xla_abi.h"

/* What no XLA would do, or survive. */
#define XLA_CHECK(condition)                                                        \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      abort();                                                                      \
    }                                                                               \
  } while (0)

/* ---- errors ----------------------------------------------------------------------- */

struct XLA_FFI_Error {
  int code;
  char message[8192];
};

/* clang-format off */
enum { /* of absl::Status */
  INVALID_ARGUMENT = 3, NOT_FOUND = 5, FAILED_PRECONDITION = 9, UNIMPLEMENTED = 12,
  INTERNAL = 13
};
/* clang-format on */

static atomic_int xla_live_errors, xla_made_errors;

static inline ons__xla_error* xla_error_create(ons__xla_error_create* args) {
  XLA_CHECK(args->struct_size == 28);
  XLA_CHECK(args->code != 0);
  ons__xla_error* error = calloc(1, sizeof(*error));
  error->code = args->code;
  strncpy(error->message, args->message, sizeof(error->message) - 1);
  atomic_fetch_add(&xla_live_errors, 1);
  atomic_fetch_add(&xla_made_errors, 1);
  return error;
}

static inline void xla_error_destroy(ons__xla_error_destroy* args) {
  XLA_CHECK(args->struct_size == 24);
  XLA_CHECK(args->error != NULL);
  atomic_fetch_sub(&xla_live_errors, 1);
  free(args->error);
}

static inline ons__xla_error* xla_own_error(const char* message) {
  ons__xla_error_create args = {
      .struct_size = 28, .message = message, .code = UNIMPLEMENTED};
  return xla_error_create(&args);
}

/* ---- context ---------------------------------------------------------------------- */

typedef enum xla_pool_mode {
  XLA_POOL_INLINE,  /* tasks run in the caller's thread, at once */
  XLA_POOL_THREADS, /* each in a thread */
  XLA_POOL_LATE,    /* when the test says so, after the call */
  XLA_POOL_REFUSES
} xla_pool_mode;

enum { XLA_TASKS_MAX = 256 };

typedef struct xla_task {
  void (*run)(void* data);
  void* data;
  pthread_t thread;
} xla_task;

typedef struct xla_context {
  void* stream; /* with has_stream */
  bool has_stream;
  xla_pool_mode mode;
  int64_t thread_count; /* 0: the question fails */
  size_t task_count;
  xla_task tasks[XLA_TASKS_MAX];
} xla_context;

static inline ons__xla_error* xla_stream_get(ons__xla_stream_get* args) {
  const xla_context* context = args->context;
  XLA_CHECK(args->struct_size == sizeof(*args));
  if (!context->has_stream) return xla_own_error("GPU stream is not available");
  args->stream = context->stream;
  return NULL;
}

static inline void* xla_task_thread(void* task_pointer) {
  const xla_task* task = task_pointer;
  task->run(task->data);
  return NULL;
}

static inline ons__xla_error* xla_thread_schedule(ons__xla_schedule* args) {
  xla_context* context = args->context;
  XLA_CHECK(args->struct_size == sizeof(*args));
  if (context->mode == XLA_POOL_REFUSES) return xla_own_error("no thread pool");
  XLA_CHECK(context->task_count < XLA_TASKS_MAX);
  xla_task* task = &context->tasks[context->task_count++];
  *task = (xla_task){.run = args->task, .data = args->data};
  if (context->mode == XLA_POOL_INLINE) task->run(task->data);
  if (context->mode == XLA_POOL_THREADS) {
    XLA_CHECK(pthread_create(&task->thread, NULL, xla_task_thread, task) == 0);
  }
  return NULL;
}

/* After the call: what was put off, and what is still running. */
static inline void xla_finish_tasks(xla_context* context) {
  for (size_t i = 0; i < context->task_count; ++i) {
    if (context->mode == XLA_POOL_LATE) context->tasks[i].run(context->tasks[i].data);
    if (context->mode == XLA_POOL_THREADS) pthread_join(context->tasks[i].thread, NULL);
  }
  context->task_count = 0;
}

static inline ons__xla_error* xla_thread_count(ons__xla_thread_count* args) {
  const xla_context* context = args->context;
  XLA_CHECK(args->struct_size == sizeof(*args));
  if (context->thread_count == 0) return xla_own_error("no thread pool");
  *args->count = context->thread_count;
  return NULL;
}

static const ons__xla_api xla_table = {
    .struct_size = ONS__XLA_API_WHOLE_BYTES,
    .version = {.struct_size = sizeof(ons__xla_version), .major = 0, .minor = 3},
    .error_create = xla_error_create,
    .error_destroy = xla_error_destroy,
    .stream_get = xla_stream_get,
    .thread_schedule = xla_thread_schedule,
    .thread_count = xla_thread_count};

/* ---- calls ------------------------------------------------------------------------ */

enum { XLA_BUFFERS_MAX = 300, XLA_ATTRIBUTES_MAX = 20 };

typedef struct xla_attribute {
  ons__xla_text name;
  int type;
  union {
    ons__xla_text text;
    ons__xla_array array;
    ons__xla_scalar scalar;
  } value;
  int64_t number;
} xla_attribute;

typedef struct xla_call {
  ons__xla_api api;
  xla_context context;
  ons__xla_frame frame;
  ons__xla_buffer operands[XLA_BUFFERS_MAX], results[XLA_BUFFERS_MAX];
  void *operand_pointers[XLA_BUFFERS_MAX], *result_pointers[XLA_BUFFERS_MAX];
  int buffer_types[XLA_BUFFERS_MAX];
  xla_attribute attributes[XLA_ATTRIBUTES_MAX];
  size_t attribute_count;
  ons__xla_text* names[XLA_ATTRIBUTES_MAX];
  int types[XLA_ATTRIBUTES_MAX];
  void* values[XLA_ATTRIBUTES_MAX];
  int64_t grid[3], block[3];
} xla_call;

static inline void xla_buffer_set(ons__xla_buffer* buffer, int dtype, void* data,
                                  int64_t rank, int64_t* dims) {
  *buffer = (ons__xla_buffer){.struct_size = sizeof(*buffer),
                              .dtype = dtype,
                              .data = data,
                              .rank = rank,
                              .dims = dims};
}

static inline void xla_operand(xla_call* call, int dtype, void* data, int64_t rank,
                               int64_t* dims) {
  xla_buffer_set(&call->operands[call->frame.operands.size++], dtype, data, rank, dims);
}

static inline void xla_result(xla_call* call, int dtype, void* data, int64_t rank,
                              int64_t* dims) {
  xla_buffer_set(&call->results[call->frame.results.size++], dtype, data, rank, dims);
}

/* A new one, or that of the name once more. */
static inline xla_attribute* xla_attribute_at(xla_call* call, const char* name) {
  size_t length = strlen(name);
  size_t i = 0;
  while (i < call->attribute_count &&
         (call->attributes[i].name.size_bytes != length ||
          memcmp(call->attributes[i].name.data, name, length) != 0)) {
    ++i;
  }
  if (i == call->attribute_count) {
    XLA_CHECK(call->attribute_count < XLA_ATTRIBUTES_MAX);
    ++call->attribute_count;
  }
  call->attributes[i] = (xla_attribute){.name = {name, length}};
  return &call->attributes[i];
}

static inline void xla_bytes(xla_call* call, const char* name, const void* data,
                             size_t size_bytes) {
  xla_attribute* attribute = xla_attribute_at(call, name);
  attribute->type = ONS__XLA_STRING;
  attribute->value.text = (ons__xla_text){data, size_bytes};
}

static inline void xla_text(xla_call* call, const char* name, const char* text) {
  xla_bytes(call, name, text, strlen(text));
}

static inline void xla_number(xla_call* call, const char* name, int64_t number) {
  xla_attribute* attribute = xla_attribute_at(call, name);
  attribute->type = ONS__XLA_SCALAR;
  attribute->number = number;
  attribute->value.scalar = (ons__xla_scalar){ONS__XLA_S64, &attribute->number};
}

static inline void xla_numbers(xla_call* call, const char* name, const int64_t* values,
                               size_t count) {
  xla_attribute* attribute = xla_attribute_at(call, name);
  attribute->type = ONS__XLA_ARRAY;
  attribute->value.array = (ons__xla_array){ONS__XLA_S64, count, (void*)values};
}

#define XLA_NUMBERS(call, name, ...)                                      \
  do {                                                                    \
    static const int64_t values_[] = {__VA_ARGS__};                       \
    xla_numbers(call, name, values_, sizeof(values_) / sizeof(*values_)); \
  } while (0)

static inline void xla_drop(xla_call* call, const char* name) {
  xla_attribute* attribute = xla_attribute_at(call, name);
  *attribute = call->attributes[--call->attribute_count];
  if (attribute->type == ONS__XLA_SCALAR) {
    attribute->value.scalar.value = &attribute->number;
  }
}

/* With all attributes that a call must have; the digest stands for the source. */
static inline xla_call* xla_call_create(const char* source, const char* kernel,
                                        int64_t grid_x, int64_t block_x) {
  xla_call* call = calloc(1, sizeof(*call));
  call->api = xla_table;
  call->context.thread_count = 2;
  for (int i = 0; i < 3; ++i) call->grid[i] = call->block[i] = 1;
  call->grid[0] = grid_x;
  call->block[0] = block_x;
  xla_number(call, "version", 1);
  xla_text(call, "digest", "0123456789abcdef");
  xla_text(call, "source", source);
  xla_text(call, "kernel", kernel);
  xla_numbers(call, "grid", call->grid, 3);
  xla_numbers(call, "block", call->block, 3);
  return call;
}

static inline int xla_compare_names(const void* a, const void* b) {
  const ons__xla_text *left = &((const xla_attribute*)a)->name,
                      *right = &((const xla_attribute*)b)->name;
  size_t shorter =
      left->size_bytes < right->size_bytes ? left->size_bytes : right->size_bytes;
  int order = memcmp(left->data, right->data, shorter);
  return order ? order : (int)left->size_bytes - (int)right->size_bytes;
}

typedef struct XLA_FFI_Error* xla_handler(struct XLA_FFI_CallFrame* call_frame);

/* What XLA passes, attributes sorted; it borrows from the call, as it is now. */
static inline ons__xla_frame xla_frame(xla_call* call, int stage) {
  qsort(call->attributes, call->attribute_count, sizeof(*call->attributes),
        xla_compare_names);
  for (size_t i = 0; i < call->attribute_count; ++i) {
    xla_attribute* attribute = &call->attributes[i];
    if (attribute->type == ONS__XLA_SCALAR) {
      attribute->value.scalar.value = &attribute->number;
    }
    call->names[i] = &attribute->name;
    call->types[i] = attribute->type;
    call->values[i] = &attribute->value;
  }
  for (size_t i = 0; i < XLA_BUFFERS_MAX; ++i) {
    call->buffer_types[i] = ONS__XLA_BUFFER;
    call->operand_pointers[i] = &call->operands[i];
    call->result_pointers[i] = &call->results[i];
  }
  ons__xla_frame frame = call->frame;
  if (frame.struct_size == 0) frame.struct_size = ONS__XLA_FRAME_BYTES;
  frame.api = &call->api;
  frame.context = &call->context;
  frame.stage = stage;
  frame.operands.struct_size = frame.results.struct_size = sizeof(ons__xla_buffers);
  frame.operands.types = frame.results.types = call->buffer_types;
  frame.operands.values = call->operand_pointers;
  frame.results.values = call->result_pointers;
  if (stage == ONS__XLA_INSTANTIATE) frame.operands.size = frame.results.size = 0;
  frame.attributes = (ons__xla_attribute_list){.struct_size = sizeof(frame.attributes),
                                               .size = (int64_t)call->attribute_count,
                                               .types = call->types,
                                               .names = call->names,
                                               .values = call->values};
  return frame;
}

/* Calls a handler; the error is the caller's. Of calls at the same time, each has an
 * xla_call. */
static inline ons__xla_error* xla_run(xla_call* call, xla_handler* handler, int stage) {
  ons__xla_frame frame = xla_frame(call, stage);
  ons__xla_error* error = handler((struct XLA_FFI_CallFrame*)&frame);
  XLA_CHECK(frame.future == NULL);
  return error;
}

static inline void xla_drop_error(ons__xla_error* error) {
  ons__xla_error_destroy args = {.struct_size = sizeof(args), .error = error};
  if (error) xla_error_destroy(&args);
}

static inline void xla_call_destroy(xla_call* call) {
  xla_finish_tasks(&call->context);
  free(call);
}

#endif /* ONS_TESTS_FAKE_XLA_FAKE_XLA_H_ */
