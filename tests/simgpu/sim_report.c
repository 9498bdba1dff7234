/* Findings, and their words. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/simgpu/sim_memory.h"

/* A program that is wrong is often wrong many times over. */
enum { MAX_REPORTS = 256 };
static sim_report reports[MAX_REPORTS];
static const sim_op* report_ops[MAX_REPORTS][2];
static const sim_allocation* report_allocations[MAX_REPORTS];
static size_t report_count;

typedef struct name {
  struct name* next;
  const void* object;
  char text[48];
} name;

static name* names; /* in the arena */

static void* stream_of(const sim_access* access) {
  return access ? access->op->stream : NULL;
}

void sim_report_add(sim_report_kind kind, const sim_allocation* allocation,
                    const void* pointer, const sim_access* first,
                    const sim_access* second) {
  sim_report report = {.kind = (int32_t)kind,
                       .allocation = allocation ? allocation->id : 0,
                       .pointer = (void*)(uintptr_t)pointer,
                       .first = first ? first->op->number : 0,
                       .second = second ? second->op->number : 0,
                       .first_stream = stream_of(first),
                       .second_stream = stream_of(second),
                       .first_is_write = first && first->write,
                       .second_is_write = second && second->write};
  for (size_t i = 0; i < report_count; ++i) {
    const sim_report* other = &reports[i];
    if (other->kind == report.kind && other->allocation == report.allocation &&
        other->first == report.first && other->second == report.second) {
      return;
    }
  }
  if (report_count == MAX_REPORTS) return;
  report_ops[report_count][0] = first ? first->op : NULL;
  report_ops[report_count][1] = second ? second->op : NULL;
  report_allocations[report_count] = allocation;
  reports[report_count++] = report;
}

void sim_reports_forget(void) {
  report_count = 0;
  names = NULL;
}

size_t sim_report_count(void) { return report_count; }

const sim_report* sim_report_at(size_t index) {
  if (index >= report_count) sim_die("there is no report %zu", index);
  return &reports[index];
}

void sim_clear_reports(void) { report_count = 0; }

const char* sim_report_kind_name(int kind) {
  static const char* const kinds[] = {
      "?",           "race", "use after free", "unordered free", "uninitialised read",
      "double free", "leak", "unknown memory", "wrong device"};
  return kind > 0 && kind <= SIM_WRONG_DEVICE ? kinds[kind] : kinds[0];
}

/* A pointer names the allocation that is there now. */
void sim_name(const void* object, const char* text) {
  pthread_mutex_lock(&sim.mutex);
  const sim_allocation* allocation =
      sim_kind_of(object) ? NULL : sim_find_allocation(object);
  name* added = sim_arena(sizeof(*added));
  added->next = names;
  added->object = allocation ? (const void*)allocation : object;
  snprintf(added->text, sizeof(added->text), "%s", text);
  names = added;
  pthread_mutex_unlock(&sim.mutex);
}

/* ---- words ---- */

typedef struct text {
  char* buffer;
  size_t capacity;
  size_t length; /* also of what did not fit */
} text;

__attribute__((format(printf, 2, 3))) static void say(text* out, const char* format,
                                                      ...) {
  size_t room = out->length < out->capacity ? out->capacity - out->length : 0;
  va_list args;
  va_start(args, format);
  int length = vsnprintf(room ? out->buffer + out->length : NULL, room, format, args);
  va_end(args);
  if (length > 0) out->length += (size_t)length;
}

static bool say_name(text* out, const void* object) {
  for (const name* one = names; one; one = one->next) {
    if (one->object != object) continue;
    say(out, "\"%s\"", one->text);
    return true;
  }
  return false;
}

static void say_stream(text* out, const sim_stream* stream, uint32_t number) {
  const char* role = stream == stream->context->legacy ? "legacy "
                     : stream->is_default              ? "per-thread "
                     : stream->blocking                ? "blocking "
                                                       : "";
  say(out, "%sstream ", role);
  if (!say_name(out, stream)) say(out, "%u", number);
  if (stream->context->device) say(out, " of device %d", stream->context->device);
}

static void say_chain(text* out, uint32_t index) {
  const sim_chain* chain = sim_chain_at(index);
  if (chain->thread) {
    say(out, "host thread %u", index);
  } else {
    const sim_stream* stream = chain->ops[0]->stream;
    say_stream(out, stream, chain->stream ? index : stream->chain);
    if (!chain->stream) say(out, ", branch %u of a graph", index);
  }
}

static void say_allocation(text* out, const sim_allocation* allocation) {
  say(out, "allocation %u", allocation->id);
  for (const name* one = names; one; one = one->next) {
    if (one->object != allocation) continue;
    say(out, " \"%s\"", one->text);
    return;
  }
}

static void say_work(text* out, const sim_op* op) {
  static const char* const words[] = {[SIM_WORK_EMPTY] = "nothing",
                                      [SIM_WORK_KERNEL] = "kernel",
                                      [SIM_WORK_FILL] = "fill",
                                      [SIM_WORK_COPY] = "copy",
                                      [SIM_WORK_HOST] = "host function",
                                      [SIM_WORK_RECORD] = "record",
                                      [SIM_WORK_WAIT] = "wait",
                                      [SIM_WORK_ALLOC] = "allocation",
                                      [SIM_WORK_FREE] = "free",
                                      [SIM_WORK_ACCESS] = "access",
                                      [SIM_WORK_GRAPH_BEGIN] = "begin of a graph",
                                      [SIM_WORK_GRAPH_END] = "end of a graph"};
  const sim_work* work = &op->work;
  say(out, "%s", words[work->kind]);
  if (work->kind == SIM_WORK_KERNEL) say(out, " %s", work->kernel->name);
  if (work->event) {
    say(out, " of event ");
    if (!say_name(out, work->event)) say(out, "%p", (const void*)work->event);
  }
  if (op->awaited) say(out, ", recorded by #%u,", op->awaited);
}

