/* The CPU as a device: kernels compiled by the host's C++ compiler, run to their end by
 * the launch. There are no streams, so none of the optional slots is filled. */
#include <assert.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/compiler_identity.h"
#include "jit/host_compiler.h"
#include "jit/shared_object.h"
#include "runtime/backend.h"
#include "runtime/backends/cpu/cpu_grid.h"
#include "runtime/backends/cpu/cpu_pool.h"
#include "runtime/backends/cpu/cpu_work.h"
#include "runtime/backends/cpu/cpu_worker.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/thread.h"

enum {
  /* Waking the pool costs about this much; a launch that is done sooner never pays it. */
  ALONE_NS = 20000,
  /* Of a cooperative launch: each is an OS thread. */
  BLOCKS_PER_THREAD = 32
};

typedef struct cpu_backend {
  ons__backend base;
  ons__host_compiler* compiler;
  _Atomic(ons__cpu_pool*) pool; /* NULL until the first launch that is worth it */
} cpu_backend;

typedef struct cpu_device {
  ons__device base;
  uint32_t thread_count;
} cpu_device;

typedef struct cpu_function {
  const ons_cpu_kernel* kernel;
  /* What a block of it last took, 0 at first: whether to share a launch from its start.
   */
  atomic_uint_fast64_t block_ns;
  struct cpu_function* next;
} cpu_function;

typedef struct cpu_binary {
  ons__binary base;
  ons__shared_object* object;
  ons__mutex mutex; /* guards `functions` */
  cpu_function* functions;
} cpu_binary;

static const ons_allocator* allocator_of(const ons__device* device) {
  return device->backend->settings->allocator;
}

/* ---- the device ------------------------------------------------------------------- */

static ons_status device_count(ons__backend* backend, int32_t* out_count,
                               ons_error* error) {
  (void)backend;
  (void)error;
  *out_count = 1;
  return ONS_STATUS_OK;
}

/* The processors this process may run on. */
static uint32_t usable_processors(void) {
  for (size_t capacity = 1024; capacity <= 1 << 16; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    if (!set) break;
    int rc = sched_getaffinity(0, CPU_ALLOC_SIZE(capacity), set);
    int count = rc == 0 ? CPU_COUNT_S(CPU_ALLOC_SIZE(capacity), set) : 0;
    CPU_FREE(set);
    if (count > 0) return (uint32_t)count;
  }
  return 1;
}

static uint32_t choose_thread_count(const ons__settings* settings) {
  enum { MOST = 4096 };
  if (settings->cpu_thread_count) {
    return settings->cpu_thread_count < MOST ? settings->cpu_thread_count : MOST;
  }
  const char* text = getenv("ONSTREAM_CPU_THREADS");
  char* end = NULL;
  unsigned long wanted = text ? strtoul(text, &end, 10) : 0;
  if (text && end != text && !*end && wanted >= 1 && wanted <= MOST)
    return (uint32_t)wanted;
  return usable_processors();
}

static void read_model(char* out_name, size_t capacity) {
  snprintf(out_name, capacity, "CPU");
  FILE* file = fopen("/proc/cpuinfo", "re");
  if (!file) return;
  char line[256];
  while (fgets(line, sizeof(line), file)) {
    if (strncmp(line, "model name", 10) != 0) continue;
    const char* value = strchr(line, ':');
    if (!value) continue;
    value += 1 + strspn(value + 1, " \t");
    if (*value && *value != '\n') {
      snprintf(out_name, capacity, "%.*s", (int)strcspn(value, "\n"), value);
    }
    break;
  }
  fclose(file);
}

static ons_status device_open(ons__backend* backend, int32_t ordinal,
                              ons__device** out_device, ons_error* error) {
  *out_device = NULL;
  if (ordinal != 0) {
    return ons__error_set(error, ONS_STATUS_INVALID_ARGUMENT,
                          "there is no CPU device %d, only device 0", (int)ordinal);
  }
  cpu_device* device = ons__alloc(backend->settings->allocator, sizeof(*device));
  if (!device) return ons__error_no_memory(error);
  device->thread_count = choose_thread_count(backend->settings);
  ons__device* base = &device->base;
  base->backend = backend;
  base->device = (DLDevice){kDLCPU, 0};
  base->limits = (ons__device_limits){.grid = {INT32_MAX, 65535, 65535},
                                      .block = {1024, 1024, 64},
                                      .threads_per_block = 1024,
                                      .shared_bytes = ONS__CPU_SHARED_BYTES};
  base->traits.multiprocessor_count = device->thread_count;
  base->traits.threads_per_multiprocessor = BLOCKS_PER_THREAD * ONS__CPU_BLOCK_THREADS;
  base->traits.has_cooperative = true;
  snprintf(base->arch, sizeof(base->arch), "native");
  char model[96];
  read_model(model, sizeof(model));
  snprintf(base->name, sizeof(base->name), "%s, %u thread%s", model,
           (unsigned)device->thread_count, device->thread_count == 1 ? "" : "s");
  *out_device = base;
  return ONS_STATUS_OK;
}

