/* The compiled part of launch_overhead.py, which builds it where it runs: the loops that
 * are timed in C, and empty functions to call from Python. One file for two loaders: an
 * extension module, and a plain shared object for ctypes. No CUDA header is needed. */
#ifndef BENCH_WITHOUT_PYTHON
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#endif
#include <dlfcn.h>
#include <onstream/onstream.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BENCH_API __attribute__((visibility("default")))

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* ---- the driver's own launches ----------------------------------------------------- */

typedef int (*launch_function)(void* function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared_bytes, void* stream,
                               void** parameters, void** extra);

typedef struct launch_config { /* laid out as the driver's CUlaunchConfig */
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
} launch_config;
typedef int (*launch_ex_function)(const launch_config* config, void* function,
                                  void** parameters, void** extra);

/* Both return nanoseconds per launch, or the driver's error code negated. */
BENCH_API double bench_launch_kernel(void* entry, void* function, void** parameters,
                                     unsigned grid, unsigned block, void* stream,
                                     int count);
BENCH_API double bench_launch_kernel_ex(void* entry, void* function, void** parameters,
                                        unsigned grid, unsigned block, void* stream,
                                        int count);

double bench_launch_kernel(void* entry, void* function, void** parameters, unsigned grid,
                           unsigned block, void* stream, int count) {
  launch_function launch = NULL;
  *(void**)&launch = entry;
  int result = 0;
  const double start = now_ns();
  for (int i = 0; i < count && result == 0; ++i) {
    result = launch(function, grid, 1, 1, block, 1, 1, 0, stream, parameters, NULL);
  }
  const double end = now_ns();
  return result ? -(double)result : (end - start) / count;
}

double bench_launch_kernel_ex(void* entry, void* function, void** parameters,
                              unsigned grid, unsigned block, void* stream, int count) {
  launch_ex_function launch = NULL;
  *(void**)&launch = entry;
  const launch_config config = {{grid, 1, 1}, {block, 1, 1}, 0, stream, NULL, 0};
  int result = 0;
  const double start = now_ns();
  for (int i = 0; i < count && result == 0; ++i) {
    result = launch(&config, function, parameters, NULL);
  }
  const double end = now_ns();
  return result ? -(double)result : (end - start) / count;
}

/* A launch between two streams that wait for each other, with what has to be asked first:
 * nanoseconds per launch, or the driver's error code negated. */
typedef struct join_entries {
  launch_ex_function launch;
  int (*is_capturing)(void* stream, int* status);
  int (*record)(void* event, void* stream);
  int (*wait)(void* stream, void* event, unsigned flags);
} join_entries;
BENCH_API double bench_launch_joined(void* const* entries, void* function,
                                     void** parameters, unsigned grid, unsigned block,
                                     void* stream, void* other, void* event, int count);

double bench_launch_joined(void* const* entries, void* function, void** parameters,
                           unsigned grid, unsigned block, void* stream, void* other,
                           void* event, int count) {
  join_entries driver;
  memcpy(&driver, entries, sizeof(driver));
  const launch_config config = {{grid, 1, 1}, {block, 1, 1}, 0, stream, NULL, 0};
  int result = 0;
  int status = 0;
  const double start = now_ns();
  for (int i = 0; i < count && result == 0; ++i) {
    result = driver.is_capturing(stream, &status);
    if (!result) result = driver.is_capturing(other, &status);
    if (!result) result = driver.record(event, other);
    if (!result) result = driver.wait(stream, event, 0);
    if (!result) result = driver.launch(&config, function, parameters, NULL);
    if (!result) result = driver.record(event, stream);
    if (!result) result = driver.wait(other, event, 0);
  }
  const double end = now_ns();
  return result ? -(double)result : (end - start) / count;
}

/* ---- onstream's C API -------------------------------------------------------------- */

/* Of the library named on the command line, not one that this file is linked with. */
#define LIBRARY_FUNCTIONS(XX) \
  XX(ons_runtime_create)      \
  XX(ons_runtime_release)     \
  XX(ons_module_create)       \
  XX(ons_module_release)      \
  XX(ons_module_kernel)       \
  XX(ons_kernel_release)      \
  XX(ons_kernel_launch)

