/* A CPU backend without a runtime around it, for the tests of its parts. */
#ifndef ONS_TESTS_UNIT_CPU_FIXTURE_H_
#define ONS_TESTS_UNIT_CPU_FIXTURE_H_

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend.h"
#include "runtime/base/alloc.h"

/* Counts live allocations, so that every test shows that nothing leaks. */
static atomic_long fixture_live;

static void* fixture_allocate(void* user_data, size_t size_bytes) {
  (void)user_data;
  atomic_fetch_add(&fixture_live, 1);
  return malloc(size_bytes);
}

static void fixture_free(void* user_data, void* pointer) {
  (void)user_data;
  if (pointer) atomic_fetch_sub(&fixture_live, 1);
  free(pointer);
}

static const ons_allocator fixture_allocator = {NULL, fixture_allocate, fixture_free};
static ons__settings fixture_settings = {.allocator = &fixture_allocator};
static ons__backend* backend;
static ons__device* device;
static ons_error error;

static inline void fixture_open(void) {
  error = (ons_error)ONS_ERROR_INIT;
  cr_assert(eq(int, ons__cpu_backend_create(&fixture_settings, &backend, &error), 0));
  cr_assert(eq(int, backend->ops->device_open(backend, 0, &device, &error), 0));
}

static inline void fixture_close(void) {
  backend->ops->device_close(device);
  backend->ops->destroy(backend);
  cr_expect(eq(long, atomic_load(&fixture_live), 0), "something leaks");
}

enum { FIXTURE_MAX_KERNELS = 8 };

/* Compiles `source` for the names (NULL at the end; '?' in front of one that is not
 * required). */
static inline ons_status fixture_compile(const char* source, const char* const* names,
                                         const char* const* options,
                                         const ons_header* headers,
                                         ons__image** out_image, char** out_log) {
  ons__kernel_name kernels[FIXTURE_MAX_KERNELS];
  ons__compile_request request = {.allocator = &fixture_allocator,
                                  .source = source,
                                  .name = "user.cu",
                                  .options = options,
                                  .headers = headers,
                                  .kernels = kernels,
                                  .arch = device->arch};
  for (; names && names[request.kernel_count]; ++request.kernel_count) {
    const char* name = names[request.kernel_count];
    kernels[request.kernel_count] =
        (ons__kernel_name){.name = name + (*name == '?'), .required = *name != '?'};
  }
  while (options && options[request.option_count]) ++request.option_count;
  while (headers && headers[request.header_count].name) ++request.header_count;
  error = (ons_error)ONS_ERROR_INIT;
  *out_log = NULL;
  *out_image = NULL;
  return backend->ops->compile(backend, &request, out_image, out_log, &error);
}

/* One kernel, compiled and loaded. */
typedef struct fixture_kernel {
  ons__binary* binary;
  ons__function function;
  uint32_t parameter_bytes[16];
} fixture_kernel;

static inline fixture_kernel fixture_load(const char* source, const char* name,
                                          const char* const* options) {
  fixture_kernel kernel = {0};
  ons__image* image = NULL;
  char* log = NULL;
  const char* names[] = {name, NULL};
  ons_status status = fixture_compile(source, names, options, NULL, &image, &log);
  cr_assert(eq(int, status, 0), "%s\n%s", error.message, log ? log : "");
  ons__free(&fixture_allocator, log);
  cr_assert(eq(int, backend->ops->load(device, image, &kernel.binary, &error), 0), "%s",
            error.message);
  const ons__image_kernel* entry = ons__image_find(image, name);
  cr_assert(ne(ptr, (void*)entry, NULL));
  cr_assert(eq(int,
               backend->ops->function(kernel.binary, entry->lowered, &kernel.function,
                                      kernel.parameter_bytes, 16, &error),
               0));
  ons__image_destroy(image);
  return kernel;
}

/* What the backend makes of the launch; `error` says more. */
static inline ons_status fixture_try(const fixture_kernel* kernel,
                                     const ons_launch* launch, void* const* parameters,
                                     size_t count) {
  error = (ons_error)ONS_ERROR_INIT;
  return backend->ops->launch(device, &kernel->function, launch, NULL, parameters, count,
                              &error);
}

static inline void fixture_launch(const fixture_kernel* kernel, uint32_t grid_x,
                                  uint32_t block_x, void* const* parameters,
                                  size_t count) {
  ons_launch launch = ONS_LAUNCH_INIT;
  launch.grid[0] = grid_x;
  launch.block[0] = block_x;
  cr_assert(eq(int,
               backend->ops->launch(device, &kernel->function, &launch, NULL, parameters,
                                    count, &error),
               0));
}

#endif /* ONS_TESTS_UNIT_CPU_FIXTURE_H_ */