static void device_close(ons__device* device) {
  if (device) ons__free(allocator_of(device), device);
}

/* ---- code ------------------------------------------------------------------------- */

static ons_status compile(ons__backend* base, const ons__compile_request* request,
                          ons__image** out_image, char** out_log, ons_error* error) {
  cpu_backend* backend = (cpu_backend*)base;
  return ons__host_compiler_compile(backend->compiler, request, out_image, out_log,
                                    error);
}

static ons__host_search_options search_options(const ons__settings* settings) {
  return (ons__host_search_options){.allocator = settings->allocator,
                                    .explicit_command = settings->host_compiler_path,
                                    .locate = settings->locate,
                                    .locate_user_data = settings->locate_user_data,
                                    .interrupt = settings->interrupt,
                                    .interrupt_user_data = settings->interrupt_user_data};
}

static bool identify(ons__backend* backend, const ons__compile_request* request,
                     ons__string* out_text) {
  const ons__host_search_options options = search_options(backend->settings);
  return ons__host_identify(&options, request->arch, out_text);
}

static ons_status load(ons__device* device, const ons__image* image,
                       ons__binary** out_binary, ons_error* error) {
  *out_binary = NULL;
  if (image->kind != ONS__IMAGE_SHARED_OBJECT) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "the CPU loads shared objects, not images of kind %d",
                          (int)image->kind);
  }
  cpu_binary* binary = ons__alloc(allocator_of(device), sizeof(*binary));
  if (!binary) return ons__error_no_memory(error);
  binary->object = ons__shared_object_claim(image->object);
  if (!binary->object) {
    ons_status status = ons__shared_object_open(
        allocator_of(device), image->code, image->code_bytes, &binary->object, error);
    if (status != ONS_STATUS_OK) {
      ons__free(allocator_of(device), binary);
      return status;
    }
  }
  binary->base.device = device;
  ons__mutex_init(&binary->mutex);
  *out_binary = &binary->base;
  return ONS_STATUS_OK;
}

static void unload(ons__binary* base) {
  if (!base) return;
  cpu_binary* binary = (cpu_binary*)base;
  const ons_allocator* allocator = allocator_of(base->device);
  while (binary->functions) {
    cpu_function* function = binary->functions;
    binary->functions = function->next;
    ons__free(allocator, function);
  }
  ons__shared_object_release(binary->object);
  ons__mutex_destroy(&binary->mutex);
  ons__free(allocator, binary);
}

/* One entry for each kernel, so that all who have asked for it share what is known of its
 * speed. NULL when out of memory. */
static cpu_function* find_or_add(cpu_binary* binary, const ons_cpu_kernel* kernel) {
  ons__mutex_lock(&binary->mutex);
  cpu_function* entry = binary->functions;
  while (entry && entry->kernel != kernel) entry = entry->next;
  if (!entry) entry = ons__alloc(allocator_of(binary->base.device), sizeof(*entry));
  if (entry && !entry->kernel) {
    entry->kernel = kernel;
    entry->next = binary->functions;
    binary->functions = entry;
  }
  ons__mutex_unlock(&binary->mutex);
  return entry;
}

static ons_status function(ons__binary* base, const char* lowered,
                           ons__function* out_function, uint32_t* parameter_sizes,
                           size_t count, ons_error* error) {
  cpu_binary* binary = (cpu_binary*)base;
  const ons_cpu_kernel* kernel = ons__shared_object_find(binary->object, lowered);
  if (!kernel || kernel->abi_version != ONS_CPU_ABI_VERSION) {
    return ons__error_set(error, ONS_STATUS_NOT_FOUND, "the compiled module has no %s",
                          lowered);
  }
  if (kernel->warp_size != 32 && kernel->warp_size != 64) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "ONS_WARP_SIZE is %u: give 32 or 64", kernel->warp_size);
  }
  if (!kernel->run) {
    return ons__error_set(error, ONS_STATUS_UNSUPPORTED,
                          "a parameter of it cannot be copied: its class has no copy "
                          "constructor that takes a const reference");
  }
  cpu_function* entry = find_or_add(binary, kernel);
  if (!entry) return ons__error_no_memory(error);
  for (size_t i = 0; i < count; ++i) {
    parameter_sizes[i] = i < kernel->parameter_count ? kernel->parameter_bytes[i] : 0;
  }
  *out_function = (ons__function){.handle = entry};
  out_function->attributes.struct_size = sizeof(out_function->attributes);
  out_function->attributes.max_threads_per_block = base->device->limits.threads_per_block;
  out_function->attributes.max_dynamic_shared_bytes = base->device->limits.shared_bytes;
  return ONS_STATUS_OK;
}