/* kernel(float, const float*, const float*, float*, long long) on three tensors. */
typedef struct bench_axpy {
#define LIBRARY_MEMBER(name) __typeof__(&name) name;
  LIBRARY_FUNCTIONS(LIBRARY_MEMBER)
#undef LIBRARY_MEMBER
  ons_runtime* runtime;
  ons_module* module;
  ons_kernel* kernel;
  int64_t shape[1];
  DLTensor tensors[3];
  ons_arg args[5];
  ons_launch launch;
  ons_error error;
} bench_axpy;

BENCH_API bench_axpy* bench_axpy_create(void);
BENCH_API void bench_axpy_destroy(bench_axpy* axpy);
/* Returns NULL, or why it failed (valid as long as |axpy|). */
BENCH_API const char* bench_axpy_open(bench_axpy* axpy, const char* library_path,
                                      const char* source, const char* kernel);
BENCH_API const char* bench_axpy_bind(bench_axpy* axpy, int device_type,
                                      void* const* pointers, int64_t count, unsigned grid,
                                      unsigned block, void* stream);
/* Nanoseconds per launch, or an ons_status negated. */
BENCH_API double bench_axpy_launch(bench_axpy* axpy, int count);

bench_axpy* bench_axpy_create(void) { return calloc(1, sizeof(bench_axpy)); }

