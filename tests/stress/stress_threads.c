/* Eight threads launch, join, capture, keep, hand tensors to each other, collect and
 * prepare on two devices of the stand-in driver, through one runtime, whose policy
 * changes meanwhile. A program of its own, for ThreadSanitizer: what it finds ends the
 * program with a status that is not 0. */
#include <onstream/onstream.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backends/cuda/cuda_types.h"
#include "tests/simgpu/sim_record.h"

enum { THREADS = 8, DEVICES = 2, TURNS = 2000, KERNELS = 4, MAILBOXES = 4 };
enum { OWN = 3, SHARED = 2, STREAMS = OWN + SHARED };
enum { PASSES = 64 }; /* streams wait for each other in chains as long as this at most */

/* The driver, as another user of it. */
SIM_API CUresult cuEventCreate(CUevent* out_event, unsigned int flags);
SIM_API CUresult cuEventRecord(CUevent event, CUstream stream);
SIM_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);

static const char source[] =
    "__global__ void k0(const float* x, float* out) {}\n"
    "__global__ void k1(const float* x, float* out) {}\n"
    "__global__ void k2(const float* x, float* out) {}\n"
    "__global__ void k3(const float* x, float* out) {}\n";

static ons_runtime* runtime;
static ons_kernel* kernels[KERNELS];
/* The first ones are the thread's own, the others are of all threads and never captured.
 */
static void* streams[THREADS][DEVICES][STREAMS];
static CUevent forks[THREADS][DEVICES]; /* between the streams of a capture */
static float memory[DEVICES][2][8];
static _Atomic(ons_tensor*) mailboxes[DEVICES][MAILBOXES];
static atomic_long kept, released, made, deleted, launched, refused;

static void die(const char* what, const ons_error* error) {
  fprintf(stderr, "%s: %s\n", what, error ? error->message : "");
  exit(1);
}

static uint32_t draw(uint32_t* state, uint32_t limit) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % limit;
}

/* ---- launches --------------------------------------------------------------------- */

static void release_one(void* object) {
  (void)object;
  atomic_fetch_add(&released, 1);
}

static const int64_t shape[1] = {8};

static DLTensor vector(int device, int which) {
  return (DLTensor){.data = memory[device][which],
                    .device = {kDLCUDA, device},
                    .ndim = 1,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = (int64_t*)shape};
}

static ons_arg tensor_arg(const DLTensor* tensor, void* stream) {
  return (ons_arg){.kind = ONS_ARG_TENSOR,
                   .flags = ONS_ARG_STREAM_KNOWN,
                   .value.tensor = tensor,
                   .stream = stream};
}

/* Only the runtime's policy, which another thread may have set, refuses a launch. */
static void launch(uint32_t* random, const ons_arg args[2]) {
  ons_retained retained = {.release = release_one, .device_bytes = draw(random, 1 << 24)};
  ons_launch call = ONS_LAUNCH_INIT;
  call.retained = &retained;
  call.retained_count = draw(random, 2);
  call.order = draw(random, 2) ? ONS_ORDER_JOIN : ONS_ORDER_DEFAULT;
  ons_error error = ONS_ERROR_INIT;
  ons_status status =
      ons_kernel_launch(kernels[draw(random, KERNELS)], &call, args, 2, &error);
  if (status == ONS_STATUS_ORDER && call.order == ONS_ORDER_DEFAULT && !error.launched) {
    atomic_fetch_add(&refused, 1);
    return;
  }
  if (status) die("launch", &error);
  atomic_fetch_add(&launched, 1);
  atomic_fetch_add(&kept, (long)call.retained_count);
}

static void launch_one(uint32_t* random, int device, void* const* among, uint32_t count) {
  const DLTensor x = vector(device, 0), out = vector(device, 1);
  const ons_arg args[] = {tensor_arg(&x, among[draw(random, count)]),
                          tensor_arg(&out, among[draw(random, count)])};
  launch(random, args);
}

static void follow(CUstream later, CUstream earlier, CUevent event) {
  if (cuEventRecord(event, earlier) || cuStreamWaitEvent(later, event, 0)) {
    die("a stream does not follow", NULL);
  }
}

/* Two streams in one capture. */
static void capture_some(uint32_t* random, int device, void* const* own, CUevent event) {
  sim_capture_begin(own[0], SIM_CAPTURE_THREAD_LOCAL);
  follow(own[1], own[0], event);
  for (int i = 0; i < 3; ++i) launch_one(random, device, own, 2);
  follow(own[0], own[1], event);
  void* graph = sim_capture_end(own[0]);
  if (!graph) die("a capture was lost", NULL);
  sim_graph_destroy(graph);
}

static void change_policy(uint32_t* random) {
  const uint32_t policies[] = {ONS_ORDER_JOIN, ONS_ORDER_JOIN, ONS_ORDER_STRICT,
                               ONS_ORDER_TRUST};
  if (ons_runtime_set_order(runtime, policies[draw(random, 4)], NULL)) {
    die("a policy was refused", NULL);
  }
}

/* ---- tensors that go from thread to thread ----------------------------------------- */

static void delete_tensor(DLManagedTensorVersioned* managed) {
  atomic_fetch_add(&deleted, 1);
  free(managed);
}

