/* The simulated GPU itself: what it runs and when, what its checker finds, and what it
 * must not find. */
#include "tests/unit/simgpu_fixture.h"

TestSuite(simgpu, .init = setup);

/* ---- order of execution ---- */

Test(simgpu, nothing_runs_before_somebody_waits) {
  uint64_t* x = device_memory();
  uint64_t before = *x;
  launch(set, first, x, 7);
  launch(add, first, x, 1);
  cr_expect(eq(u64, *x, before));
  cr_expect(eq(sz, sim_pending_count(), 2));
  IS(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
  OK(cuStreamSynchronize(second));
  cr_expect(eq(u64, *x, before));
  cr_expect(eq(sz, sim_step(1), 1));
  cr_expect(eq(u64, *x, 7));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, 8));
  OK(cuStreamQuery(first));
  CLEAN();
}

Test(simgpu, any_legal_order_happens) {
  int seen[2] = {0};
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    uint64_t* x = device_memory();
    launch(set, first, x, 1);
    launch(set, second, x, 2);
    sim_schedule_end();
    ++seen[*x - 1];
    FOUND(1, SIM_RACE);
  }
  cr_expect(ne(int, seen[0], 0));
  cr_expect(ne(int, seen[1], 0));
}

Test(simgpu, the_same_seed_gives_the_same_order) {
  uint64_t results[2];
  for (int i = 0; i < 2; ++i) {
    begin(99);
    uint64_t* x = device_memory();
    launch(set, first, x, 0);
    for (uint64_t j = 0; j < 20; ++j) {
      launch(add, j % 2 ? first : second, x, j);
      launch(set, j % 2 ? second : first, x, 3 * j);
    }
    sim_schedule_end();
    results[i] = *x;
  }
  cr_expect(eq(u64, results[0], results[1]));
}

Test(simgpu, values_are_right_in_every_order_when_joined) {
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    uint64_t *x = device_memory(), *y = device_memory();
    launch(set, first, x, 7);
    join(second, first);
    launch(mix, second, y, (uint64_t)(uintptr_t)x);
    join(first, second);
    launch(set, first, x, 8);
    cr_expect(eq(sz, sim_schedule_end(), 0));
    cr_expect(eq(u64, *y, 7));
    cr_expect(eq(u64, *x, 8));
  }
}

Test(simgpu, waiting_runs_only_what_is_needed) {
  uint64_t *x = device_memory(), *y = device_memory();
  launch(set, first, x, 1);
  CUevent done = event();
  OK(cuEventRecord(done, first));
  launch(set, first, x, 2);
  launch(set, second, y, 3);
  OK(cuEventSynchronize(done));
  cr_expect(eq(u64, *x, 1));
  cr_expect(eq(sz, sim_pending_count(), 2));
  OK(cuCtxSynchronize());
  cr_expect(eq(sz, sim_pending_count(), 0));
}

static void note(void* user_data) { ++*(int*)user_data; }

Test(simgpu, host_functions_copies_and_fills_run_in_order) {
  uint64_t* x = device_memory();
  int notes = 0;
  uint64_t value = 5, back = 0;
  OK(cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)x, &value, 8, first));
  value = 6; /* pageable memory was read already */
  launch(add, first, x, 1);
  OK(cuLaunchHostFunc(first, note, &notes));
  OK(cuMemcpyDtoHAsync_v2(&back, (CUdeviceptr)(uintptr_t)x, 8, first));
  cr_expect(eq(u64, back, 6), "a copy to pageable memory waits");
  cr_expect(eq(int, notes, 1));
  OK(cuMemsetD8Async((CUdeviceptr)(uintptr_t)x, 0xff, 8, first));
  OK(cuMemsetD32Async((CUdeviceptr)(uintptr_t)x, 1, 1, first));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, 0xffffffff00000001u));
  CLEAN();
}

Test(simgpu, declared_kernels_mix_what_they_read) {
  sim_declare_kernel("unknown", "u");
  uint64_t* x = device_memory();
  launch(set, first, x, 3);
  launch(unknown, first, x, 0);
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *x, sim_mix(sim_mix(0, 3), 0)));
}

/* ---- races ---- */

