/* Graphs, their execution, user objects, and captures, which make graphs. */
#ifndef ONS_TESTS_SIMGPU_SIM_GRAPH_H_
#define ONS_TESTS_SIMGPU_SIM_GRAPH_H_

#include "tests/simgpu/sim_queue.h"

typedef struct sim_node {
  sim_object object;
  struct sim_graph* graph;
  sim_list before;
  sim_work work;
  size_t index; /* scratch of what walks a graph */
  uint8_t parameters[];
} sim_node;

typedef struct sim_graph {
  sim_object object;
  sim_list nodes;
  size_t kernel_count;
  sim_list retained; /* a user object once for each reference */
} sim_graph;

typedef struct sim_exec_node {
  const sim_node* origin; /* may be gone: only compared */
  sim_work work;
  uint8_t* parameters;
  size_t* before; /* indices, all smaller */
  size_t before_count;
  bool is_last; /* nothing comes after it */
  uint32_t chain;
  sim_op* op; /* of the latest launch */
} sim_exec_node;

typedef struct sim_exec {
  sim_object object;
  sim_exec_node* nodes; /* what comes before others stands before them */
  size_t count;
  sim_list retained;
  sim_op* last; /* the end of the latest launch */
  size_t pins;  /* launches that have not ended */
} sim_exec;

/* ---- graphs ---- */

sim_graph* sim_graph_new(void);
sim_node* sim_graph_add(sim_graph* graph, const sim_list* before, const sim_work* work);
void sim_graph_drop(sim_graph* graph);
CUresult sim_exec_new(const sim_graph* graph, sim_exec** out_exec);
CUresult sim_exec_launch(sim_exec* exec, sim_stream* stream);
void sim_exec_drop(sim_exec* exec);
/* A launch of it has ended. */
void sim_exec_unpin(sim_exec* exec, const sim_op* end);
void sim_exec_set_work(sim_exec_node* node, const sim_work* work);
void sim_retain(sim_list* retained, sim_user_object* object, unsigned int count);
/* Destructors run on another thread, and for them the lock is given up. */
void sim_release(sim_user_object* object, unsigned int count);
/* Destroys all graphs and executable graphs. */
void sim_graphs_drop(void);
/* What an object of this file keeps besides itself; also of streams and events. */
void sim_object_free_inside(sim_object* object);

/* Reads the attributes of a launch, whose shape is in the current record, into it. */
CUresult sim_read_attributes(CUfunction handle, const CUlaunchConfig* config);

/* How many bytes of parameters a kernel takes. */
size_t sim_parameter_bytes(const sim_kernel* kernel);
/* A launch in the context, whose shape is in the current record; its parameters stay
 * there. */
CUresult sim_make_launch(CUfunction handle, const sim_context* context,
                         void* const* parameters, sim_work* out_work);

/* ---- captures ---- */

CUresult sim_capture_start(sim_stream* stream, sim_capture_mode mode);
/* The graph is NULL unless all went well. */
CUresult sim_capture_finish(sim_stream* stream, sim_graph** out_graph);
sim_capture* sim_capture_find(uint64_t id); /* NULL: it has ended */
void sim_capture_leave(sim_stream* stream);

/* Work for a stream: into its capture, its queue, or, when only recording, its count. */
CUresult sim_submit(sim_stream* stream, const sim_work* work);

#endif /* ONS_TESTS_SIMGPU_SIM_GRAPH_H_ */
