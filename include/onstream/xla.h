/* Kernels inside XLA programs: handlers for XLA's foreign function interface (typed
 * custom calls), under jax.jit or in any other host of PJRT.
 *
 * A host registers the functions below under the two target names on each platform, once,
 * before its first program is compiled:
 *
 *   platform "cpu"   instantiate  ons_xla_cpu_instantiate
 *                    execute      ons_xla_cpu_execute              (both targets)
 *   platform "CUDA"  instantiate  ons_xla_cuda_instantiate
 *                    initialize   ons_xla_cuda_initialize
 *                    execute      ons_xla_cuda_execute             (ONS_XLA_TARGET)
 *                                 ons_xla_cuda_execute_nograph     (..._NOGRAPH)
 *
 * They take and return XLA's own types, so that no cast is needed where XLA's
 * c_api.h is included, and none of XLA's headers is needed here. Versions of XLA's
 * interface from 0.1 on are served. The handlers may be called in any thread and at the
 * same time, and need neither Python nor its lock.
 *
 * What a call does is in its attributes, and nowhere else: they hold no pointers, so that
 * a program may be kept in a file, and run by a process which has never made the kernel.
 *
 *   version       i64     1
 *   digest        string  names the module: the same for equal modules, another for
 *                         others. 1 to 128 bytes, mostly a hash of the six below
 *   bundle        string  a bundle (onstream/bundle.h), in place of the five below
 *   source        string  the module's; with neither, the module has to be known already
 *                         (ons_xla_module_register)
 *   name          string  ons_module_options.name; empty: its default
 *   options       string  ons_module_options.options: each is its length in bytes,
 *                         decimal, ':' and the text: "6:-DN=128:-DM=4096"
 *   headers       string  likewise, each header's name and then its content
 *   flags         i64     ons_module_flags
 *   kernel        string  as for ons_module_kernel: "axpy", "scale<float, 4>"
 *   grid, block   i64[3]  as in ons_launch
 *   shared_bytes  i64     as in ons_launch
 *   plan          i64[]   for each argument two: an ons_xla_plan and its value
 *   scalars       string  the values of ONS_XLA_SCALAR arguments
 *   aliases       i64[]   for each result that is written in place of an operand two: the
 *                         operand, the result. The program's own input-output aliases
 *
 * version, digest, kernel, grid and block are there; all others may be left out, which is
 * as if they were 0 or empty.
 *
 * A source is compiled (of a bundle, only what it lacks) when XLA makes the executable:
 * for the CPU, and for each GPU that the process uses by then. It is loaded on a GPU when
 * the executable is about to run there for the first time. A run then only launches: on
 * XLA's stream and in its captures, or on the CPU with XLA's own threads. The runtime's
 * interrupt hook is not asked in threads of XLA's. Modules that programs use stay, with
 * their code, for the life of the process, because XLA does not tell which programs may
 * still run.
 *
 * The arguments are checked against the kernel's own signature as in every launch.
 * Operands can only be read. A result is for a parameter that is written, and one that
 * the plan does not name is refused, since nobody would write it; so is one that shares
 * memory with an operand of the plan unless `aliases` says so, and a pair of `aliases`
 * that XLA has not put into one place. Buffers have the dense row-major layout that XLA
 * gives them by default. Elements of less than a byte are UNIMPLEMENTED. Errors are
 * XLA's, with onstream's message and, where the compiler refused the source, its log. */
#ifndef ONSTREAM_XLA_H_
#define ONSTREAM_XLA_H_

#include <onstream/export.h>
#include <onstream/module.h>
#include <onstream/runtime.h>
#include <onstream/status.h>
#include <stdint.h>

/* Of XLA's c_api.h. */
struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;

/* The names of the two targets. The first may be recorded into command buffers (CUDA
 * graphs), whose runs do not call it again. */
#define ONS_XLA_TARGET "onstream.launch"
#define ONS_XLA_TARGET_NOGRAPH "onstream.launch_nograph"

enum { ONS_XLA_VERSION = 1 };

typedef enum ons_xla_plan {
  ONS_XLA_OPERAND = 0, /* value: the operand's index; tokens count */
  ONS_XLA_RESULT = 1,  /* value: the result's index; tokens count */
  ONS_XLA_SCALAR = 2,  /* value: the offset of a record in `scalars`: ons_arg_kind and the
                          size of the value in bytes, 32 bits each, and then the value. It
                          has 8 bytes for the kinds ONS_ARG_INT, UINT, FLOAT and BOOL;
                          ONS_ARG_BYTES is the only other kind. The machine's byte order;
                          aligned or not */
  ONS_XLA_NULL = 3,    /* a null pointer */
  ONS_XLA_LIST = 4     /* value: how many of the entries that follow are its items; for
                          ons::ptrs */
} ons_xla_plan;

ONS_BEGIN_DECLS

/* The handlers. XX(platform, stage) */
#define ONS_XLA_HANDLERS(XX) \
  XX(cpu, instantiate)       \
  XX(cpu, execute)           \
  XX(cuda, instantiate)      \
  XX(cuda, initialize)       \
  XX(cuda, execute)          \
  XX(cuda, execute_nograph)

#define ONS_XLA_DECLARE(platform, stage)                      \
  ONS_API struct XLA_FFI_Error* ons_xla_##platform##_##stage( \
      struct XLA_FFI_CallFrame* call_frame);
ONS_XLA_HANDLERS(ONS_XLA_DECLARE)
#undef ONS_XLA_DECLARE

/* The runtime that modules of XLA programs are made in, kept from then on. Without one,
 * the first program makes a runtime with default options. Any thread. Errors:
 * INVALID_ARGUMENT when another runtime is in use already. */
ONS_API ONS_NODISCARD ons_status ons_xla_runtime_set(ons_runtime* runtime,
                                                     ons_error* error);

/* Makes a module known under a digest, for programs that have the digest only; those that
 * have the source use what it has compiled already. The module is kept for the life of
 * the process, but of modules that are equal only the first. Any thread. Errors:
 * INVALID_ARGUMENT, also for a digest that is another module's; OUT_OF_MEMORY. */
ONS_API ONS_NODISCARD ons_status ons_xla_module_register(ons_module* module,
                                                         const char* digest,
                                                         ons_error* error);

ONS_END_DECLS

#endif /* ONSTREAM_XLA_H_ */
