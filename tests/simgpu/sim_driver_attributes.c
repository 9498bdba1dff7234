/* The driver functions of launch attributes, occupancy and variables. */
#include <stdlib.h>
#include <string.h>

#include "tests/simgpu/sim_driver.h"
#include "tests/simgpu/sim_gpu.h"
#include "tests/simgpu/sim_graph.h"

enum { WARP = 32, RESIDENT_BLOCKS = 32, RESIDENT_SHARED_BYTES = 233472 };
enum { PORTABLE_CLUSTER = 8, OWN_SHARED_BYTES = 1024, HIGHEST_PRIORITY = -5 };

CUresult cuCtxGetStreamPriorityRange(int* out_lowest, int* out_highest) {
  ENTER();
  ENTER_CONTEXT();
  *out_lowest = 0;
  *out_highest = HIGHEST_PRIORITY;
  return sim_leave(CUDA_SUCCESS);
}

/* ---- occupancy ---- */

static const sim_kernel* kernel_of(CUfunction handle) {
  if (sim_kind_of(handle) == SIM_KERNEL) return sim_check(handle, SIM_KERNEL);
  return ((const sim_function*)sim_check(handle, SIM_FUNCTION))->kernel;
}

static uint32_t resident_blocks(const sim_kernel* kernel, uint32_t threads,
                                uint32_t dynamic_bytes) {
  uint32_t shared_bytes =
      kernel->info.static_shared_bytes + dynamic_bytes + OWN_SHARED_BYTES;
  uint32_t blocks = SIM_RESIDENT_THREADS / ((threads + WARP - 1) / WARP * WARP);
  if (blocks > RESIDENT_BLOCKS) blocks = RESIDENT_BLOCKS;
  if (blocks > RESIDENT_SHARED_BYTES / shared_bytes) {
    blocks = RESIDENT_SHARED_BYTES / shared_bytes;
  }
  return blocks;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out_count, CUfunction handle,
                                                     int threads, size_t dynamic_bytes) {
  ENTER();
  ENTER_CONTEXT();
  if (threads <= 0) return sim_leave(CUDA_ERROR_INVALID_VALUE);
  *out_count =
      (int)resident_blocks(kernel_of(handle), (uint32_t)threads, (uint32_t)dynamic_bytes);
  return sim_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* out_grid, int* out_block,
                                          CUfunction handle, CUoccupancyB2DSize shared_of,
                                          size_t dynamic_bytes, int limit) {
  ENTER();
  ENTER_CONTEXT();
  if (shared_of) sim_die("a function of shared memory is not known here");
  int best = 0;
  for (int threads = WARP; threads <= 1024; threads += WARP) {
    if (limit && threads > limit) break;
    int resident = threads * (int)resident_blocks(kernel_of(handle), (uint32_t)threads,
                                                  (uint32_t)dynamic_bytes);
    if (resident < best) continue;
    best = resident;
    *out_block = threads;
    *out_grid = SIM_MULTIPROCESSORS * resident / threads;
  }
  return sim_leave(CUDA_SUCCESS);
}

/* ---- attributes ---- */

static const CUlaunchAttribute* find_attribute(const CUlaunchConfig* config,
                                               CUlaunchAttributeID id) {
  for (unsigned int i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == id) return &config->attrs[i];
  }
  return NULL;
}

static void note_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue* value) {
  sim_record* record = sim_current_record();
  uint32_t index = record->attribute_count++;
  if (index >= SIM_MAX_ATTRIBUTES) sim_die("too many attributes");
  record->attribute_ids[index] = id;
  memcpy(record->attribute_values[index], value, sizeof(record->attribute_values[index]));
}

