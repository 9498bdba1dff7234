/* onstream: launch CUDA C++ kernels on other people's tensors, on the stream those
 * tensors are already on.
 *
 *   ons_runtime  libraries, devices, memory     (onstream/runtime.h)
 *   ons_module   source                         (onstream/module.h)
 *   ons_kernel   a name in it, and launches     (onstream/launch.h)
 *   bundles      compiled ahead of time         (onstream/bundle.h)
 *   ons_tensor   memory of others, kept         (onstream/tensor.h)
 *   ons_error    what went wrong                (onstream/status.h)
 *   ons_xla_*    handlers for XLA               (onstream/xla.h)
 *
 * Ownership. `*_create` and ons_module_kernel give the caller one reference, which
 * `*_release` gives back; parameters are borrowed for the call unless their comment says
 * otherwise; outputs come last and are named out_x. Threads. Every function may be called
 * from several threads at once, on the same objects too; releasing the last reference
 * while another thread uses the object is the caller's mistake. Versions. Structs that
 * may grow begin with struct_size, which their *_INIT macro sets; a library reads no more
 * than that and takes the rest as zero. Streams. A stream is the driver's own handle (a
 * CUstream) and belongs to whoever made it. Processes. A CUDA context does not survive
 * fork(): launches in the child are refused. */
#ifndef ONSTREAM_ONSTREAM_H_
#define ONSTREAM_ONSTREAM_H_

#include <onstream/bundle.h>
#include <onstream/dlpack.h>
#include <onstream/export.h>
#include <onstream/launch.h>
#include <onstream/module.h>
#include <onstream/runtime.h>
#include <onstream/status.h>
#include <onstream/tensor.h>
#include <onstream/version.h>
#include <onstream/xla.h>

#endif /* ONSTREAM_ONSTREAM_H_ */