Test(simgpu, a_read_that_is_not_ordered_after_the_write) {
  uint64_t *x = device_memory(), *y = device_memory();
  launch(set, first, x, 7);
  launch(mix, second, y, (uint64_t)(uintptr_t)x);
  cr_expect(eq(sz, sim_report_count(), 1));
  const sim_report* report = sim_report_at(0);
  cr_expect(eq(u32, report->allocation, sim_allocation_id(x)));
  cr_expect(eq(ptr, report->first_stream, (void*)first));
  cr_expect(eq(ptr, report->second_stream, (void*)second));
  cr_expect(eq(int, report->first_is_write, 1));
  cr_expect(eq(int, report->second_is_write, 0));
  FOUND(1, SIM_RACE);
}

/* The device happened to be fast; nobody had asked. */
Test(simgpu, a_race_is_found_though_the_order_was_right_this_time) {
  uint64_t *x = device_memory(), *y = device_memory();
  launch(set, first, x, 7);
  sim_run_all();
  launch(mix, second, y, (uint64_t)(uintptr_t)x);
  FOUND(1, SIM_RACE);
}

Test(simgpu, a_write_that_may_overtake_a_read) {
  uint64_t *x = device_memory(), *y = device_memory();
  launch(set, first, x, 7);
  join(second, first);
  launch(mix, second, y, (uint64_t)(uintptr_t)x);
  CLEAN();
  launch(add, first, x, 1);
  FOUND(1, SIM_RACE);
}

Test(simgpu, two_reads_need_no_order) {
  uint64_t *x = device_memory(), *y = device_memory(), *z = device_memory();
  launch(set, first, x, 7);
  join(second, first);
  launch(mix, second, y, (uint64_t)(uintptr_t)x);
  launch(mix, first, z, (uint64_t)(uintptr_t)x);
  CLEAN();
}

Test(simgpu, what_nobody_declared_counts_as_written) {
  uint64_t* x = device_memory();
  launch(unknown, first, x, 0);
  launch(unknown, second, x, 0);
  FOUND(1, SIM_RACE);
}

Test(simgpu, the_legacy_stream_waits_for_blocking_streams_only) {
  uint64_t* x = device_memory();
  launch(set, NULL, x, 1);
  launch(add, blocking, x, 1);
  launch(add, NULL, x, 1);
  launch(add, (CUstream)1, x, 1);
  launch(add, (CUstream)2, x, 1); /* the per-thread default stream blocks */
  launch(add, blocking, x, 1);    /* but not against another blocking one */
  FOUND(1, SIM_RACE);
  launch(add, NULL, x, 1);
  CLEAN();
  launch(add, first, x, 1);
  FOUND(1, SIM_RACE);
  join(blocking, first);
  launch(set, blocking, x, 1);
  CLEAN();
  join(first, blocking);
  launch(add, first, x, 1);
  CLEAN();
  launch(add, NULL, x, 1); /* nor does it wait for one that does not block */
  FOUND(1, SIM_RACE);
}

Test(simgpu, a_wait_is_for_the_record_of_its_time) {
  uint64_t *x = device_memory(), *y = device_memory();
  CUevent recorded = event();
  OK(cuStreamWaitEvent(second, recorded, 0)); /* never recorded: no wait */
  launch(set, first, x, 1);
  OK(cuEventRecord(recorded, first));
  OK(cuStreamWaitEvent(second, recorded, 0));
  launch(set, first, y, 1);
  OK(cuEventRecord(recorded, first));
  launch(add, second, x, 1);
  CLEAN();
  launch(add, second, y, 1);
  FOUND(1, SIM_RACE);
  OK(cuStreamWaitEvent(second, recorded, 0));
  launch(add, second, y, 1);
  CLEAN();
}

Test(simgpu, order_goes_through_a_third_stream) {
  uint64_t* x = device_memory();
  launch(set, first, x, 1);
  join(blocking, first);
  join(second, blocking);
  launch(add, second, x, 1);
  CLEAN();
}

