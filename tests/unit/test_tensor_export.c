/* Tensors handed on: what views say, and the order between home stream and consumer, on
 * the simulated GPU, which runs work late and reports every access and free that is not
 * ordered after the one before. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/program_fixture.h"

enum { COUNT = 16, SIZE_BYTES = 4 * COUNT };

static void* consumer;
static int deleted;

static void setup(void) {
  open_runtime();
  int32_t count;
  OK(ons_runtime_device_count(runtime, kDLCUDA, &count, &error));
  sim_set_current(sim_primary_context(0));
  sim_set_recording(0);
}

static void teardown(void) { ons_runtime_release(runtime); }

TestSuite(tensor_export, .init = setup, .fini = teardown);

static void begin(uint64_t seed) {
  begin_program(seed);
  consumer = named_stream("consumer");
  deleted = 0;
}

static void write_to(const void* memory, void* stream) {
  OK(cuMemsetD32Async((CUdeviceptr)(uintptr_t)memory, 7, COUNT, stream));
}

/* Until the device is past all that was released. */
static void collect_all(void) {
  for (int i = 0; i < 1000 && ons_runtime_collect(runtime) > 0; ++i) sim_step(1);
  cr_assert(eq(sz, ons_runtime_collect(runtime), 0));
}

/* ---- memory ----------------------------------------------------------------------- */

typedef struct owner {
  DLManagedTensorVersioned managed;
  int64_t extents[4];
} owner;

static void free_device(DLManagedTensorVersioned* self) {
  ++deleted;
  if (self->dl_tensor.device.device_type == kDLCUDA)
    sim_device_free(self->dl_tensor.data);
  free(self->manager_ctx);
}

static ons_tensor* make(DLTensor dltensor, uint64_t dlpack_flags, uint32_t flags) {
  owner* self = calloc(1, sizeof(*self));
  self->managed = (DLManagedTensorVersioned){.version = {1, 0},
                                             .manager_ctx = self,
                                             .deleter = free_device,
                                             .flags = dlpack_flags,
                                             .dl_tensor = dltensor};
  ons_tensor_options options = ONS_TENSOR_OPTIONS_INIT;
  options.versioned = &self->managed;
  options.flags = flags;
  options.stream = home;
  if (dltensor.device.device_type != kDLCPU) {
    options.flags |= ONS_TENSOR_STREAM | ONS_TENSOR_ORDERED;
  }
  ons_tensor* tensor = NULL;
  OK(ons_tensor_create(runtime, &options, &tensor, &error));
  return tensor;
}

static const DLDevice host = {kDLCPU, 0};
static int64_t shape[] = {4, 4};

static ons_tensor* device_tensor(void) {
  void* memory = sim_device_alloc(0, SIZE_BYTES);
  write_to(memory, home);
  return make((DLTensor){.data = memory,
                         .device = {kDLCUDA, 0},
                         .ndim = 2,
                         .dtype = {kDLFloat, 32, 1},
                         .shape = shape},
              0, 0);
}

static DLManagedTensorVersioned* export_to(ons_tensor* tensor, void* stream,
                                           uint32_t flags) {
  DLManagedTensorVersioned* view = NULL;
  OK(ons_tensor_export(tensor, stream, flags, &view, &error));
  return view;
}

/* ---- what a view says ------------------------------------------------------------- */

Test(tensor_export, a_view_has_extents_of_its_own) {
  begin(1);
  float memory[COUNT + 2] = {0};
  int64_t extents[] = {2, 0, 3, 5, 8, 1};
  DLTensor given = {.data = memory,
                    .device = {kDLCPU, 0},
                    .ndim = 2,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = extents + 2,
                    .strides = extents + 4,
                    .byte_offset = 8};
  ons_tensor* tensor = make(given, 0, 0);
  DLManagedTensorVersioned* view = export_to(tensor, NULL, 0);
  ons_tensor_release(tensor);
  cr_expect(eq(int, deleted, 0));
  cr_expect(eq(ptr, view->dl_tensor.data, memory + 2));
  cr_expect(eq(u64, view->dl_tensor.byte_offset, 0));
  cr_expect(eq(i64, view->dl_tensor.shape[1], 5));
  cr_expect(eq(i64, view->dl_tensor.strides[0], 8));
  cr_expect(ne(ptr, view->dl_tensor.shape, extents + 2));
  cr_expect(eq(u32, view->version.major, 1));
  cr_expect(eq(u64, view->flags, 0));
  view->deleter(view);
  cr_expect(eq(int, deleted, 1));
  end(true);
}

