#include "runtime/backends/cuda/cuda_driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/dynlib.h"
#include "runtime/base/error.h"

typedef CUresult (*get_proc_address_v2_fn)(const char* name, void** out_function,
                                           int version, uint64_t flags,
                                           CUdriverProcAddressQueryResult* out_found);
typedef CUresult (*get_proc_address_fn)(const char* name, void** out_function,
                                        int version, uint64_t flags);

typedef struct symbol_source {
  void* library;
  get_proc_address_v2_fn get_v2; /* from 12.0 on */
  get_proc_address_fn get;       /* from 11.3 on */
} symbol_source;

atomic_uint ons__cuda_fork_count;

static void count_fork(void) {
  atomic_fetch_add_explicit(&ons__cuda_fork_count, 1, memory_order_relaxed);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

static void* open_library(const char* explicit_path, ons__string* tried) {
  static const char* const names[] = {"libcuda.so.1", "libcuda.so"};
  if (explicit_path) return ons__dynlib_open(explicit_path, tried);
  const char* named = getenv("ONSTREAM_CUDA_DRIVER");
  if (named && named[0]) return ons__dynlib_open(named, tried);
  /* Streams and tensors come from whoever uses CUDA in this process already: it must be
     their driver. */
  void* library = ons__dynlib_open_loaded(names[0]);
  for (size_t i = 0; !library && i < sizeof(names) / sizeof(names[0]); ++i) {
    library = ons__dynlib_open(names[i], tried);
  }
  return library;
}

static symbol_source open_symbols(void* library) {
  void* v2 = ons__dynlib_symbol(library, "cuGetProcAddress_v2");
  void* v1 = ons__dynlib_symbol(library, "cuGetProcAddress");
  symbol_source source = {.library = library};
  memcpy(&source.get_v2, &v2, sizeof(v2));
  memcpy(&source.get, &v1, sizeof(v1));
  return source;
}

/* Handle 0 must mean the legacy stream whatever the host was compiled for. A driver older
 * than cuGetProcAddress exports each ABI under a name of its own. */
static void* resolve(const symbol_source* source, const char* symbol, const char* name,
                     int version) {
  void* function = NULL;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  CUdriverProcAddressQueryResult found = 0;
  if (source->get_v2) {
    result = source->get_v2(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                            &found);
  } else if (source->get) {
    result = source->get(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
  } else {
    return ons__dynlib_symbol(source->library, symbol);
  }
  return result == CUDA_SUCCESS ? function : NULL;
}

/* The name of the first required function that is not there, or NULL. */
static const char* resolve_all(const symbol_source* source, ons__cuda_driver* driver) {
  enum { OPTIONAL, REQUIRED };
  void* function = NULL;
#define ONS_CUDA_SYMBOL(kind, symbol, name, abi_version, parameters) \
  function = resolve(source, #symbol, #name, abi_version);           \
  if (!function && kind == REQUIRED) return #symbol;                 \
  memcpy(&driver->symbol, &function, sizeof(function));
#include "runtime/backends/cuda/cuda_symbols.inc"
#undef ONS_CUDA_SYMBOL
  return NULL;
}

static ons_status initialise(ons__cuda_driver* driver, ons_error* error) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  driver->fork_count = atomic_load(&ons__cuda_fork_count);
  CUresult result = driver->cuInit(0);
  if (result == CUDA_SUCCESS) result = driver->cuDriverGetVersion(&driver->version);
  if (result == CUDA_SUCCESS) return ONS_STATUS_OK;
  ons__cuda_error_as(driver, ONS_STATUS_UNAVAILABLE, "cuInit", result, error);
  if (result == CUDA_ERROR_NOT_INITIALIZED) {
    ons__error_prefix(error,
                      "the CUDA driver does not start, as in a process forked after CUDA "
                      "was used (start such workers with \"spawn\")");
  }
  return ONS_STATUS_UNAVAILABLE;
}

ons_status ons__cuda_driver_load(const ons__settings* settings,
                                 ons__cuda_driver* out_driver, ons_error* error) {
  ons__string tried;
  ons__string_init(&tried, settings->allocator);
  ons_status status = ONS_STATUS_OK;
  void* library = open_library(settings->cuda_driver_path, &tried);
  if (!library) {
    status = ons__error_set(error, ONS_STATUS_UNAVAILABLE,
                            "no CUDA driver: install NVIDIA's, or name "
                            "its libcuda.so.1 in ONSTREAM_CUDA_DRIVER. Tried:%s",
                            ons__string_text(&tried));
  }
  ons__string_clear(&tried);
  if (status) return status;
  const symbol_source source = open_symbols(library);
  const char* missing = resolve_all(&source, out_driver);
  if (missing) {
    return ons__error_set(
        error, ONS_STATUS_UNAVAILABLE,
        "the CUDA driver has no %s: it is too old, update it (CUDA 11.0 is needed)",
        missing);
  }
  return initialise(out_driver, error);
}

ons_status ons__cuda_error_lost(ons_error* error) {
  return ons__error_set(
      error, ONS_STATUS_DEVICE,
      "this process was forked from one that uses CUDA, and contexts do not "
      "survive a fork: start workers with \"spawn\", or fork before the first "
      "use of the GPU");
}

static ons_status status_of(CUresult result) {
  switch ((int)result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ONS_STATUS_OUT_OF_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
      return ONS_STATUS_UNAVAILABLE;
    default:
      return ONS_STATUS_DEVICE;
  }
}

ons_status ons__cuda_error_as(const ons__cuda_driver* driver, ons_status status,
                              const char* call, CUresult result, ons_error* error) {
  const char* name = NULL;
  const char* text = NULL;
  if (driver->cuGetErrorName(result, &name) || !name) name = "unknown error";
  if (driver->cuGetErrorString(result, &text) || !text) text = "";
  return ons__error_native(error, status, call, (int32_t)result, "%s failed: %s (%d)%s%s",
                           call, name, (int)result, text[0] ? ": " : "", text);
}

ons_status ons__cuda_error(const ons__cuda_driver* driver, const char* call,
                           CUresult result, ons_error* error) {
  return ons__cuda_error_as(driver, status_of(result), call, result, error);
}