Test(simgpu, a_handle_that_comes_back_is_another_stream) {
  int returned = 0;
  for (uint64_t seed = 0; seed < SEEDS; ++seed) {
    begin(seed);
    sim_set_eagerness(0);
    uint64_t* x = device_memory();
    CUstream again = NULL;
    launch(set, blocking, x, 1);
    OK(cuStreamDestroy_v2(blocking));
    OK(cuStreamCreate(&again, 0));
    returned += again == blocking;
    launch(add, NULL, x, 1); /* what the first was asked is still to come first */
    CLEAN();
    launch(set, again, x, 3);
    OK(cuStreamDestroy_v2(again));
    OK(cuStreamCreate(&again, 0));
    launch(set, again, x, 4);
    FOUND(1, SIM_RACE);
    OK(cuCtxSynchronize());
    cr_expect(zero(sz, sim_pending_count()));
    sim_host_access(x, BYTES, 0);
    CLEAN();
  }
  cr_expect(ne(int, returned, 0));
  cr_expect(ne(int, returned, SEEDS));
}

/* ---- the host ---- */

Test(simgpu, the_host_must_wait_for_what_it_reads) {
  uint64_t* x = device_memory();
  sim_host_access(x, BYTES, 1);
  launch(add, first, x, 1);
  CLEAN();
  sim_host_access(x, BYTES, 0);
  FOUND(1, SIM_RACE);
  OK(cuStreamSynchronize(second));
  sim_host_access(x, BYTES, 0);
  FOUND(1, SIM_RACE);
  OK(cuStreamSynchronize(first));
  sim_host_access(x, BYTES, 0);
  CLEAN();
}

Test(simgpu, asking_an_event_tells_the_host) {
  uint64_t* x = device_memory();
  launch(set, first, x, 1);
  CUevent done = event();
  OK(cuEventRecord(done, first));
  IS(CUDA_ERROR_NOT_READY, cuEventQuery(done));
  sim_run_all();
  sim_host_access(x, BYTES, 0);
  FOUND(1, SIM_RACE);
  OK(cuEventQuery(done));
  sim_host_access(x, BYTES, 0);
  CLEAN();
  launch(set, first, x, 1);
  sim_run_all();
  OK(cuStreamQuery(first));
  sim_host_access(x, BYTES, 0);
  CLEAN();
}

static void* read_elsewhere(void* memory) {
  sim_host_receive(5);
  sim_host_access(memory, BYTES, 0);
  sim_host_send(6);
  return NULL;
}

static void read_on_thread(void* memory) {
  pthread_t thread;
  cr_assert(zero(int, pthread_create(&thread, NULL, read_elsewhere, memory)));
  pthread_join(thread, NULL);
}

Test(simgpu, threads_know_what_they_were_told) {
  uint64_t* x = device_memory();
  launch(set, first, x, 1);
  OK(cuStreamSynchronize(first));
  read_on_thread(x); /* a new thread knows what the others know */
  CLEAN();
  launch(add, first, x, 1);
  FOUND(1, SIM_RACE); /* that the thread has read is not known yet */
  sim_host_receive(6);
  launch(add, first, x, 1);
  CLEAN();
  read_on_thread(x);
  FOUND(1, SIM_RACE);
}

typedef struct relay {
  uint64_t* memory;
  pthread_barrier_t barrier;
  bool told;
} relay;

static void* wait_and_read(void* argument) {
  relay* shared = argument;
  sim_host_access(shared->memory, BYTES, 0); /* seen, before the other waits */
  pthread_barrier_wait(&shared->barrier);
  pthread_barrier_wait(&shared->barrier);
  if (shared->told) sim_host_receive(1);
  sim_host_access(shared->memory, BYTES, 0);
  return NULL;
}

Test(simgpu, what_one_thread_waited_for_another_must_be_told) {
  for (int told = 0; told < 2; ++told) {
    begin(1);
    relay shared = {.memory = device_memory(), .told = told};
    sim_host_access(shared.memory, BYTES, 1);
    pthread_barrier_init(&shared.barrier, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_and_read, &shared);
    pthread_barrier_wait(&shared.barrier);
    sim_clear_reports();
    launch(set, first, shared.memory, 1);
    OK(cuStreamSynchronize(first));
    sim_host_send(1);
    sim_clear_reports(); /* of the write after the other thread's read */
    pthread_barrier_wait(&shared.barrier);
    pthread_join(thread, NULL);
    expect_found(told ? "told" : "not told", told ? 0 : 1, SIM_RACE);
  }
}

