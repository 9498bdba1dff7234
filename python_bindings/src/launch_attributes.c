/* What launch() takes of launch attributes; and occupancy. */
#include "binding.h"

/* ---- launch attributes ------------------------------------------------------------ */

static bool is_given(const PyObject* object) { return object && object != Py_None; }

static bool parse_number(const onspy_kernel* kernel, PyObject* object, const char* what,
                         long lowest, long highest, long* out_value) {
  bool integral = PyIndex_Check(object) && !PyBool_Check(object);
  PyObject* number = integral ? PyNumber_Index(object) : NULL;
  if (number == NULL) {
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_TypeError, "kernel '%s': %s must be an int, not %.200s",
                   ons_kernel_name(kernel->handle), what, Py_TYPE(object)->tp_name);
    }
    return false;
  }
  int overflow = 0;
  *out_value = PyLong_AsLongAndOverflow(number, &overflow);
  bool fits = overflow == 0 && *out_value >= lowest && *out_value <= highest;
  if (!fits) {
    PyErr_Format(PyExc_ValueError, "kernel '%s': %s must be in %ld to %ld, not %R",
                 ons_kernel_name(kernel->handle), what, lowest, highest, number);
  }
  Py_DECREF(number);
  return fits;
}

static bool parse_cluster(const onspy_kernel* kernel, PyObject* cluster,
                          ons_launch_attributes* attributes) {
  if (!is_given(cluster)) return true;
  if (!onspy_extents_parse(kernel, cluster, "cluster", attributes->cluster)) return false;
  for (int i = 0; i < 3; ++i) {
    if (attributes->cluster[i] != 0) continue;
    PyErr_Format(PyExc_ValueError,
                 "kernel '%s': a cluster has at least one block on each axis, not %R",
                 ons_kernel_name(kernel->handle), cluster);
    return false;
  }
  return true;
}

bool onspy_attributes_parse(const onspy_kernel* kernel, const onspy_attribute_args* given,
                            ons_launch* launch, ons_launch_attributes* out_attributes) {
  const bool any = is_given(given->cluster) || is_given(given->priority) ||
                   is_given(given->carveout) || given->cooperative || given->programmatic;
  if (!any) return true;
  long value = 0;
  *out_attributes = (ons_launch_attributes)ONS_LAUNCH_ATTRIBUTES_INIT;
  if (!parse_cluster(kernel, given->cluster, out_attributes)) return false;
  if (given->cooperative) out_attributes->flags |= ONS_ATTRIBUTES_COOPERATIVE;
  if (given->programmatic) out_attributes->flags |= ONS_ATTRIBUTES_PROGRAMMATIC;
  if (is_given(given->priority)) {
    if (!parse_number(kernel, given->priority, "priority", INT32_MIN, INT32_MAX, &value))
      return false;
    out_attributes->flags |= ONS_ATTRIBUTES_PRIORITY;
    out_attributes->priority = (int32_t)value;
  }
  if (is_given(given->carveout)) {
    if (!parse_number(kernel, given->carveout, "carveout (percent)", 0, 100, &value))
      return false;
    out_attributes->flags |= ONS_ATTRIBUTES_CARVEOUT;
    out_attributes->carveout_percent = (uint32_t)value;
  }
  launch->attributes = out_attributes;
  return true;
}

/* ---- occupancy -------------------------------------------------------------------- */

/* Compiles where needed, and raises what the source has wrong. */
static bool prepare(onspy_kernel* kernel, PyObject* place, DLDevice* out_device) {
  return onspy_device_parse(kernel->state, place, out_device) &&
         onspy_kernel_prepare(kernel, *out_device);
}

static bool parse_block(const onspy_kernel* kernel, PyObject* block,
                        uint32_t* out_threads) {
  uint32_t extents[3];
  if (!onspy_extents_parse(kernel, block, "block", extents)) return false;
  uint64_t threads = (uint64_t)extents[0] * extents[1];
  /* Far too many stay so. */
  threads = threads > UINT32_MAX ? UINT32_MAX : threads * extents[2];
  *out_threads = threads > UINT32_MAX ? UINT32_MAX : (uint32_t)threads;
  return true;
}

static double fraction_of(const ons_occupancy* occupancy, uint32_t threads) {
  enum { WARP = 32 };
  if (occupancy->threads_per_multiprocessor == 0) return 0;
  double resident =
      (double)occupancy->blocks_per_multiprocessor * ((threads + WARP - 1) / WARP * WARP);
  return resident / occupancy->threads_per_multiprocessor;
}

PyObject* onspy_kernel_occupancy(PyObject* object, PyObject* args, PyObject* kwargs) {
  onspy_kernel* kernel = (onspy_kernel*)object;
  static char* keywords[] = {"block", "shared", "device", NULL};
  PyObject *block, *shared = NULL, *place = Py_None;
  DLDevice device;
  uint32_t threads = 0;
  long shared_bytes = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:occupancy", keywords, &block,
                                   &shared, &place) ||
      !parse_block(kernel, block, &threads) ||
      (shared != NULL &&
       !parse_number(kernel, shared, "shared (bytes)", 0, UINT32_MAX, &shared_bytes)) ||
      !prepare(kernel, place, &device)) {
    return NULL;
  }
  ons_occupancy occupancy = {.struct_size = sizeof occupancy};
  ons_error error = ONS_ERROR_INIT;
  if (ons_kernel_occupancy(kernel->handle, device, threads, (uint32_t)shared_bytes,
                           &occupancy, &error) != ONS_STATUS_OK) {
    return onspy_raise(kernel->state, &error);
  }
  return Py_BuildValue("{s:I,s:d,s:I}", "blocks", occupancy.blocks_per_multiprocessor,
                       "fraction", fraction_of(&occupancy, threads), "multiprocessors",
                       occupancy.multiprocessor_count);
}

PyObject* onspy_kernel_block_size(PyObject* object, PyObject* args, PyObject* kwargs) {
  onspy_kernel* kernel = (onspy_kernel*)object;
  static char* keywords[] = {"shared", "limit", "device", NULL};
  PyObject *shared = NULL, *limit = NULL, *place = Py_None;
  DLDevice device;
  long shared_bytes = 0, most = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOO:max_potential_block_size",
                                   keywords, &shared, &limit, &place) ||
      (shared != NULL &&
       !parse_number(kernel, shared, "shared (bytes)", 0, UINT32_MAX, &shared_bytes)) ||
      (limit != NULL && !parse_number(kernel, limit, "limit", 0, UINT32_MAX, &most)) ||
      !prepare(kernel, place, &device)) {
    return NULL;
  }
  uint32_t grid = 0, block = 0;
  ons_error error = ONS_ERROR_INIT;
  if (ons_kernel_max_potential_block_size(kernel->handle, device, (uint32_t)shared_bytes,
                                          (uint32_t)most, &grid, &block,
                                          &error) != ONS_STATUS_OK) {
    return onspy_raise(kernel->state, &error);
  }
  return Py_BuildValue("(II)", grid, block);
}
