/* The cache around a compiler that counts. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jit/cache.h"
#include "jit/cache_lease.h"
#include "runtime/base/error.h"
#include "runtime/base/interrupt.h"
#include "tests/unit/cache_fixture.h"

static atomic_int compile_count;
static const char* header;  /* which the compiler reads; NULL: none */
static const char* written; /* while the compiler runs; NULL: nothing */
static bool is_slow, fails, is_unknown;
static ons__cache* cache;

static void open_cache(void) {
  open_scratch();
  const ons__cache_config config = {.folder = folder};
  cr_assert(eq(int, ons__cache_create(&config, &cache, NULL), 0));
}

static void close_cache(void) {
  ons__cache_destroy(cache);
  close_scratch();
}

TestSuite(cache, .init = open_cache, .fini = close_cache);

static ons_status count_compile(void* context, const ons__compile_request* request,
                                ons__image** out_image, char** out_log,
                                ons_error* error) {
  (void)context;
  (void)out_log;
  atomic_fetch_add(&compile_count, 1);
  if (is_slow) wait_a_tick();
  if (written) write_file(written, "int b;");
  if (fails) return ons__error_set(error, ONS_STATUS_COMPILE_FAILED, "no");
  if (header && ons__inputs_add(request->inputs, header)) {
    size_t bytes = 0;
    ons__free(NULL,
              ons__inputs_read(request->inputs, request->inputs->count - 1, &bytes));
  }
  request->inputs->is_unknown |= is_unknown;
  *out_image = make_image("code");
  return ONS_STATUS_OK;
}

static ons_status get(unsigned char which) {
  const ons__cache_key key = {{which}};
  const ons__compile_request request = {.source = ""};
  ons__image* image = NULL;
  char* log = NULL;
  ons_status status =
      ons__cache_compile(cache, &key, &request, count_compile, NULL, &image, &log, NULL);
  if (!status) cr_expect_str_eq(image->code, "code");
  ons__image_destroy(image);
  ons__free(NULL, log);
  return status;
}

static int compiles_of(unsigned char which) {
  const int before = atomic_load(&compile_count);
  cr_assert(eq(int, get(which), 0));
  return atomic_load(&compile_count) - before;
}

Test(cache, compiles_a_key_once) {
  cr_expect(eq(int, compiles_of(1), 1));
  cr_expect(eq(int, compiles_of(1), 0));
  cr_expect(eq(int, compiles_of(2), 1));
}

Test(cache, keeps_no_failure) {
  fails = true;
  cr_expect(eq(int, get(1), ONS_STATUS_COMPILE_FAILED));
  fails = false;
  cr_expect(eq(int, compiles_of(1), 1));
}

Test(cache, keeps_nothing_whose_inputs_are_unknown) {
  is_unknown = true;
  cr_expect(eq(int, compiles_of(1), 1));
  cr_expect(eq(int, compiles_of(1), 1));
}

Test(cache, compiles_again_when_a_header_has_changed) {
  char path[600];
  snprintf(path, sizeof(path), "%s/a b.h", scratch);
  header = path;
  write_file(path, "int a;");
  wait_a_tick();
  cr_expect(eq(int, compiles_of(1), 1));
  cr_expect(eq(int, compiles_of(1), 0));
  write_file(path, "int b;");
  wait_a_tick();
  cr_expect(eq(int, compiles_of(1), 1), "of the same size");
  cr_expect(eq(int, compiles_of(1), 0));
  wait_a_tick();
  write_file(path, "int b;");
  cr_expect(eq(int, compiles_of(1), 0), "another time, but the same content");
  unlink(path);
  cr_expect(eq(int, compiles_of(1), 1));
}

Test(cache, compiles_again_when_a_header_appears) {
  char path[600];
  snprintf(path, sizeof(path), "%s/absent.h", scratch);
  header = path;
  cr_expect(eq(int, compiles_of(1), 1));
  cr_expect(eq(int, compiles_of(1), 0));
  write_file(path, "");
  wait_a_tick();
  cr_expect(eq(int, compiles_of(1), 1));
  cr_expect(eq(int, compiles_of(1), 0));
}

/* Written while the compiler ran: it may have read what was there before. */
Test(cache, keeps_nothing_of_a_header_that_changes_meanwhile) {
  char path[600];
  snprintf(path, sizeof(path), "%s/changing.h", scratch);
  header = written = path;
  write_file(path, "int a;");
  wait_a_tick();
  cr_expect(eq(int, compiles_of(1), 1));
  written = NULL;
  wait_a_tick();
  cr_expect(eq(int, compiles_of(1), 1));
  cr_expect(eq(int, compiles_of(1), 0));
}

Test(cache, is_no_worse_than_none_where_the_folder_is_lost_or_spoilt) {
  char command[700];
  cr_expect(eq(int, compiles_of(1), 1));
  snprintf(command, sizeof(command), "for f in '%s'/*; do echo x > \"$f\"; done", folder);
  cr_assert(eq(int, system(command), 0));
  cr_expect(eq(int, compiles_of(1), 1));
  cr_expect(eq(int, compiles_of(1), 0), "the spoilt entry was replaced");
  snprintf(command, sizeof(command), "rm -r '%s'", folder);
  cr_assert(eq(int, system(command), 0));
  cr_expect(eq(int, compiles_of(1), 1));
  cr_expect(eq(int, compiles_of(1), 0));
}

static void* get_one(void* unused) {
  (void)unused;
  (void)get(7);
  return NULL;
}

Test(cache, compiles_once_for_all_threads) {
  enum { THREADS = 16 };
  pthread_t threads[THREADS];
  is_slow = true;
  for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, get_one, NULL);
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  cr_expect(eq(int, atomic_load(&compile_count), 1));
}

