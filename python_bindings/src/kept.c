/* What a call or a Tensor keeps, and how each thing is let go of. */
#include <string.h>

#include "binding.h"

static bool grow(onspy_kept* kept) {
  size_t capacity = kept->capacity > 0 ? 2 * kept->capacity : 4;
  ons_retained* items = PyMem_New(ons_retained, capacity);
  if (items == NULL) return false;
  if (kept->count > 0) memcpy(items, kept->items, kept->count * sizeof *items);
  if (kept->on_heap) PyMem_Free(kept->items);
  *kept = (onspy_kept){
      .items = items, .count = kept->count, .capacity = capacity, .on_heap = true};
  return true;
}

bool onspy_kept_add(onspy_kept* kept, void* object, void (*release)(void*)) {
  if (kept->count == kept->capacity && !grow(kept)) {
    release(object);
    return PyErr_NoMemory() != NULL;
  }
  kept->items[kept->count++] = (ons_retained){.object = object, .release = release};
  return true;
}

void onspy_kept_measure(onspy_kept* kept, const DLTensor* tensor) {
  int64_t bytes;
  if (kept->count == 0 || !onspy_size_bytes(tensor, &bytes)) return;
  kept->items[kept->count - 1].device_bytes = (size_t)bytes;
}

void onspy_kept_release(onspy_kept* kept) {
  if (kept->count == 0 && !kept->on_heap) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  for (size_t i = 0; i < kept->count; ++i) {
    kept->items[i].release(kept->items[i].object);
  }
  PyErr_Restore(type, value, traceback);
  kept->count = 0;
  if (!kept->on_heap) return;
  PyMem_Free(kept->items);
  *kept = (onspy_kept){.items = NULL};
}

/* An object with a finalizer is not shown: the collector would run that first, and what
 * it gives back may still be in use on the device. */
static int visit_object(PyObject* object, visitproc visit, void* arg) {
  if (object != NULL && Py_TYPE(object)->tp_finalize == NULL) Py_VISIT(object);
  return 0;
}

int onspy_kept_traverse(const onspy_kept* kept, visitproc visit, void* arg) {
  for (size_t i = 0; i < kept->count; ++i) {
    const ons_retained* entry = &kept->items[i];
    PyObject* object = NULL;
    if (entry->release == onspy_release_object) object = entry->object;
    if (entry->release == onspy_release_export)
      object = onspy_export_owner(entry->object);
    int stop = visit_object(object, visit, arg);
    if (stop != 0) return stop;
  }
  return 0;
}

void onspy_release_object(void* object) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Py_DECREF((PyObject*)object);
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(gil);
}
