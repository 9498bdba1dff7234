/* Fibers: stacks that one OS thread switches between. */
#ifndef ONS_RUNTIME_BACKENDS_CPU_CPU_FIBER_H_
#define ONS_RUNTIME_BACKENDS_CPU_CPU_FIBER_H_

#include <stddef.h>

/* ucontext where there is no switch of our own; the definition asks for it. */
#if !defined(ONS_FIBER_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define ONS_FIBER_UCONTEXT
#endif
#if defined(ONS_FIBER_UCONTEXT)
#include <ucontext.h>
#endif

/* A stack and where it was left. Never moves to another OS thread. */
typedef struct ons__cpu_fiber {
#if defined(ONS_FIBER_UCONTEXT)
  ucontext_t context;
#else
  void* stack_pointer;
#endif
  void (*entry)(void* argument);
  void* argument;
  /* For sanitizers. */
  const void* stack_low;
  size_t stack_bytes;
  void* fake_stack;
  void* tsan;
} ons__cpu_fiber;

/* The stack that the OS thread runs on already. */
void ons__cpu_fiber_adopt(ons__cpu_fiber* out_fiber);

/* On a stack of its own: the caller's memory, which may have been a fiber's that was left
 * for good. entry(argument) runs at the first switch to it, and does not return. */
void ons__cpu_fiber_init(void* stack_low, size_t stack_bytes,
                         void (*entry)(void* argument), void* argument,
                         ons__cpu_fiber* out_fiber);

/* Leaves `from`, which is running, for `to`; returns when somebody switches back. */
void ons__cpu_fiber_switch(ons__cpu_fiber* from, ons__cpu_fiber* to);

/* Of a fiber that is not running, and was not adopted. */
void ons__cpu_fiber_destroy(ons__cpu_fiber* fiber);

#endif /* ONS_RUNTIME_BACKENDS_CPU_CPU_FIBER_H_ */