Test(simgpu, waiting_is_counted) {
  uint64_t before = sim_sync_count(0), all_before = sim_sync_count(1);
  OK(cuStreamSynchronize(first));
  OK(cuCtxSynchronize());
  OK(cuEventSynchronize(event()));
  IS(CUDA_SUCCESS, cuStreamQuery(first));
  cr_expect(eq(u64, sim_sync_count(0) - before, 3));
  IS(CUDA_SUCCESS, on_thread(synchronise_elsewhere));
  cr_expect(eq(u64, sim_sync_count(0) - before, 3));
  cr_expect(eq(u64, sim_sync_count(1) - all_before, 4));
}

static void access_memory(void* memory) { sim_host_access(memory, BYTES, 0); }

Test(simgpu, a_host_function_is_part_of_its_stream) {
  uint64_t* x = device_memory();
  launch(set, first, x, 1);
  OK(cuLaunchHostFunc(first, access_memory, x));
  launch(add, first, x, 1);
  sim_run_all();
  CLEAN();
  launch(add, second, x, 1);
  FOUND(2, SIM_RACE); /* with the first stream's write, and with the function */
}

/* ---- lifetime ---- */

Test(simgpu, memory_that_is_freed_and_then_used) {
  uint64_t *x = sim_device_alloc(0, BYTES), *y = device_memory();
  launch(set, first, x, 1);
  OK(cuStreamSynchronize(first));
  sim_device_free(x);
  CLEAN();
  launch(mix, first, y, (uint64_t)(uintptr_t)x);
  FOUND(1, SIM_USE_AFTER_FREE);
}

Test(simgpu, memory_that_is_freed_under_a_kernel) {
  uint64_t *x = sim_device_alloc(0, BYTES), *y = device_memory();
  launch(set, first, x, 1);
  OK(cuStreamSynchronize(first));
  launch(mix, first, y, (uint64_t)(uintptr_t)x);
  sim_device_free(x);
  FOUND(1, SIM_UNORDERED_FREE);
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *y, 0xdddddddddddddddd), "the kernel sees what became of it");
}

Test(simgpu, freed_memory_is_handed_out_at_once) {
  uint64_t* x = sim_device_alloc(0, BYTES);
  launch(set, first, x, 1);
  OK(cuStreamSynchronize(first));
  sim_device_free(x);
  uint64_t* y = sim_device_alloc(0, BYTES);
  cr_expect(eq(ptr, x, y));
  cr_expect(eq(u64, *y, 0xcdcdcdcdcdcdcdcd));
  launch(add, first, y, 1);
  FOUND(1, SIM_UNINITIALISED_READ);
  cr_expect(eq(sz, sim_schedule_end(), 1));
  FOUND(1, SIM_LEAK);
}

Test(simgpu, streams_reuse_memory_in_their_order) {
  CUdeviceptr x = 0, y = 0, z = 0;
  OK(cuMemAllocAsync(&x, BYTES, first));
  launch(set, first, (void*)(uintptr_t)x, 1);
  OK(cuMemFreeAsync(x, first));
  OK(cuMemAllocAsync(&y, BYTES, second));
  cr_expect(ne(u64, x, y), "the free has not run, and nothing orders the streams");
  OK(cuMemFreeAsync(y, second));
  join(second, first);
  OK(cuMemAllocAsync(&z, BYTES, second));
  cr_expect(eq(int, z == x || z == y, 1));
  launch(set, second, (void*)(uintptr_t)z, 1);
  OK(cuMemFreeAsync(z, second));
  cr_expect(eq(sz, sim_schedule_end(), 0));
  CLEAN();
}

Test(simgpu, memory_of_a_stream_is_not_there_for_others_at_once) {
  CUdeviceptr x = 0;
  OK(cuMemAllocAsync(&x, BYTES, first));
  OK(cuStreamSynchronize(first));
  cr_expect(eq(u64, *(uint64_t*)(uintptr_t)x, 0xcdcdcdcdcdcdcdcd), "garbage");
  OK(cuMemFreeAsync(x, first));
  OK(cuMemAllocAsync(&x, BYTES, first));
  launch(set, second, (void*)(uintptr_t)x, 1);
  FOUND(1, SIM_RACE);
  OK(cuMemFreeAsync(x, first));
  FOUND(1, SIM_UNORDERED_FREE);
}

