/* Programs on the simulated GPU: work runs late and in any order that the real one
 * allows, and every access and free that is not ordered after the one before is
 * reported. */
#ifndef ONS_TESTS_UNIT_PROGRAM_FIXTURE_H_
#define ONS_TESTS_UNIT_PROGRAM_FIXTURE_H_

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <onstream/onstream.h>

#include "tests/simgpu/sim_driver.h"
#include "tests/simgpu/sim_gpu.h"

#define OK(call) cr_assert(eq(int, (int)(call), 0), "%s", error.message)

enum { SEEDS = 40 };

static ons_runtime* runtime;
static ons_error error = ONS_ERROR_INIT;
static void *home, *third; /* streams */

static inline void open_runtime(void) {
  ons_runtime_options options = ONS_RUNTIME_OPTIONS_INIT;
  options.cuda_driver_path = ONS_TEST_SIMGPU_PATH;
  OK(ons_runtime_create(&options, &runtime, &error));
}

static inline void* named_stream(const char* name) {
  void* stream = sim_stream_create(sim_primary_context(0), 1);
  sim_name(stream, name);
  return stream;
}

static inline void begin_program(uint64_t seed) {
  sim_reset();
  sim_schedule_begin(seed);
  home = named_stream("home");
  third = named_stream("third");
}

/* The number of reports. */
static inline size_t end(bool print) {
  size_t count = sim_schedule_end();
  char text[2048] = "";
  if (count > 0 && print) {
    sim_report_text(0, text, sizeof(text));
    cr_log_error("%s", text);
  }
  return count;
}

#endif /* ONS_TESTS_UNIT_PROGRAM_FIXTURE_H_ */
