/* Eight threads launch, join, capture, keep, collect and prepare on two devices of the
 * stand-in driver, through one runtime. A program of its own, for ThreadSanitizer: what
 * it finds ends the program with a status that is not 0. */
#include <onstream/onstream.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simgpu/sim_record.h"

enum { THREADS = 8, DEVICES = 2, STREAMS = 3, TURNS = 2000, KERNELS = 4 };
enum { PASSES = 64 }; /* streams wait for each other in chains as long as this at most */

static const char source[] =
    "__global__ void k0(const float* x, float* out) {}\n"
    "__global__ void k1(const float* x, float* out) {}\n"
    "__global__ void k2(const float* x, float* out) {}\n"
    "__global__ void k3(const float* x, float* out) {}\n";

static ons_runtime* runtime;
static ons_kernel* kernels[KERNELS];
static void* streams[THREADS][DEVICES][STREAMS];
static float memory[DEVICES][2][8];
static atomic_long kept, released, launched;

static void die(const char* what, const ons_error* error) {
  fprintf(stderr, "%s: %s\n", what, error ? error->message : "");
  exit(1);
}

static uint32_t draw(uint32_t* state, uint32_t limit) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % limit;
}

static void release_one(void* object) {
  (void)object;
  atomic_fetch_add(&released, 1);
}

static ons_arg tensor_arg(DLTensor* tensor, int64_t* shape, int device, int which,
                          void* stream) {
  *tensor = (DLTensor){.data = memory[device][which],
                       .device = {kDLCUDA, device},
                       .ndim = 1,
                       .dtype = {kDLFloat, 32, 1},
                       .shape = shape};
  return (ons_arg){.kind = ONS_ARG_TENSOR,
                   .flags = ONS_ARG_STREAM_KNOWN,
                   .value.tensor = tensor,
                   .stream = stream};
}

static void launch_one(uint32_t* random, int device, void* const* own, bool is_captured) {
  int64_t shape[1] = {8};
  DLTensor x, out;
  void* stream_x = own[is_captured ? 0 : draw(random, STREAMS)];
  void* stream_out = own[is_captured ? 0 : draw(random, STREAMS)];
  ons_arg args[] = {tensor_arg(&x, shape, device, 0, stream_x),
                    tensor_arg(&out, shape, device, 1, stream_out)};
  ons_retained retained = {random, release_one};
  ons_launch launch = ONS_LAUNCH_INIT;
  if (draw(random, 2)) {
    launch.retained = &retained;
    launch.retained_count = 1;
    atomic_fetch_add(&kept, 1);
  }
  ons_error error = ONS_ERROR_INIT;
  if (ons_kernel_launch(kernels[draw(random, KERNELS)], &launch, args, 2, &error)) {
    die("launch", &error);
  }
  atomic_fetch_add(&launched, 1);
}

static void capture_some(uint32_t* random, int device, void* const* own) {
  sim_capture_begin(own[0], SIM_CAPTURE_THREAD_LOCAL);
  for (int i = 0; i < 3; ++i) launch_one(random, device, own, true);
  void* graph = sim_capture_end(own[0]);
  if (!graph) die("a capture was lost", NULL);
  sim_graph_destroy(graph);
}

static void* work(void* argument) {
  size_t index = (size_t)(uintptr_t)argument;
  uint32_t random = (uint32_t)(index + 1) * 2654435761u;
  for (int turn = 0; turn < TURNS; ++turn) {
    int device = (int)draw(&random, DEVICES);
    void* const* own = streams[index][device];
    switch (draw(&random, 16)) {
      case 0:
        capture_some(&random, device, own);
        break;
      case 1:
        ons_runtime_collect(runtime);
        break;
      case 2:
        if (ons_stream_wait(runtime, (DLDevice){kDLCUDA, device}, own[0], own[1], NULL)) {
          die("a wait was refused", NULL);
        }
        break;
      default:
        launch_one(&random, device, own, false);
    }
    if (turn % 8 == 0) {
      for (int pass = 0; pass < STREAMS; ++pass) {
        for (int i = 0; i < STREAMS; ++i) sim_complete(own[i]);
      }
    }
  }
  return NULL;
}

static void set_up(const char* driver) {
  ons_error error = ONS_ERROR_INIT;
  sim_set_device_count(DEVICES);
  sim_set_recording(0);
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.cuda_driver_path = driver;
  ons_module* module = NULL;
  if (ons_runtime_create(&options, &runtime, &error) ||
      ons_module_create(runtime, source, NULL, &module, &error)) {
    die("set-up", &error);
  }
  for (int i = 0; i < KERNELS; ++i) {
    char name[16];
    snprintf(name, sizeof(name), "k%d", i);
    if (ons_module_kernel(module, name, &kernels[i], &error)) die("kernel", &error);
  }
  ons_module_release(module);
  for (int i = 0; i < THREADS; ++i) {
    for (int device = 0; device < DEVICES; ++device) {
      for (int j = 0; j < STREAMS; ++j) {
        streams[i][device][j] = sim_stream_create(sim_primary_context(device), 1);
      }
    }
  }
  ons_status status =
      ons_kernel_prepare(kernels[0], (DLDevice){kDLCUDA, 0}, NULL, &error);
  if (status == ONS_STATUS_UNAVAILABLE) {
    printf("skipped: %s\n", error.message);
    exit(77);
  }
  if (status) die("prepare", &error);
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  set_up(arguments[1]);
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; ++i) {
    if (pthread_create(&threads[i], NULL, work, (void*)(uintptr_t)i)) {
      die("pthread_create", NULL);
    }
  }
  for (size_t i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  for (int pass = 0; pass < PASSES; ++pass) {
    for (int i = 0; i < THREADS * DEVICES * STREAMS; ++i) {
      sim_complete((&streams[0][0][0])[i]);
    }
  }
  size_t held = ons_runtime_collect(runtime);
  for (int i = 0; i < KERNELS; ++i) ons_kernel_release(kernels[i]);
  ons_runtime_release(runtime);
  printf("%ld launches, %ld kept, %ld released, %zu held\n", atomic_load(&launched),
         atomic_load(&kept), atomic_load(&released), held);
  return atomic_load(&kept) == atomic_load(&released) && held == 0 ? 0 : 1;
}