/* What torch's and CuPy's allocators do: the next owner gets it in the stream's order. */
Test(simgpu, reuse_by_the_producer_needs_the_join_after) {
  for (int joined = 0; joined < 2; ++joined) {
    begin(3);
    CUdeviceptr x = 0;
    uint64_t* y = device_memory();
    OK(cuMemAllocAsync(&x, BYTES, first));
    launch(set, first, (void*)(uintptr_t)x, 1);
    join(second, first);
    launch(mix, second, y, (uint64_t)x);
    if (joined) join(first, second);
    OK(cuMemFreeAsync(x, first));
    expect_found(joined ? "joined" : "not joined", joined ? 0 : 1, SIM_UNORDERED_FREE);
  }
}

Test(simgpu, what_nobody_wrote_is_not_read) {
  uint64_t *x = device_memory(), *y = device_memory();
  launch(mix, first, y, (uint64_t)(uintptr_t)x);
  FOUND(1, SIM_UNINITIALISED_READ);
  launch(add, first, y, 1);
  CLEAN();
}

Test(simgpu, memory_is_freed_once) {
  uint64_t* x = sim_device_alloc(0, BYTES);
  sim_device_free(x);
  CLEAN();
  sim_device_free(x);
  FOUND(1, SIM_DOUBLE_FREE);
  sim_device_free(&x);
  FOUND(1, SIM_DOUBLE_FREE);
}

Test(simgpu, what_is_left_is_a_leak_unless_it_is_kept) {
  uint64_t* x = sim_device_alloc(0, BYTES);
  device_memory();
  cr_expect(eq(sz, sim_schedule_end(), 1));
  cr_expect(eq(u32, sim_report_at(0)->allocation, sim_allocation_id(x)));
  FOUND(1, SIM_LEAK);
}

Test(simgpu, memory_of_another_device_or_of_nobody) {
  uint64_t* x = sim_device_alloc(1, BYTES);
  sim_allocation_keep(x);
  launch(set, first, x, 1);
  FOUND(1, SIM_WRONG_DEVICE);
  uint64_t local = 0;
  launch(set, first, &local, 1);
  FOUND(1, SIM_UNKNOWN_MEMORY);
  launch(set, first, sim_pinned_alloc(BYTES), 1);
  CLEAN();
}

/* ---- words, and the end of a program ---- */

Test(simgpu, a_report_tells_what_happened) {
  uint64_t *x = device_memory(), *y = device_memory();
  sim_name(x, "weights");
  launch(set, first, y, 7);
  join(second, first);
  launch(set, first, x, 7);
  launch(mix, second, y, (uint64_t)(uintptr_t)x);
  char text[4096], small[8];
  size_t length = sim_report_text(0, text, sizeof(text));
  cr_expect(eq(sz, length, strlen(text)));
  cr_expect(eq(sz, sim_report_text(0, small, sizeof(small)), length));
  static const char* const words[] = {
      "race of allocation", "\"weights\"",         "kernel set",
      "kernel mix",         "stream \"first\"",    "stream \"second\"",
      "is ordered after:",  "nothing orders them", "wait of event"};
  for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
    cr_expect(strstr(text, words[i]) != NULL, "%s in:\n%s", words[i], text);
  }
  size_t lines = 0; /* of history: the wait and the two ends; not what is before both */
  for (const char* at = strstr(text, "history:"); (at = strchr(at + 1, '\n')); ++lines) {
  }
  cr_expect(eq(sz, lines, 4), "%s", text);
}

Test(simgpu, a_reset_gives_the_recording_stand_in_back) {
  uint64_t* x = device_memory();
  CUevent kept = event();
  launch(set, first, x, 1);
  OK(cuEventRecord(kept, first));
  sim_reset();
  cr_expect(zero(sz, sim_pending_count()));
  cr_expect(zero(sz, sim_record_count()));
  OK(cuEventQuery(kept));
  CUstream stream = sim_stream_create(sim_primary_context(0), 1);
  launch(set, stream, NULL, 1);
  OK(cuEventRecord(kept, stream));
  IS(CUDA_ERROR_NOT_READY, cuEventQuery(kept));
  sim_complete((void*)stream);
  OK(cuEventQuery(kept));
  OK(cuEventDestroy_v2(kept));
}