Test(tensor_export, strides_are_filled_in) {
  begin(1);
  float memory[24];
  int64_t extents[] = {2, 3, 4};
  ons_tensor* tensor = make((DLTensor){.data = memory,
                                       .device = {kDLCPU, 0},
                                       .ndim = 3,
                                       .dtype = {kDLFloat, 32, 1},
                                       .shape = extents},
                            0, 0);
  const int64_t expected[] = {12, 4, 1};
  for (int i = 0; i < 3; ++i) {
    cr_expect(eq(i64, ons_tensor_dltensor(tensor)->strides[i], expected[i]));
  }
  ons_tensor_release(tensor);
  /* Case 3: nothing is read through what a 0-dimensional tensor points at. */
  tensor = make((DLTensor){.data = memory,
                           .device = {kDLCPU, 0},
                           .dtype = {kDLFloat, 32, 1},
                           .shape = (int64_t*)8,
                           .strides = (int64_t*)8},
                0, 0);
  DLManagedTensorVersioned* view = export_to(tensor, NULL, 0);
  cr_expect(eq(ptr, view->dl_tensor.shape, NULL));
  cr_expect(eq(ptr, view->dl_tensor.strides, NULL));
  view->deleter(view);
  ons_tensor_release(tensor);
  /* Case 4 */
  extents[1] = 0;
  tensor = make((DLTensor){.data = memory,
                           .device = {kDLCPU, 0},
                           .ndim = 3,
                           .dtype = {kDLFloat, 32, 1},
                           .shape = extents,
                           .byte_offset = 4},
                0, 0);
  cr_expect(eq(ptr, ons_tensor_dltensor(tensor)->data, NULL));
  ons_tensor* copy = NULL;
  OK(ons_tensor_copy(tensor, host, &copy, &error));
  ons_tensor_release(copy);
  ons_tensor_release(tensor);
  end(true);
}

Test(tensor_export, the_flags_are_true) {
  begin(1);
  float memory[1];
  DLTensor given = {.data = memory, .device = {kDLCPU, 0}, .dtype = {kDLFloat, 32, 1}};
  ons_tensor* tensor =
      make(given,
           DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED |
               DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED,
           0);
  DLManagedTensorVersioned* view = export_to(tensor, NULL, 0);
  cr_expect(
      eq(u64, view->flags,
         DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED));
  view->deleter(view);
  view = export_to(tensor, NULL, ONS_EXPORT_COPIED);
  cr_expect(ne(u64, view->flags & DLPACK_FLAG_BITMASK_IS_COPIED, 0));
  view->deleter(view);
  DLManagedTensor* legacy = NULL;
  cr_expect(eq(int, ons_tensor_export_legacy(tensor, NULL, 0, &legacy, &error),
               ONS_STATUS_UNSUPPORTED));
  ons_tensor_release(tensor);
  tensor = make(given, 0, ONS_TENSOR_REQUIRES_GRAD);
  cr_expect(
      eq(int, ons_tensor_export(tensor, NULL, 0, &view, &error), ONS_STATUS_UNSUPPORTED));
  cr_expect(eq(int, ons_tensor_export(tensor, NULL, 64, &view, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  cr_expect(eq(int, ons_tensor_export(NULL, NULL, 0, &view, &error),
               ONS_STATUS_INVALID_ARGUMENT));
  ons_tensor_release(tensor);
  cr_expect(eq(int, deleted, 2));
  end(true);
}

/* ---- order ------------------------------------------------------------------------ */

/* The consumer writes on its stream and drops the view; then the home stream is used, and
 * the tensor released, which frees at once. */
static size_t lend(uint64_t seed, uint32_t flags, void* stream_of_view) {
  begin(seed);
  ons_tensor* tensor = device_tensor();
  void* stream = stream_of_view ? stream_of_view : consumer;
  DLManagedTensorVersioned* view = export_to(tensor, stream, flags);
  write_to(view->dl_tensor.data, stream);
  write_to(view->dl_tensor.data, stream);
  view->deleter(view);
  write_to(ons_tensor_dltensor(tensor)->data, home);
  ons_tensor_release(tensor);
  collect_all();
  size_t reports = end(flags != 0);
  cr_expect(eq(int, deleted, 1));
  return reports;
}

Test(tensor_export, the_consumer_is_after_and_before_the_home_stream) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    cr_expect(eq(sz, lend(seed, ONS_EXPORT_ORDERED, NULL), 0), "seed %d", (int)seed);
    cr_expect(eq(sz, lend(seed, ONS_EXPORT_ORDERED, (void*)1), 0));
    cr_expect(eq(sz, lend(seed, ONS_EXPORT_ORDERED, (void*)2), 0));
  }
}

/* ... which is not so by itself; and the checker sees it. */
Test(tensor_export, without_the_flag_there_is_no_order) {
  cr_expect(gt(sz, lend(1, 0, NULL), 0));
}

Test(tensor_export, a_view_that_outlives_the_tensor) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    ons_tensor* tensor = device_tensor();
    DLManagedTensorVersioned* view = export_to(tensor, consumer, ONS_EXPORT_ORDERED);
    ons_tensor_release(tensor);
    write_to(view->dl_tensor.data, consumer);
    view->deleter(view);
    collect_all();
    cr_expect(eq(sz, end(true), 0), "seed %d", (int)seed);
    cr_expect(eq(int, deleted, 1));
  }
}

