/* Memory of the simulated machine, and what is known of each allocation: the judge of
 * races, uses after free and reads of what nobody wrote. */
#ifndef ONS_TESTS_SIMGPU_SIM_MEMORY_H_
#define ONS_TESTS_SIMGPU_SIM_MEMORY_H_

#include "tests/simgpu/sim_queue.h"

/* Freed memory stays mapped until the program is forgotten, and is handed out again only
 * by the same kind of allocator. */
typedef enum sim_memory_kind {
  SIM_MEMORY_DEVICE, /* freed by the host */
  SIM_MEMORY_POOL,   /* stream-ordered */
  SIM_MEMORY_PINNED
} sim_memory_kind;

typedef struct sim_access {
  sim_op* op;
  bool write;
} sim_access;

typedef struct sim_allocation {
  uint32_t id;
  uint8_t* pointer;
  size_t size_bytes;
  sim_memory_kind kind;
  int device; /* of pinned memory: -1 */
  bool keep;
  bool unwritten_reported;
  sim_op* born;
  sim_op* freed;
  /* Those that are not ordered before a later write, or of reads a later read. */
  sim_access* accesses;
  size_t access_count;
  size_t access_capacity;
} sim_allocation;

/* An operation's use of an allocation, for reports. */
typedef struct sim_touch {
  struct sim_touch* next;
  const sim_allocation* allocation;
  bool write;
} sim_touch;

/* What the pointer is in, also when it was freed; NULL: nothing that is known. */
sim_allocation* sim_find_allocation(const void* pointer);
/* How many bytes of known memory, free or not, begin here. */
size_t sim_mapped_bytes(const void* pointer);
/* From the host or, with a stream, in its order. `node_pointer` unless NULL is where a
 * graph has its memory. */
void* sim_allocate_memory(sim_memory_kind kind, int device, size_t size_bytes,
                          sim_stream* stream);
/* What a graph gives to its node: an address, and no memory to use before a launch. */
void* sim_reserve_memory(int device, size_t size_bytes);
/* Begins the life of reserved memory. */
void sim_memory_born(sim_op* op);
/* Fills memory with what nobody would want to read. */
void sim_spoil(void* pointer, size_t size_bytes, int value);

/* Judges what an operation was asked to do. */
void sim_memory_check(sim_op* op);
void sim_memory_check_access(sim_op* op, const void* pointer, bool read, bool write);
void sim_memory_report_leaks(void);
void sim_memory_forget(void);

/* What an operation of a kernel does with its parameters; NULL: never declared. */
const char* sim_kernel_access(sim_kernel* kernel);

/* ---- reports ---- */
void sim_report_add(sim_report_kind kind, const sim_allocation* allocation,
                    const void* pointer, const sim_access* first,
                    const sim_access* second);
void sim_reports_forget(void);

#endif /* ONS_TESTS_SIMGPU_SIM_MEMORY_H_ */
