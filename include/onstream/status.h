/* Status codes and the caller-owned error detail.
 *
 * Every function that can fail returns an ons_status and takes an optional `ons_error*`.
 * The error is plain caller-owned storage: nothing in it needs freeing, it is written
 * only on failure, and NULL is accepted everywhere. There is no per-thread last error. */
#ifndef ONSTREAM_STATUS_H_
#define ONSTREAM_STATUS_H_

#include <onstream/export.h>
#include <stdint.h>

/* XX(NAME, value, text). Values are pinned: they never change and are never reused. */
#define ONS_STATUS_MAP(XX)                                                               \
  XX(OK, 0, "success")                                                                   \
  /* The call itself is malformed: NULL where an object is needed, a bad struct_size. */ \
  XX(INVALID_ARGUMENT, 1, "invalid argument")                                            \
  /* A kernel argument has the wrong type: dtype, a tensor for an int, too many. */      \
  XX(ARGUMENT_TYPE, 2, "kernel argument of the wrong type")                              \
  /* Right type, unusable value: range, layout, device; a launch size over the limits.   \
   */                                                                                    \
  XX(ARGUMENT_VALUE, 3, "kernel argument with an unusable value")                        \
  /* No kernel, file or entry of that name. */                                           \
  XX(NOT_FOUND, 4, "not found")                                                          \
  /* A driver, compiler or device is not on this machine; the message says what was      \
     tried. */                                                                           \
  XX(UNAVAILABLE, 5, "unavailable")                                                      \
  /* Understood, but not something this backend or version can do. */                    \
  XX(UNSUPPORTED, 6, "unsupported")                                                      \
  XX(OUT_OF_MEMORY, 7, "out of memory")                                                  \
  /* The compiler rejected the source; its log is available as a blob. */                \
  XX(COMPILE_FAILED, 8, "compilation failed")                                            \
  /* A driver call failed; native_code and native_call say which. */                     \
  XX(DEVICE, 9, "device error")                                                          \
  /* The streams of the arguments cannot be put in order. */                             \
  XX(ORDER, 10, "stream order")                                                          \
  /* Not legal while a stream is being captured, or the capture was broken before; this  \
     call has not harmed it. */                                                          \
  XX(CAPTURE, 11, "not possible during stream capture")                                  \
  /* The kernel is not prepared yet, and the call may not or cannot do it. */            \
  XX(NOT_READY, 12, "not prepared")                                                      \
  XX(IO, 13, "input or output error")                                                    \
  XX(INTERNAL, 14, "internal error")                                                     \
  /* The host's hook said so; blocks of the kernel may have run. */                      \
  XX(INTERRUPTED, 15, "interrupted")

typedef enum ons_status {
#define ONS_STATUS_ENUM(name, value, text) ONS_STATUS_##name = value,
  ONS_STATUS_MAP(ONS_STATUS_ENUM)
#undef ONS_STATUS_ENUM
      ONS_STATUS_FORCE_INT32 = 0x7fffffff
} ons_status;

#define ONS_ERROR_MESSAGE_BYTES 1024

typedef struct ons_error {
  uint32_t struct_size;    /* sizeof(ons_error); set by ONS_ERROR_INIT */
  ons_status code;         /* what the function returned */
  int32_t native_code;     /* the driver's or compiler's own code, 0 when there is none */
  uint32_t launched;       /* 1: the kernel *was* enqueued before this failure */
  const char* native_call; /* static name of the failing foreign call, or NULL */
  char message[ONS_ERROR_MESSAGE_BYTES]; /* always NUL-terminated, UTF-8 */
} ons_error;

#define ONS_ERROR_INIT                               \
  {                                                  \
    sizeof(ons_error), ONS_STATUS_OK, 0, 0, 0, { 0 } \
  }

ONS_BEGIN_DECLS

/* "ARGUMENT_TYPE" for ONS_STATUS_ARGUMENT_TYPE; "UNKNOWN" for a value not in the list.
 * Static. */
ONS_API const char* ons_status_name(ons_status status);

/* A short English phrase for the status. Static; never NULL. */
ONS_API const char* ons_status_text(ons_status status);

ONS_END_DECLS

#endif /* ONSTREAM_STATUS_H_ */