Test(tensor_export, a_moved_tensor_is_on_its_new_stream) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    ons_tensor* tensor = device_tensor();
    const void* memory = ons_tensor_dltensor(tensor)->data;
    OK(ons_tensor_move(tensor, consumer, &error));
    write_to(memory, consumer);
    DLManagedTensorVersioned* view = export_to(tensor, consumer, ONS_EXPORT_ORDERED);
    OK(ons_tensor_move(tensor, third, &error));
    write_to(memory, third);
    OK(ons_tensor_move(tensor, third, &error));
    view->deleter(view);
    ons_arg arg;
    ons_tensor_arg(tensor, &arg);
    cr_expect(eq(ptr, arg.stream, third));
    ons_tensor_release(tensor);
    collect_all();
    cr_expect(eq(sz, end(true), 0), "seed %d", (int)seed);
  }
}

/* ---- capture ---------------------------------------------------------------------- */

Test(tensor_export, a_capture_is_left_alone) {
  begin(1);
  ons_tensor* tensor = device_tensor();
  DLManagedTensorVersioned* view = export_to(tensor, consumer, ONS_EXPORT_ORDERED);
  DLManagedTensorVersioned* none = NULL;
  ons_tensor* copy = NULL;
  void *event, *token;
  sim_capture_begin(third, SIM_CAPTURE_GLOBAL);
  cr_expect(eq(int, ons_tensor_export(tensor, third, ONS_EXPORT_ORDERED, &none, &error),
               ONS_STATUS_CAPTURE));
  cr_expect(eq(int, ons_tensor_move(tensor, third, &error), ONS_STATUS_CAPTURE));
  OK(ons_tensor_wait(tensor, &error));
  OK(ons_tensor_copy(tensor, host, &copy, &error));
  ons_tensor_release(copy);
  OK(ons_tensor_event_take(tensor, &event, &token, &error));
  ons_tensor_event_give(tensor, token);
  cr_expect(eq(int, sim_capture_status(third), 1));
  sim_graph_destroy(sim_capture_end(third));
  sim_capture_begin(home, SIM_CAPTURE_GLOBAL);
  cr_expect(eq(int, ons_tensor_wait(tensor, &error), ONS_STATUS_CAPTURE));
  cr_expect(eq(int, ons_tensor_copy(tensor, host, &copy, &error), ONS_STATUS_CAPTURE));
  cr_expect(
      eq(int, ons_tensor_event_take(tensor, &event, &token, &error), ONS_STATUS_CAPTURE));
  write_to(view->dl_tensor.data, consumer);
  view->deleter(view); /* the home stream cannot wait for it */
  cr_expect(eq(int, sim_capture_status(home), 1));
  sim_graph_destroy(sim_capture_end(home));
  ons_tensor_release(tensor);
  cr_expect(eq(int, deleted, 0));
  collect_all();
  cr_expect(eq(int, deleted, 1));
  cr_expect(eq(sz, end(true), 0));
}

/* The legacy default stream must not be touched while a blocking one is captured. */
Test(tensor_export, a_capture_of_a_blocking_stream) {
  begin(1);
  void* blocking = sim_stream_create(sim_primary_context(0), 0);
  ons_tensor* tensor = device_tensor();
  DLManagedTensorVersioned* view = export_to(tensor, NULL, ONS_EXPORT_ORDERED);
  DLManagedTensorVersioned* none = NULL;
  sim_capture_begin(blocking, SIM_CAPTURE_GLOBAL);
  cr_expect(eq(int, ons_tensor_export(tensor, NULL, ONS_EXPORT_ORDERED, &none, &error),
               ONS_STATUS_CAPTURE));
  view->deleter(view);
  cr_expect(eq(int, sim_capture_status(blocking), 1));
  sim_graph_destroy(sim_capture_end(blocking));
  ons_tensor_release(tensor);
  collect_all();
  cr_expect(eq(int, deleted, 1));
  cr_expect(eq(sz, end(true), 0));
}

/* ---- the host --------------------------------------------------------------------- */

