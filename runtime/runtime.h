/* The runtime object: settings, backends, and the devices opened so far. */
#ifndef ONS_RUNTIME_RUNTIME_H_
#define ONS_RUNTIME_RUNTIME_H_

#include <onstream/runtime.h>
#include <stdatomic.h>

#include "jit/cache.h"
#include "runtime/backend.h"
#include "runtime/base/thread.h"
#include "runtime/module_table.h"
#include "runtime/retire.h"

/* Devices are numbered by slot: 0 is the CPU, 1 + n is CUDA device n. Kernels keep one
 * entry per slot, so that the launch path indexes an array. */
enum { ONS__CUDA_DEVICES_MAX = 64, ONS__SLOT_COUNT = 1 + ONS__CUDA_DEVICES_MAX };

/* An opened device and what the runtime keeps beside it. Lives as long as the runtime. */
typedef struct ons__device_entry {
  ons__device* device;
  ons__event_pool events;          /* of eager streams */
  ons__event_pool captured_events; /* of streams under capture */
  ons__retire_list retire;
} ons__device_entry;

struct ons_runtime {
  atomic_size_t reference_count;
  ons_allocator allocator;
  ons__settings settings;
  atomic_uint order; /* ons_order; never ONS_ORDER_DEFAULT */
  ons__backend* cpu;
  ons__backend* cuda;
  ons__cache* cache;
  ons__module_table modules;
  ons__mutex mutex; /* guards opening of devices */
  _Atomic(ons__device_entry*) devices[ONS__SLOT_COUNT];
};

/* The slot of a device that kernels can run on; -1 for other types and ordinals. Pinned
 * memory belongs to the CPU, managed memory to the CUDA device it names. */
int ons__device_slot(DLDevice device);

/* Opens the device at the first call. The entry is borrowed from the runtime. */
ons_status ons__runtime_device(ons_runtime* runtime, DLDevice device,
                               ons__device_entry** out_entry, ons_error* error);

#endif /* ONS_RUNTIME_RUNTIME_H_ */
