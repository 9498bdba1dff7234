/* Eight threads run XLA's calls on two simulated devices and on the CPU: 100 000 of them,
 * among them new executables, runs without an earlier stage, and captures. What the
 * kernels have written in the end is compared. A program of its own, for ThreadSanitizer.
 */
#include "tests/fake_xla/fake_xla.h"
#include "tests/simgpu/sim_gpu.h"

enum {
  THREADS = 8,
  PLACES = 3, /* two GPUs and the CPU */
  CPU = 2,
  KERNELS = 4,
  ROUNDS = 5,
  TURNS = 2500, /* of a thread in a round */
  N = 64
};

#define KERNEL(name, term)                             \
  "extern \"C\" __global__ void " name                 \
  "(const int* x, int* out) {\n"                       \
  "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n" \
  "  out[i] = x[i] + " term                            \
  ";\n"                                                \
  "}\n"

static const char source[] =
    KERNEL("k0", "1") KERNEL("k1", "2") KERNEL("k2", "3") KERNEL("k3", "4");
static const char* const names[KERNELS] = {"k0", "k1", "k2", "k3"};

/* The driver, as XLA uses it. */
SIM_API int cuStreamSynchronize(void* stream);

static ons_runtime* runtime;
static atomic_long live_allocations, executed, captured;

static void* allocate(void* user_data, size_t size_bytes) {
  (void)user_data;
  atomic_fetch_add(&live_allocations, 1);
  return malloc(size_bytes);
}

static void deallocate(void* user_data, void* pointer) {
  (void)user_data;
  if (pointer) atomic_fetch_sub(&live_allocations, 1);
  free(pointer);
}

static const ons_allocator allocator = {NULL, allocate, deallocate};

static void die(const char* what, const char* message) {
  fprintf(stderr, "%s: %s\n", what, message);
  exit(1);
}

static uint32_t draw(uint32_t* state, uint32_t limit) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % limit;
}

static void demand(ons__xla_error* error) {
  if (error) die("an error", error->message);
}

/* ---- one place of a thread --------------------------------------------------------- */

/* A stream with a buffer before and one after each call, and what is to be in the first.
 */
typedef struct place {
  int number;
  void* stream;
  int* buffers[2];
  int expected;
  xla_call* calls[KERNELS];
} place;

static int64_t dims[1] = {N};

static xla_call* make_call(const place* self, int kernel) {
  xla_call* call = xla_call_create(source, names[kernel], 4, N / 4);
  XLA_NUMBERS(call, "plan", ONS_XLA_OPERAND, 0, ONS_XLA_RESULT, 0);
  xla_operand(call, ONS__XLA_S32, NULL, 1, dims);
  xla_result(call, ONS__XLA_S32, NULL, 1, dims);
  call->context.stream = self->stream;
  call->context.has_stream = self->number != CPU;
  return call;
}

static void place_open(place* self, int number) {
  *self = (place){.number = number};
  for (int i = 0; i < 2; ++i) {
    self->buffers[i] = number == CPU ? calloc(N, sizeof(int))
                                     : sim_device_alloc(number, N * sizeof(int));
    if (number == CPU) continue;
    sim_host_access(self->buffers[i], N * sizeof(int), 1);
    memset(self->buffers[i], 0, N * sizeof(int));
  }
  if (number != CPU) self->stream = sim_stream_create(sim_primary_context(number), 1);
  for (int i = 0; i < KERNELS; ++i) self->calls[i] = make_call(self, i);
}

static void place_check(const place* self) {
  if (self->number != CPU) {
    if (cuStreamSynchronize(self->stream)) die("a stream", "cannot be waited for");
    sim_host_access(self->buffers[0], N * sizeof(int), 0);
  }
  for (int i = 0; i < N; ++i) {
    if (self->buffers[0][i] != self->expected) die("a result", "is wrong");
  }
}

static void place_close(place* self) {
  place_check(self);
  for (int i = 0; i < KERNELS; ++i) xla_call_destroy(self->calls[i]);
  for (int i = 0; i < 2; ++i) {
    if (self->number == CPU) {
      free(self->buffers[i]);
    } else {
      sim_device_free(self->buffers[i]);
    }
  }
}

/* ---- turns ------------------------------------------------------------------------ */

static void instantiate(const place* self, xla_call* call) {
  demand(xla_run(call,
                 self->number == CPU ? ons_xla_cpu_instantiate : ons_xla_cuda_instantiate,
                 ONS__XLA_INSTANTIATE));
}

static void execute(const place* self, xla_call* call) {
  xla_handler* handler = self->number == CPU ? ons_xla_cpu_execute : ons_xla_cuda_execute;
  demand(xla_run(call, handler, ONS__XLA_EXECUTE));
  xla_finish_tasks(&call->context);
  atomic_fetch_add(&executed, 1);
}

