#include "jit/architecture.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- CPUs -------------------------------------------------------------------------- */

#if defined(__x86_64__)
static bool has_level(int level) {
  __builtin_cpu_init();
  if (level >= 2 &&
      !(__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt"))) {
    return false;
  }
  if (level >= 3 && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
                      __builtin_cpu_supports("fma"))) {
    return false;
  }
  return level < 4 ||
         (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
          __builtin_cpu_supports("avx512vl"));
}
static const char* const levels[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
static const char* const marches[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
#else
static bool has_level(int level) { return level == 1; }
#if defined(__aarch64__)
static const char* const levels[] = {"aarch64"};
static const char* const marches[] = {"armv8-a"};
#else
static const char* const levels[] = {""};
static const char* const marches[] = {""};
#endif
#endif
enum { LEVELS = sizeof(levels) / sizeof(*levels) };

/* From 1; 0: of other machines. */
static int level_of(const char* arch) {
  for (int i = 0; i < LEVELS; ++i) {
    if (*arch && strcmp(arch, levels[i]) == 0) return i + 1;
  }
  return 0;
}

const char* ons__arch_march(const char* arch) {
  const int level = level_of(arch);
  return level ? marches[level - 1] : NULL;
}

/* ---- GPUs -------------------------------------------------------------------------- */

/* 90 of "sm_90a", with what follows; 0: none. */
static int number_after(const char* arch, const char* front, const char** out_suffix) {
  const size_t length = strlen(front);
  char* end = NULL;
  if (strncmp(arch, front, length) != 0 || arch[length] < '1' || arch[length] > '9')
    return 0;
  const long number = strtol(arch + length, &end, 10);
  *out_suffix = end;
  return number >= 10 && number < 10000 ? (int)number : 0;
}

ons__arch_family ons__arch_family_of(const char* arch) {
  static const char* const cpus[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4",
                                     "aarch64"};
  const char* suffix = "";
  if (number_after(arch, "sm_", &suffix) || number_after(arch, "compute_", &suffix)) {
    const bool is_known =
        !*suffix || strcmp(suffix, "a") == 0 || strcmp(suffix, "f") == 0;
    return is_known ? ONS__ARCH_CUDA : ONS__ARCH_UNKNOWN;
  }
  for (size_t i = 0; i < sizeof(cpus) / sizeof(*cpus); ++i) {
    if (strcmp(arch, cpus[i]) == 0) return ONS__ARCH_CPU;
  }
  return ONS__ARCH_UNKNOWN;
}

/* How well it suits the device, 0: not at all. The same capability is best; machine code
 * runs on later ones of its major number, unless it is for that one alone ("a"), or for
 * its family ("f"); PTX on all later ones. */
static int suits_gpu(const char* arch, int device) {
  const char* suffix = "";
  int number = number_after(arch, "sm_", &suffix);
  if (number) {
    const bool runs = *suffix == 'a' ? number == device
                                     : number / 10 == device / 10 && number <= device;
    return runs ? 2 * (10000 + number) + (*suffix != '\0') : 0;
  }
  number = number_after(arch, "compute_", &suffix);
  const bool runs = *suffix ? number == device : number && number <= device;
  return runs ? number : 0;
}

int ons__arch_suits(const char* arch, const char* device_arch) {
  const char* suffix = "";
  const int device = number_after(device_arch, "sm_", &suffix);
  if (device) return suits_gpu(arch, device);
  const int level = level_of(arch);
  return level && has_level(level) ? level : 0;
}