static void say_op(text* out, const sim_op* op) {
  say(out, "#%u ", op->number);
  say_work(out, op);
  say(out, " on ");
  say_chain(out, op->chain);
}

static void say_touched(text* out, const sim_op* op) {
  for (const sim_touch* one = op->touched; one; one = one->next) {
    say(out, "%s %s ", one == op->touched ? ":" : ",", one->write ? "writes" : "reads");
    say_allocation(out, one->allocation);
  }
}

/* Only the latest of each stream: it brings those before it. */
static void say_known(text* out, const sim_op* op) {
  say(out, "  #%u is ordered after:", op->number);
  size_t count = 0;
  for (uint32_t i = 1; i < op->clock.count; ++i) {
    uint32_t tick = op->clock.ticks[i];
    if (i == op->chain) --tick;
    if (!tick) continue;
    say(out, "%s #%u of ", count++ ? "," : "", sim_chain_at(i)->ops[tick - 1]->number);
    say_chain(out, i);
  }
  say(out, "%s\n", count ? "" : " nothing");
}

static bool touches(const sim_op* op, const sim_allocation* allocation) {
  for (const sim_touch* one = op->touched; one; one = one->next) {
    if (one->allocation == allocation) return true;
  }
  return false;
}

/* What is before both, or cannot order anything, explains nothing. */
static bool matters(const sim_op* op, const sim_op* const ends[2],
                    const sim_allocation* allocation) {
  if (op == ends[0] || op == ends[1]) return true;
  if (ends[0] && ends[1] && sim_ordered(op, ends[0]) && sim_ordered(op, ends[1])) {
    return false;
  }
  if (allocation && (touches(op, allocation) || op == allocation->born)) return true;
  switch (op->work.kind) {
    case SIM_WORK_RECORD:
    case SIM_WORK_WAIT:
    case SIM_WORK_GRAPH_BEGIN:
    case SIM_WORK_GRAPH_END:
      return true;
    default:
      return false;
  }
}

/* The operations of the two chains in the order of calls. */
static void say_history(text* out, const sim_op* const ends[2],
                        const sim_allocation* allocation) {
  uint32_t chains[2] = {ends[0] ? ends[0]->chain : 0, ends[1] ? ends[1]->chain : 0};
  if (chains[0] == chains[1]) chains[1] = 0;
  uint32_t last = ends[1] ? ends[1]->number : ends[0] ? ends[0]->number : 0;
  if (ends[0] && ends[0]->number > last) last = ends[0]->number;
  uint32_t next[2] = {0, 0};
  say(out, "  history:\n");
  for (;;) {
    const sim_op* first = NULL;
    int from = 0;
    for (int i = 0; i < 2; ++i) {
      const sim_chain* chain = chains[i] ? sim_chain_at(chains[i]) : NULL;
      if (!chain || next[i] == chain->count) continue;
      const sim_op* op = chain->ops[next[i]];
      if (first && first->number < op->number) continue;
      first = op;
      from = i;
    }
    if (!first || first->number > last) return;
    ++next[from];
    if (!matters(first, ends, allocation)) continue;
    say(out, "    ");
    say_op(out, first);
    say_touched(out, first);
    say(out, "\n");
  }
}

static void say_fault(text* out, size_t index) {
  const sim_report* report = &reports[index];
  const sim_op* const* ends = report_ops[index];
  say(out, "%s of ", sim_report_kind_name(report->kind));
  if (report_allocations[index]) {
    say_allocation(out, report_allocations[index]);
  } else {
    say(out, "address %p", report->pointer);
  }
  say(out, ": ");
  if (ends[0]) say_op(out, ends[0]);
  if (ends[0] && ends[1])
    say(out, " (%s) and ", report->first_is_write ? "write" : "read");
  if (ends[1]) {
    say_op(out, ends[1]);
    say(out, " (%s)", report->second_is_write ? "write" : "read");
  }
  switch (report->kind) {
    case SIM_RACE:
      say(out, ": nothing orders them");
      break;
    case SIM_USE_AFTER_FREE:
      say(out, ": the memory was freed before the use was asked for");
      break;
    case SIM_UNORDERED_FREE:
      say(out, ": the free may overtake the use");
      break;
    case SIM_UNINITIALISED_READ:
      say(out, ": nobody wrote it");
      break;
    case SIM_UNKNOWN_MEMORY:
      say(out, ": it, or part of it, is in no allocation");
      break;
    case SIM_LEAK:
      say(out, ": never freed");
      break;
    default:
      break;
  }
  say(out, "\n");
}

size_t sim_report_text(size_t index, char* buffer, size_t capacity) {
  pthread_mutex_lock(&sim.mutex);
  if (index >= report_count) sim_die("there is no report %zu", index);
  text out = {buffer, capacity, 0};
  if (capacity) buffer[0] = '\0';
  say_fault(&out, index);
  const sim_op* const* ends = report_ops[index];
  for (int i = 0; i < 2; ++i) {
    if (ends[i] && ends[i]->number) say_known(&out, ends[i]);
  }
  say_history(&out, (const sim_op* const[2]){ends[0], ends[1]},
              report_allocations[index]);
  pthread_mutex_unlock(&sim.mutex);
  return out.length;
}