static void run(place* self, int kernel) {
  xla_call* call = self->calls[kernel];
  if (self->number != CPU) {
    demand(xla_run(call, ons_xla_cuda_initialize, ONS__XLA_INITIALIZE));
  }
  call->operands[0].data = self->buffers[0];
  call->results[0].data = self->buffers[1];
  execute(self, call);
  int* written = self->buffers[1];
  self->buffers[1] = self->buffers[0];
  self->buffers[0] = written;
  self->expected += 1 + kernel;
}

/* As a command buffer is recorded, which here never runs. */
static void record(const place* self, int kernel) {
  xla_call* call = self->calls[kernel];
  call->operands[0].data = self->buffers[0];
  call->results[0].data = self->buffers[1];
  sim_capture_begin(self->stream, SIM_CAPTURE_THREAD_LOCAL);
  execute(self, call);
  void* graph = sim_capture_end(self->stream);
  if (!graph || sim_graph_kernel_count(graph) != 1) die("a capture", "was lost");
  sim_graph_destroy(graph);
  atomic_fetch_add(&captured, 1);
}

static void take_turn(place* places, uint32_t* random) {
  place* self = &places[draw(random, PLACES)];
  int kernel = (int)draw(random, KERNELS);
  uint32_t what = draw(random, 64);
  if (what == 0) instantiate(self, self->calls[kernel]);
  if (what == 1) place_check(self);
  if (what == 2 && self->number != CPU) {
    record(self, kernel);
  } else {
    run(self, kernel);
  }
}

static void* work(void* argument) {
  uint32_t random = (uint32_t)((uintptr_t)argument + 1) * 2654435761u;
  place places[PLACES];
  sim_host_receive(1);
  for (int i = 0; i < PLACES; ++i) place_open(&places[i], i);
  for (int i = 0; i < TURNS; ++i) take_turn(places, &random);
  for (int i = 0; i < PLACES; ++i) place_close(&places[i]);
  return NULL;
}

/* ---- the program ------------------------------------------------------------------ */

static void add_term(void* term, const sim_kernel_call* call) {
  int *from, *to;
  memcpy(&from, call->parameters + call->parameter_offsets[0], sizeof(from));
  memcpy(&to, call->parameters + call->parameter_offsets[1], sizeof(to));
  for (int i = 0; i < N; ++i) to[i] = from[i] + *(const int*)term;
}

static void set_up(const char* driver) {
  static int terms[KERNELS] = {1, 2, 3, 4};
  sim_set_device_count(2);
  sim_set_recording(0);
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.allocator = &allocator;
  options.cuda_driver_path = driver;
  ons_error error = ONS_ERROR_INIT;
  if (ons_runtime_create(&options, &runtime, &error) ||
      ons_xla_runtime_set(runtime, &error)) {
    die("set-up", error.message);
  }
  for (int i = 0; i < KERNELS; ++i) {
    sim_declare_kernel(names[i], "rw");
    sim_register_kernel(names[i], add_term, &terms[i]);
  }
}

/* Is there a compiler for the devices? */
static void probe(void) {
  void* stream = sim_stream_create(sim_primary_context(0), 1);
  const place self = {.number = 0, .stream = stream};
  xla_call* call = make_call(&self, 0);
  xla_text(call, "digest", "probe");
  ons__xla_error* error = xla_run(call, ons_xla_cuda_instantiate, ONS__XLA_INSTANTIATE);
  if (error && error->code == FAILED_PRECONDITION) {
    printf("skipped: %s\n", error->message);
    exit(77);
  }
  demand(error);
  xla_call_destroy(call);
}

static void run_round(int round) {
  pthread_t threads[THREADS];
  sim_host_send(1);
  for (size_t i = 0; i < THREADS; ++i) {
    uintptr_t seed = (uintptr_t)round * THREADS + i;
    if (pthread_create(&threads[i], NULL, work, (void*)seed)) die("pthread_create", "");
  }
  for (size_t i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  set_up(arguments[1]);
  probe();
  size_t report_count = 0;
  long kept = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    sim_schedule_begin((uint64_t)round + 1);
    run_round(round);
    report_count += sim_schedule_end();
    sim_reset();
    ons_runtime_collect(runtime);
    /* What is kept for good, the first round has met all of. */
    if (round == 0) kept = atomic_load(&live_allocations);
  }
  long left = atomic_load(&live_allocations) - kept;
  printf("%ld executions, %ld captured, %zu findings, %d errors, %ld allocations left\n",
         atomic_load(&executed), atomic_load(&captured), report_count,
         atomic_load(&xla_live_errors), left);
  ons_runtime_release(runtime);
  return report_count == 0 && atomic_load(&xla_live_errors) == 0 && left == 0 &&
                 atomic_load(&captured) > 0
             ? 0
             : 1;
}