static void cr_expect_copy(DLTensor given, const float* expected) {
  ons_tensor* tensor = make(given, 0, 0);
  ons_tensor* copy = NULL;
  OK(ons_tensor_copy(tensor, host, &copy, &error));
  const DLTensor* dltensor = ons_tensor_dltensor(copy);
  int64_t count = 1;
  for (int32_t i = 0; i < given.ndim; ++i) count *= given.shape[i];
  cr_expect(eq(int, dltensor->device.device_type, kDLCPU));
  cr_expect(eq(sz, (uintptr_t)dltensor->data % 64, 0));
  cr_expect(eq(int, memcmp(dltensor->data, expected, (size_t)count * 4), 0));
  ons_tensor_release(copy);
  ons_tensor_release(tensor);
}

Test(tensor_export, copies_have_the_values_in_order) {
  begin(1);
  float values[COUNT];
  for (int i = 0; i < COUNT; ++i) values[i] = (float)i;
  for (int on_device = 0; on_device < 2; ++on_device) {
    for (int which = 0; which < 4; ++which) {
      float* memory = values;
      if (on_device) {
        memory = sim_device_alloc(0, SIZE_BYTES);
        OK(cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)memory, values, SIZE_BYTES,
                                home));
      }
      static int64_t square[] = {4, 4}, turned[] = {1, 4}, small[] = {2, 3};
      static int64_t back[] = {-8, -1}, repeated[] = {0, 2};
      DLTensor given = {.data = memory,
                        .device = {on_device ? kDLCUDA : kDLCPU, 0},
                        .ndim = 2,
                        .dtype = {kDLFloat, 32, 1},
                        .shape = which < 2 ? square : small};
      static const float transposed[] = {0, 4, 8,  12, 1, 5, 9,  13,
                                         2, 6, 10, 14, 3, 7, 11, 15};
      static const float reversed[] = {15, 14, 13, 7, 6, 5};
      static const float rows[] = {0, 2, 4, 0, 2, 4};
      const float* expected = values;
      if (which == 1) given.strides = turned, expected = transposed;
      if (which == 2) given.strides = back, expected = reversed;
      if (which == 2) given.byte_offset = 60;
      if (which == 3) given.strides = repeated, expected = rows;
      cr_expect_copy(given, expected);
    }
  }
  collect_all();
  cr_expect(eq(sz, end(true), 0));
}

Test(tensor_export, copies_on_the_device) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    ons_tensor *tensor = device_tensor(), *copy = NULL, *back = NULL;
    OK(ons_tensor_copy(tensor, (DLDevice){kDLCUDA, 0}, &copy, &error));
    ons_tensor_release(tensor);
    DLManagedTensorVersioned* view = export_to(copy, consumer, ONS_EXPORT_ORDERED);
    write_to(view->dl_tensor.data, consumer);
    view->deleter(view);
    OK(ons_tensor_copy(copy, host, &back, &error));
    cr_expect(eq(int, ((int*)ons_tensor_dltensor(back)->data)[COUNT - 1], 7));
    ons_tensor_release(back);
    ons_tensor_release(copy);
    collect_all();
    cr_expect(eq(sz, end(true), 0), "seed %d", (int)seed);
  }
  begin(1);
  ons_tensor *tensor = device_tensor(), *copy = NULL;
  cr_expect(eq(int, ons_tensor_copy(tensor, (DLDevice){kDLCUDA, 1}, &copy, &error),
               ONS_STATUS_UNSUPPORTED));
  ons_tensor_release(tensor);
  collect_all();
  end(true);
}

Test(tensor_export, the_host_waits) {
  begin(1);
  sim_set_eagerness(0);
  ons_tensor* tensor = device_tensor();
  cr_expect(gt(sz, sim_stream_pending_count(home), 0));
  OK(ons_tensor_wait(tensor, &error));
  cr_expect(eq(sz, sim_stream_pending_count(home), 0));
  sim_host_access(ons_tensor_dltensor(tensor)->data, SIZE_BYTES, 0);
  ons_tensor_release(tensor);
  collect_all();
  cr_expect(eq(sz, end(true), 0));
}

Test(tensor_export, elements_of_half_a_byte) {
  begin(1);
  uint8_t memory[] = {0x21, 0x43, 0x65};
  int64_t extents[] = {6, 2}, gaps[] = {2};
  DLTensor given = {.data = memory,
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = {kDLInt, 4, 1},
                    .shape = extents};
  ons_tensor *tensor = make(given, 0, 0), *copy = NULL;
  OK(ons_tensor_copy(tensor, host, &copy, &error));
  cr_expect(eq(int, memcmp(ons_tensor_dltensor(copy)->data, memory, 3), 0));
  ons_tensor_release(copy);
  ons_tensor_release(tensor);
  given.shape = extents + 1;
  given.strides = gaps;
  tensor = make(given, 0, 0);
  cr_expect(
      eq(int, ons_tensor_copy(tensor, host, &copy, &error), ONS_STATUS_UNSUPPORTED));
  ons_tensor_release(tensor);
  end(true);
}