static ons_status variable(ons__binary* base, const char* lowered, void** out_address,
                           size_t* out_size_bytes, ons_error* error) {
  cpu_binary* binary = (cpu_binary*)base;
  const ons_cpu_variable* found = ons__shared_object_find(binary->object, lowered);
  if (!found || found->abi_version != ONS_CPU_ABI_VERSION) {
    return ons__error_set(error, ONS_STATUS_NOT_FOUND, "the compiled module has no %s",
                          lowered);
  }
  *out_address = (void*)(uintptr_t)found->address;
  *out_size_bytes = found->size_bytes;
  return ONS_STATUS_OK;
}

/* ---- launches --------------------------------------------------------------------- */

/* The pool of this process, made at the first need. NULL when out of memory. In the child
 * of a fork the parent's is left behind, as another thread may be looking at it. */
static ons__cpu_pool* pool_of(cpu_device* device) {
  cpu_backend* backend = (cpu_backend*)device->base.backend;
  ons__cpu_pool* pool = atomic_load_explicit(&backend->pool, memory_order_acquire);
  while (!pool || !ons__cpu_pool_is_ours(pool)) {
    ons__cpu_pool* fresh =
        ons__cpu_pool_create(allocator_of(&device->base), device->thread_count);
    if (!fresh) return NULL;
    if (atomic_compare_exchange_strong(&backend->pool, &pool, fresh)) return fresh;
    ons__cpu_pool_destroy(fresh);
  }
  return pool;
}

/* Runs blocks on this thread, more at a time, until they are done or have taken so long
 * that the pool is worth waking. */
static void run_alone(cpu_function* self, ons__cpu_work* work) {
  const uint64_t start = ons__cpu_now_ns();
  uint64_t done = 0, elapsed = 0;
  for (uint64_t step = 1; done < work->last_block && elapsed < ALONE_NS; step *= 2) {
    const uint64_t left = work->last_block - done;
    const uint64_t count = step < left ? step : left;
    if (!ons__cpu_worker_run(&work->piece, done, done + count)) return;
    done += count;
    elapsed = ons__cpu_now_ns() - start;
  }
  atomic_store_explicit(&self->block_ns, elapsed / done, memory_order_relaxed);
  atomic_store_explicit(&work->next_block, done, memory_order_relaxed);
}

/* Pieces long enough to be worth fetching and short enough to even out the threads' ends.
 */
static uint64_t piece_size(uint64_t block_count, uint64_t block_ns,
                           uint32_t thread_count) {
  uint64_t even = block_count / (4 * (uint64_t)thread_count);
  uint64_t timely = 2 * ALONE_NS / (block_ns ? block_ns : 1);
  uint64_t size = even < timely ? even : timely;
  return size ? size : 1;
}

/* Runs what is left, on all threads there are to be. */
static void share(cpu_device* device, ons__cpu_work* work, const ons_executor* executor) {
  if (executor) {
    ons__cpu_work_execute(work, executor, allocator_of(&device->base));
    return;
  }
  ons__cpu_pool* pool = device->thread_count > 1 ? pool_of(device) : NULL;
  if (pool) {
    ons__cpu_pool_run(pool, work);
  } else {
    ons__cpu_work_take_own(work);
  }
}

static void run_blocks(cpu_device* device, cpu_function* self, ons__cpu_work* work,
                       const ons_executor* executor) {
  uint64_t block_ns = atomic_load_explicit(&self->block_ns, memory_order_relaxed);
  if (block_ns <= ALONE_NS / work->last_block) {
    run_alone(self, work);
    block_ns = atomic_load_explicit(&self->block_ns, memory_order_relaxed);
  }
  const uint64_t left = work->last_block - atomic_load(&work->next_block);
  if (left == 0 || ons__cpu_fault_is_set(work->piece.fault)) return;
  const uint32_t threads = executor ? executor->thread_count : device->thread_count;
  work->blocks_at_once = piece_size(left, block_ns, threads ? threads : 1);
  const uint64_t start = ons__cpu_now_ns();
  share(device, work, executor);
  const uint64_t thread_ns = (ons__cpu_now_ns() - start) * threads;
  atomic_store_explicit(&self->block_ns, thread_ns / left, memory_order_relaxed);
}

/* Of kernels that do one element a thread: the thread loop is then as good as a flat one,
 * and there is little to run at a block's end. */