static ons_tensor* make_tensor(int device, void* home, void* producer) {
  DLManagedTensorVersioned* managed = calloc(1, sizeof(*managed));
  if (!managed) die("calloc", NULL);
  managed->version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed->deleter = delete_tensor;
  managed->dl_tensor = vector(device, 1);
  ons_tensor_options options = ONS_TENSOR_OPTIONS_INIT;
  options.versioned = managed;
  options.flags = ONS_TENSOR_STREAM | ONS_TENSOR_PRODUCER_STREAM;
  options.stream = home;
  options.producer_stream = producer;
  ons_error error = ONS_ERROR_INIT;
  ons_tensor* tensor = NULL;
  if (ons_tensor_create(runtime, &options, &tensor, &error)) die("tensor", &error);
  atomic_fetch_add(&made, 1);
  return tensor;
}

static void release_tensor(uint32_t* random, ons_tensor* tensor, void* stream) {
  if (draw(random, 2)) {
    ons_tensor_release(tensor);
  } else if (ons_tensor_release_to(tensor, stream, NULL)) {
    die("a release was refused", NULL);
  }
}

/* Leaves a tensor for the others, and uses and releases the one that was there. */
static void exchange(uint32_t* random, int device, void* const* own) {
  ons_tensor* tensor =
      make_tensor(device, own[OWN + draw(random, SHARED)], own[draw(random, STREAMS)]);
  bool keeps = draw(random, 2);
  if (keeps) ons_tensor_retain(tensor);
  ons_tensor* taken =
      atomic_exchange(&mailboxes[device][draw(random, MAILBOXES)], tensor);
  if (keeps) release_tensor(random, tensor, own[draw(random, OWN)]);
  if (!taken) return;
  const DLTensor x = vector(device, 0);
  ons_arg args[] = {tensor_arg(&x, own[0]), {0}};
  ons_tensor_arg(taken, &args[1]);
  launch(random, args);
  release_tensor(random, taken, own[draw(random, OWN)]);
}

/* ---- the program ------------------------------------------------------------------- */

static void take_turn(uint32_t* random, size_t index) {
  int device = (int)draw(random, DEVICES);
  void* const* own = streams[index][device];
  switch (draw(random, 16)) {
    case 0:
      capture_some(random, device, own, forks[index][device]);
      break;
    case 1:
      ons_runtime_collect(runtime);
      break;
    case 2:
      if (ons_stream_wait(runtime, (DLDevice){kDLCUDA, device}, own[0], own[OWN], NULL)) {
        die("a wait was refused", NULL);
      }
      break;
    case 3:
      change_policy(random);
      break;
    case 4:
    case 5:
      exchange(random, device, own);
      break;
    default:
      launch_one(random, device, own, STREAMS);
  }
}

/* Everything is done, up to what waits in longer chains. */
static void complete(int passes) {
  for (int i = 0; i < passes * THREADS * DEVICES * STREAMS; ++i) {
    sim_complete((&streams[0][0][0])[i % (THREADS * DEVICES * STREAMS)]);
  }
}

static void* work(void* argument) {
  size_t index = (size_t)(uintptr_t)argument;
  uint32_t random = (uint32_t)(index + 1) * 2654435761u;
  for (int turn = 0; turn < TURNS; ++turn) {
    take_turn(&random, index);
    if (turn % 4 == 0) complete(3);
  }
  return NULL;
}

static void make_streams(int device) {
  void* context = sim_primary_context(device);
  void* shared[SHARED];
  for (int i = 0; i < SHARED; ++i) shared[i] = sim_stream_create(context, 1);
  sim_set_current(context);
  for (int i = 0; i < THREADS; ++i) {
    for (int j = 0; j < STREAMS; ++j) {
      streams[i][device][j] = j < OWN ? sim_stream_create(context, 1) : shared[j - OWN];
    }
    if (cuEventCreate(&forks[i][device], CU_EVENT_DISABLE_TIMING)) die("event", NULL);
  }
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
  ons_status status =
      ons_kernel_prepare(kernels[0], (DLDevice){kDLCUDA, 0}, NULL, &error);
  if (status == ONS_STATUS_UNAVAILABLE) {
    printf("skipped: %s\n", error.message);
    exit(77);
  }
  if (status) die("prepare", &error);
  for (int device = 0; device < DEVICES; ++device) make_streams(device);
}

/* The number of objects that are held although the device is past everything. */
static size_t clean_up(void) {
  for (int device = 0; device < DEVICES; ++device) {
    for (int i = 0; i < MAILBOXES; ++i) ons_tensor_release(mailboxes[device][i]);
  }
  complete(PASSES);
  size_t held = ons_runtime_collect(runtime);
  for (int i = 0; i < KERNELS; ++i) ons_kernel_release(kernels[i]);
  ons_runtime_release(runtime);
  return held;
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
  size_t held = clean_up();
  printf(
      "%ld launches, %ld refused, %ld kept, %ld released, %ld tensors, %ld deleted, "
      "%zu held\n",
      launched, refused, kept, released, made, deleted, held);
  return kept == released && made == deleted && refused > 0 && held == 0 ? 0 : 1;
}
