/* The CPU as a device: kernels compiled by the host's C++ compiler, run to their end by
 * the launch. There are no streams, so none of the optional slots is filled. */
#include <assert.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jit/host_compiler.h"
#include "jit/shared_object.h"
#include "runtime/backend.h"
#include "runtime/backends/cpu/cpu_pool.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/thread.h"

/* Waking the pool costs about this much; a launch that is done sooner never pays it. */
enum { ALONE_NS = 20000 };

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
                                      .shared_bytes = 0};
  base->traits.multiprocessor_count = device->thread_count;
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

static ons_status compile(ons__device* device, const ons__compile_request* request,
                          ons__image** out_image, char** out_log, ons_error* error) {
  cpu_backend* backend = (cpu_backend*)device->backend;
  return ons__host_compiler_compile(backend->compiler, request, out_image, out_log,
                                    error);
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

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

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
 * that the pool is worth waking. Returns how many were run. */
static uint64_t run_alone(cpu_function* self, const ons_cpu_launch* launch,
                          void* const* parameters, uint64_t block_count) {
  const uint64_t start = now_ns();
  uint64_t done = 0, elapsed = 0;
  for (uint64_t step = 1; done < block_count && elapsed < ALONE_NS; step *= 2) {
    uint64_t count = step < block_count - done ? step : block_count - done;
    self->kernel->run(launch, parameters, done, done + count);
    done += count;
    elapsed = now_ns() - start;
  }
  atomic_store_explicit(&self->block_ns, elapsed / done, memory_order_relaxed);
  return done;
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

static void run_blocks(cpu_device* device, cpu_function* self,
                       const ons_cpu_launch* launch, void* const* parameters,
                       uint64_t block_count) {
  uint64_t block_ns = atomic_load_explicit(&self->block_ns, memory_order_relaxed);
  uint64_t done = 0;
  if (block_ns <= ALONE_NS / block_count) {
    done = run_alone(self, launch, parameters, block_count);
    if (done == block_count) return;
    block_ns = atomic_load_explicit(&self->block_ns, memory_order_relaxed);
  }
  ons__cpu_pool* pool = pool_of(device);
  if (!pool) {
    self->kernel->run(launch, parameters, done, block_count);
    return;
  }
  ons__cpu_work work = {
      .run = self->kernel->run,
      .launch = launch,
      .parameters = parameters,
      .first_block = done,
      .last_block = block_count,
      .blocks_at_once = piece_size(block_count - done, block_ns, device->thread_count)};
  const uint64_t start = now_ns();
  ons__cpu_pool_run(pool, &work);
  uint64_t thread_ns = (now_ns() - start) * device->thread_count;
  atomic_store_explicit(&self->block_ns, thread_ns / (block_count - done),
                        memory_order_relaxed);
}

/* Of kernels that do one element a thread: the thread loop is then as good as a flat one,
 * and there is little to run at a block's end. */
static ons_status block_size(ons__device* base, const ons__function* function_,
                             uint32_t shared_bytes, uint32_t limit, uint32_t* out_block,
                             uint32_t* out_grid, ons_error* error) {
  enum { GOOD = 256 };
  (void)function_;
  (void)shared_bytes;
  (void)error;
  *out_block = limit < GOOD ? limit : GOOD;
  *out_grid = ((const cpu_device*)base)->thread_count;
  return ONS_STATUS_OK;
}

static ons_status launch_blocks(ons__device* base, const ons__function* function_,
                                const ons_launch* launch, void* stream,
                                void* const* parameters, size_t parameter_count,
                                ons_error* error) {
  (void)stream;
  (void)parameter_count;
  (void)error;
  cpu_device* device = (cpu_device*)base;
  cpu_function* self = function_->handle;
  assert(parameter_count == self->kernel->parameter_count);
  const ons_cpu_launch blocks = {{launch->grid[0], launch->grid[1], launch->grid[2]},
                                 {launch->block[0], launch->block[1], launch->block[2]}};
  const uint64_t count = (uint64_t)blocks.grid[0] * blocks.grid[1] * blocks.grid[2];
  if (count == 0) return ONS_STATUS_OK;
  if (count == 1 || device->thread_count == 1) {
    self->kernel->run(&blocks, parameters, 0, count);
  } else {
    run_blocks(device, self, &blocks, parameters, count);
  }
  return ONS_STATUS_OK;
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
    .load = load,
    .unload = unload,
    .function = function,
    .variable = variable,
    .launch = launch_blocks,
    .block_size = block_size,
};

ons_status ons__cpu_backend_create(const ons__settings* settings,
                                   ons__backend** out_backend, ons_error* error) {
  *out_backend = NULL;
  cpu_backend* backend = ons__alloc(settings->allocator, sizeof(*backend));
  if (!backend) return ons__error_no_memory(error);
  backend->base = (ons__backend){.ops = &cpu_ops, .settings = settings};
  ons__host_search_options options = {.allocator = settings->allocator,
                                      .explicit_command = settings->host_compiler_path,
                                      .locate = settings->locate,
                                      .locate_user_data = settings->locate_user_data};
  ons_status status = ons__host_compiler_create(&options, &backend->compiler, error);
  if (status != ONS_STATUS_OK) {
    destroy(&backend->base);
    return status;
  }
  *out_backend = &backend->base;
  return ONS_STATUS_OK;
}