static ons_status block_size(ons__device* base, const ons__function* function_,
                             uint32_t shared_bytes, uint32_t limit, uint32_t* out_block,
                             uint32_t* out_grid, ons_error* error) {
  enum { GOOD = 256 };
  (void)shared_bytes;
  (void)error;
  /* Who leaves the size to us is right for any: a thread that is its block waits for
   * nobody, and costs no fiber. */
  const cpu_function* function = function_->handle;
  const uint32_t good = function->kernel->may_wait ? 1 : GOOD;
  *out_block = limit < good ? limit : good;
  *out_grid = ((const cpu_device*)base)->thread_count;
  return ONS_STATUS_OK;
}

/* How many blocks of a cooperative launch run at a time. */
static ons_status resident_blocks(ons__device* device, const ons__function* function_,
                                  uint32_t block_threads, uint32_t shared_bytes,
                                  uint32_t* out_count, ons_error* error) {
  (void)device;
  (void)function_;
  (void)block_threads;
  (void)shared_bytes;
  (void)error;
  *out_count = BLOCKS_PER_THREAD;
  return ONS_STATUS_OK;
}

static bool is_cooperative(const ons_launch* launch) {
  return launch->attributes && (launch->attributes->flags & ONS_ATTRIBUTES_COOPERATIVE);
}

static ons_status report(const ons__cpu_fault* fault, ons_error* error) {
  const ons_status status = (ons_status)atomic_load(&fault->status);
  return status == ONS_STATUS_OK ? status
                                 : ons__error_set(error, status, "%s", fault->text);
}

static ons_status launch_blocks(ons__device* base, const ons__function* function_,
                                const ons_launch* launch, void* stream,
                                void* const* parameters, size_t parameter_count,
                                ons_error* error) {
  (void)stream;
  (void)parameter_count;
  cpu_device* device = (cpu_device*)base;
  cpu_function* self = function_->handle;
  assert(parameter_count == self->kernel->parameter_count);
  const ons_cpu_launch blocks = {
      .grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
      .block = {launch->block[0], launch->block[1], launch->block[2]},
      .shared_bytes = launch->shared_bytes,
      .warp_size = self->kernel->warp_size};
  const uint64_t count = (uint64_t)blocks.grid[0] * blocks.grid[1] * blocks.grid[2];
  if (count == 0) return ONS_STATUS_OK;
  ons__cpu_fault fault;
  atomic_init(&fault.status, ONS_STATUS_OK);
  atomic_init(&fault.claimed, false);
  ons__cpu_work work = {
      .piece = {.run = self->kernel->run,
                .launch = &blocks,
                .parameters = parameters,
                .fault = &fault},
      .last_block = count,
      .interrupt = base->backend->settings->interrupt,
      .interrupt_user_data = base->backend->settings->interrupt_user_data};
  if (is_cooperative(launch)) {
    ons_status status =
        ons__cpu_grid_run(&work.piece, (uint32_t)count, allocator_of(base), error);
    if (status) return status;
  } else if (count == 1) {
    ons__cpu_worker_run(&work.piece, 0, 1);
  } else {
    run_blocks(device, self, &work, launch->executor);
  }
  return report(&fault, error);
}

/* ---- the backend ------------------------------------------------------------------ */

static void destroy(ons__backend* base) {
  if (!base) return;
  cpu_backend* backend = (cpu_backend*)base;
  ons__cpu_pool_destroy(atomic_load(&backend->pool));
  ons__host_compiler_destroy(backend->compiler);
  ons__free(base->settings->allocator, backend);
}

static const ons__backend_ops cpu_ops = {
    .name = "cpu",
    .destroy = destroy,
    .device_count = device_count,
    .device_open = device_open,
    .device_close = device_close,
    .compile = compile,
    .identify = identify,
    .load = load,
    .unload = unload,
    .function = function,
    .variable = variable,
    .launch = launch_blocks,
    .block_size = block_size,
    .resident_blocks = resident_blocks,
};

ons_status ons__cpu_backend_create(const ons__settings* settings,
                                   ons__backend** out_backend, ons_error* error) {
  *out_backend = NULL;
  cpu_backend* backend = ons__alloc(settings->allocator, sizeof(*backend));
  if (!backend) return ons__error_no_memory(error);
  backend->base = (ons__backend){.ops = &cpu_ops, .settings = settings};
  const ons__host_search_options options = search_options(settings);
  ons_status status = ons__host_compiler_create(&options, &backend->compiler, error);
  if (status != ONS_STATUS_OK) {
    destroy(&backend->base);
    return status;
  }
  *out_backend = &backend->base;
  return ONS_STATUS_OK;
}