const char* bench_axpy_open(bench_axpy* axpy, const char* library_path,
                            const char* source, const char* kernel) {
  axpy->error = (ons_error)ONS_ERROR_INIT;
  void* library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return dlerror();
#define LIBRARY_LOAD(name)                      \
  *(void**)&axpy->name = dlsym(library, #name); \
  if (!axpy->name) return "the library has no " #name;
  LIBRARY_FUNCTIONS(LIBRARY_LOAD)
#undef LIBRARY_LOAD
  if (axpy->ons_runtime_create(NULL, &axpy->runtime, &axpy->error) ||
      axpy->ons_module_create(axpy->runtime, source, NULL, &axpy->module, &axpy->error) ||
      axpy->ons_module_kernel(axpy->module, kernel, &axpy->kernel, &axpy->error)) {
    return axpy->error.message;
  }
  return NULL;
}

const char* bench_axpy_bind(bench_axpy* axpy, int device_type, void* const* pointers,
                            int64_t count, unsigned grid, unsigned block, void* stream) {
  axpy->shape[0] = count;
  axpy->args[0] = (ons_arg){.kind = ONS_ARG_FLOAT, .value.f = 2.0};
  for (int i = 0; i < 3; ++i) {
    axpy->tensors[i] = (DLTensor){.data = pointers[i],
                                  .device = {(DLDeviceType)device_type, 0},
                                  .ndim = 1,
                                  .dtype = {kDLFloat, 32, 1},
                                  .shape = axpy->shape};
    axpy->args[1 + i] =
        (ons_arg){.kind = ONS_ARG_TENSOR, .value.tensor = &axpy->tensors[i]};
    if (device_type != kDLCPU) {
      axpy->args[1 + i].flags = ONS_ARG_STREAM_KNOWN;
      axpy->args[1 + i].stream = stream;
    }
  }
  axpy->args[4] = (ons_arg){.kind = ONS_ARG_INT, .value.i = count};
  axpy->launch = (ons_launch)ONS_LAUNCH_INIT;
  axpy->launch.grid[0] = grid;
  axpy->launch.block[0] = block;
  return bench_axpy_launch(axpy, 1) < 0 ? axpy->error.message : NULL;
}

double bench_axpy_launch(bench_axpy* axpy, int count) {
  ons_status status = ONS_STATUS_OK;
  const double start = now_ns();
  for (int i = 0; i < count && status == ONS_STATUS_OK; ++i) {
    status =
        axpy->ons_kernel_launch(axpy->kernel, &axpy->launch, axpy->args, 5, &axpy->error);
  }
  const double end = now_ns();
  return status ? -(double)status : (end - start) / count;
}

void bench_axpy_destroy(bench_axpy* axpy) {
  if (!axpy) return;
  if (axpy->kernel) axpy->ons_kernel_release(axpy->kernel);
  if (axpy->module) axpy->ons_module_release(axpy->module);
  if (axpy->runtime) axpy->ons_runtime_release(axpy->runtime);
  free(axpy);
}

/* ---- calls that do nothing --------------------------------------------------------- */

BENCH_API void bench_empty(float a, const void* x, void* y, long long n);

void bench_empty(float a, const void* x, void* y, long long n) {
  (void)a, (void)x, (void)y, (void)n;
}

#ifndef BENCH_WITHOUT_PYTHON
static PyObject* empty(PyObject* module, PyObject* const* args, Py_ssize_t count) {
  (void)module, (void)args, (void)count;
  Py_RETURN_NONE;
}

/* The least that a launch from Python with two torch tensors can be: their memory and
 * their stream by the exchange table, numbers converted, cuLaunchKernel. Nothing is
 * checked. */
static struct {
  launch_function launch;
  void* function;
  unsigned grid, block;
  const DLPackExchangeAPI* table;
} least;

static PyObject* least_set(PyObject* module, PyObject* args) {
  (void)module;
  unsigned long long entry, function;
  PyObject* capsule;
  if (!PyArg_ParseTuple(args, "KKIIO", &entry, &function, &least.grid, &least.block,
                        &capsule)) {
    return NULL;
  }
  *(void**)&least.launch = (void*)(uintptr_t)entry;
  least.function = (void*)(uintptr_t)function;
  least.table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  if (!least.table) return NULL;
  Py_RETURN_NONE;
}

static PyObject* least_launch(PyObject* module, PyObject* const* args, Py_ssize_t count) {
  (void)module, (void)count;
  DLTensor x, y;
  void* stream = NULL;
  float a = (float)PyFloat_AsDouble(args[0]);
  long long n = PyLong_AsLongLong(args[3]);
  if (least.table->dltensor_from_py_object_no_sync(args[1], &x) ||
      least.table->dltensor_from_py_object_no_sync(args[2], &y) ||
      least.table->current_work_stream(x.device.device_type, x.device.device_id,
                                       &stream)) {
    return NULL;
  }
  void* parameters[] = {&a, &x.data, &y.data, &n};
  int result = least.launch(least.function, least.grid, 1, 1, least.block, 1, 1, 0,
                            stream, parameters, NULL);
  if (result) return PyErr_Format(PyExc_RuntimeError, "cuLaunchKernel: %d", result);
  Py_RETURN_NONE;
}

/* ns that the table's owner takes for each of |count| tensors; what is owned is deleted
 * at once. */
static PyObject* lend(PyObject* module, PyObject* args) {
  (void)module;
  PyObject *capsule, *object;
  int owned, count;
  if (!PyArg_ParseTuple(args, "OOpi", &capsule, &object, &owned, &count)) return NULL;
  const DLPackExchangeAPI* table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  if (!table) return NULL;
  double start = now_ns();
  for (int i = 0; i < count; ++i) {
    DLTensor borrowed;
    DLManagedTensorVersioned* managed = NULL;
    if (owned ? table->managed_tensor_from_py_object_no_sync(object, &managed)
              : table->dltensor_from_py_object_no_sync(object, &borrowed)) {
      return NULL;
    }
    if (owned) managed->deleter(managed);
  }
  return PyFloat_FromDouble((now_ns() - start) / count);
}

static PyMethodDef methods[] = {
    {"lend", lend, METH_VARARGS, "lend(exchange table, array, owned, count): ns each"},
    {"empty", (PyCFunction)(void (*)(void))empty, METH_FASTCALL,
     "Takes anything, does nothing."},
    {"least_set", least_set, METH_VARARGS,
     "least_set(cuLaunchKernel, function, grid, block, exchange table)"},
    {"least", (PyCFunction)(void (*)(void))least_launch, METH_FASTCALL,
     "least(a, x, y, n): launches."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "bench_native",
                                        .m_size = -1,
                                        .m_methods = methods};

PyMODINIT_FUNC PyInit_bench_native(void);
PyMODINIT_FUNC PyInit_bench_native(void) { return PyModule_Create(&definition); }
#endif