/* ---- several processes ------------------------------------------------------------- */

/* Each with a cache of its own over the folder; how many compiled is in a file. */
static void get_in_children(int count, unsigned char which, char* counted) {
  pid_t pids[16];
  int gate[2], tally[2];
  cr_assert(eq(int, pipe(gate), 0));
  cr_assert(eq(int, pipe(tally), 0));
  for (int i = 0; i < count; ++i) {
    pids[i] = fork();
    if (pids[i] != 0) continue;
    char start;
    const ons__cache_config config = {.folder = folder};
    close(gate[1]);
    cr_assert(eq(int, ons__cache_create(&config, &cache, NULL), 0));
    cr_assert(eq(int, (int)read(gate[0], &start, 1), 0)); /* when the parent closes it */
    const ons_status status = get(which);
    for (int k = atomic_load(&compile_count); k > 0; --k)
      cr_assert(eq(int, (int)write(tally[1], "c", 1), 1));
    _exit(status == (fails ? ONS_STATUS_COMPILE_FAILED : ONS_STATUS_OK) ? 0 : 1);
  }
  close(gate[0]);
  close(gate[1]);
  close(tally[1]);
  for (int i = 0; i < count; ++i) {
    int status = -1;
    waitpid(pids[i], &status, 0);
    cr_expect(eq(int, status, 0));
  }
  const ssize_t bytes = read(tally[0], counted, 64);
  counted[bytes > 0 ? bytes : 0] = '\0';
  close(tally[0]);
}

Test(cache, compiles_once_for_all_processes) {
  char counted[65];
  is_slow = true;
  get_in_children(16, 7, counted);
  cr_expect(eq(str, counted, "c"));
}

Test(cache, what_fails_fails_in_each_process) {
  char counted[65];
  fails = true;
  get_in_children(4, 7, counted);
  cr_expect(eq(int, (int)strlen(counted), 4));
}

static ons__lease lease = ONS__LEASE_INIT;

static void hold(unsigned char which) {
  const ons__cache_key key = {{which}};
  cr_assert(eq(int, (int)ons__lease_try(&lease, folder, &key), ONS__LEASE_OWNED));
}

Test(cache, waits_for_a_time_only) {
  ons__cache* patient = cache;
  const ons__cache_config config = {.folder = folder, .wait_ms = 20};
  cr_assert(eq(int, ons__cache_create(&config, &cache, NULL), 0));
  hold(1);
  cr_expect(eq(int, compiles_of(1), 1));
  ons__lease_release(&lease, true);
  ons__cache_destroy(cache);
  cache = patient;
}

static int interrupt(void* calls) { return ++*(int*)calls == 3; }

Test(cache, the_wait_can_be_interrupted) {
  ons__cache* patient = cache;
  int calls = 0;
  const ons__cache_config config = {
      .folder = folder, .interrupt = interrupt, .interrupt_user_data = &calls};
  cr_assert(eq(int, ons__cache_create(&config, &cache, NULL), 0));
  hold(1);
  cr_expect(eq(int, get(1), ONS_STATUS_INTERRUPTED));
  cr_expect(eq(int, calls, 3));
  cr_expect(eq(int, atomic_load(&compile_count), 0));
  ons__lease_release(&lease, true);
  ons__cache_destroy(cache);
  cache = patient;
}

Test(cache, a_held_thread_asks_nothing_and_waits_to_the_end) {
  ons__cache* patient = cache;
  int calls = 0;
  const ons__cache_config config = {.folder = folder,
                                    .interrupt = interrupt,
                                    .interrupt_user_data = &calls,
                                    .wait_ms = 200};
  cr_assert(eq(int, ons__cache_create(&config, &cache, NULL), 0));
  hold(1);
  ons__interrupt_hold();
  cr_expect(eq(int, get(1), 0));
  ons__interrupt_release();
  cr_expect(eq(int, calls, 0));
  cr_expect(eq(int, atomic_load(&compile_count), 1), "it has compiled by itself");
  ons__lease_release(&lease, true);
  ons__cache_destroy(cache);
  cache = patient;
}

static ons_status compile_for_long(void* context, const ons__compile_request* request,
                                   ons__image** out_image, char** out_log,
                                   ons_error* error) {
  for (int i = 0; i < 20; ++i) wait_a_tick();
  return count_compile(context, request, out_image, out_log, error);
}

static void* get_slowly(void* unused) {
  const ons__cache_key key = {{1}};
  const ons__compile_request request = {.source = ""};
  ons__image* image = NULL;
  char* log = NULL;
  (void)!ons__cache_compile(cache, &key, &request, compile_for_long, NULL, &image, &log,
                            NULL);
  ons__image_destroy(image);
  return unused;
}

/* Of the thread that compiled when the process forked nothing is heard there. */
Test(cache, the_child_of_a_fork_does_not_wait_for_the_parents_thread) {
  pthread_t thread;
  pthread_create(&thread, NULL, get_slowly, NULL);
  for (int i = 0; i < 3; ++i) wait_a_tick();
  pid_t pid = fork();
  if (pid == 0) {
    const ons_status status = get(1);
    ons__cache_destroy(cache);
    _exit(status ? 1 : 0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  cr_expect(eq(int, status, 0));
  pthread_join(thread, NULL);
}

Test(cache, can_be_off) {
  ons__cache* off = NULL;
  const ons__cache_config config = {.folder = "off"};
  cr_assert(eq(int, ons__cache_create(&config, &off, NULL), 0));
  cr_expect(eq(ptr, (void*)ons__cache_path(off), NULL));
  cr_expect(eq(str, (char*)ons__cache_path(cache), folder));
  ons__cache_destroy(off);
  ons__cache_destroy(NULL);
}