static CUresult check_cluster(const CUlaunchConfig* config, uint32_t* out_blocks) {
  const CUlaunchAttribute* given =
      find_attribute(config, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  *out_blocks = 1;
  if (!given) return CUDA_SUCCESS;
  const uint32_t x = given->value.clusterDim.x;
  const uint32_t y = given->value.clusterDim.y;
  const uint32_t z = given->value.clusterDim.z;
  *out_blocks = x * y * z;
  bool fits = *out_blocks && *out_blocks <= PORTABLE_CLUSTER && !(config->gridDimX % x) &&
              !(config->gridDimY % y) && !(config->gridDimZ % z);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

static uint32_t resident_of(CUfunction handle, const CUlaunchConfig* config) {
  return SIM_MULTIPROCESSORS *
         resident_blocks(kernel_of(handle),
                         config->blockDimX * config->blockDimY * config->blockDimZ,
                         config->sharedMemBytes);
}

CUresult cuOccupancyMaxActiveClusters(int* out_count, CUfunction handle,
                                      const CUlaunchConfig* config) {
  ENTER();
  ENTER_CONTEXT();
  uint32_t blocks = 1;
  CUresult result = check_cluster(config, &blocks);
  if (!result) *out_count = (int)(resident_of(handle, config) / blocks);
  return sim_leave(result);
}

CUresult sim_read_attributes(CUfunction handle, const CUlaunchConfig* config) {
  for (unsigned int i = 0; i < config->numAttrs; ++i) {
    note_attribute(config->attrs[i].id, &config->attrs[i].value);
  }
  uint32_t blocks = 1;
  CUresult result = check_cluster(config, &blocks);
  if (result || !find_attribute(config, CU_LAUNCH_ATTRIBUTE_COOPERATIVE)) return result;
  uint64_t grid = (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ;
  return grid <= resident_of(handle, config) ? CUDA_SUCCESS
                                             : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUlaunchAttributeID id,
                                       const CUlaunchAttributeValue* value) {
  ENTER();
  const sim_node* node = sim_check(handle, SIM_NODE);
  bool is_known = id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE ||
                  id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ||
                  id == CU_LAUNCH_ATTRIBUTE_PRIORITY ||
                  id == CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
  note_attribute(id, value);
  sim_current_record()->handle = handle;
  return sim_leave(is_known && node->work.kind == SIM_WORK_KERNEL
                       ? CUDA_SUCCESS
                       : CUDA_ERROR_INVALID_VALUE);
}

/* Only of a node that nothing comes after. */
CUresult cuGraphDestroyNode(CUgraphNode handle) {
  ENTER();
  sim_node* node = sim_check(handle, SIM_NODE);
  sim_graph* graph = node->graph;
  if (graph->nodes.items[graph->nodes.count - 1] != node) {
    sim_die("only the latest node can be destroyed here");
  }
  --graph->nodes.count;
  graph->kernel_count -= node->work.kind == SIM_WORK_KERNEL;
  node->object.dead = true;
  return sim_leave(CUDA_SUCCESS);
}

/* ---- variables ---- */

typedef struct variable {
  struct variable* next;
  const sim_library* library;
  int device;
  char* name;
  void* memory;
  size_t size_bytes;
} variable;

static variable* variables;

/* One for each device and image that is loaded. */
static variable* find_variable(const sim_library* library, int device, const char* name) {
  for (variable* one = variables; one; one = one->next) {
    if (one->library == library && one->device == device && !strcmp(one->name, name)) {
      return one;
    }
  }
  return NULL;
}

static variable* make_variable(const sim_library* library, int device, const char* name) {
  const void* bytes = NULL;
  size_t size_bytes = 0;
  if (!sim_image_find_variable(library->code, name, &bytes, &size_bytes)) return NULL;
  variable* made = sim_allocate(sizeof(*made));
  *made = (variable){.next = variables,
                     .library = library,
                     .device = device,
                     .name = strdup(name),
                     .memory = sim_allocate(size_bytes),
                     .size_bytes = size_bytes};
  if (bytes) memcpy(made->memory, bytes, size_bytes);
  variables = made;
  return made;
}

static CUresult get_global(CUdeviceptr* out_pointer, size_t* out_size_bytes,
                           const void* handle, const char* name) {
  const sim_library* library = sim_check(handle, SIM_LIBRARY);
  int device = sim_current->device;
  variable* found = find_variable(library, device, name);
  if (!found) found = make_variable(library, device, name);
  if (!found) return CUDA_ERROR_NOT_FOUND;
  *out_pointer = (CUdeviceptr)(uintptr_t)found->memory;
  *out_size_bytes = found->size_bytes;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* out_pointer, size_t* out_size_bytes,
                              CUmodule module, const char* name) {
  ENTER_UNSAFE();
  ENTER_CONTEXT();
  return sim_leave(get_global(out_pointer, out_size_bytes, module, name));
}

CUresult cuLibraryGetGlobal(CUdeviceptr* out_pointer, size_t* out_size_bytes,
                            CUlibrary library, const char* name) {
  ENTER_UNSAFE();
  ENTER_CONTEXT();
  return sim_leave(get_global(out_pointer, out_size_bytes, library, name));
}
