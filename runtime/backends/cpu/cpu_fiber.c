#include "runtime/backends/cpu/cpu_fiber.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

/* ---- sanitizers ------------------------------------------------------------------- */

/* Weak, so that whichever is in the process is served, also where this library is not
 * built with it: the kernels may be. */
#define WEAK __attribute__((weak))
WEAK void __sanitizer_start_switch_fiber(void** fake_stack, const void* low,
                                         size_t bytes);
WEAK void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_low,
                                          size_t* old_bytes);
WEAK void __asan_unpoison_memory_region(const volatile void* low, size_t bytes);
WEAK void* __tsan_get_current_fiber(void);
WEAK void* __tsan_create_fiber(unsigned flags);
WEAK void __tsan_destroy_fiber(void* fiber);
WEAK void __tsan_switch_to_fiber(void* fiber, unsigned flags);

static void find_own_stack(ons__cpu_fiber* self) {
  pthread_attr_t attributes;
  void* low = NULL;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  if (pthread_attr_getstack(&attributes, &low, &self->stack_bytes) == 0) {
    self->stack_low = low;
  }
  pthread_attr_destroy(&attributes);
}

static inline void before_switch(ons__cpu_fiber* from, const ons__cpu_fiber* to) {
  if (__sanitizer_start_switch_fiber) {
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack_low, to->stack_bytes);
  }
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(to->tsan, 0);
}

static inline void after_switch(const ons__cpu_fiber* self) {
  if (__sanitizer_finish_switch_fiber) {
    __sanitizer_finish_switch_fiber(self->fake_stack, NULL, NULL);
  }
}

static void begin(ons__cpu_fiber* self) {
  after_switch(self);
  self->entry(self->argument);
  abort();
}

/* ---- the switch ------------------------------------------------------------------- */

#if defined(ONS_FIBER_UCONTEXT)

static void begin_context(unsigned high, unsigned low) {
  begin((ons__cpu_fiber*)((uintptr_t)high << 16 << 16 | low));
}

static void prepare(ons__cpu_fiber* self, char* low, size_t bytes) {
  getcontext(&self->context);
  self->context.uc_stack = (stack_t){.ss_sp = low, .ss_size = bytes};
  const uintptr_t address = (uintptr_t)self;
  makecontext(&self->context, (void (*)(void))begin_context, 2,
              (unsigned)(address >> 16 >> 16), (unsigned)address);
}

static inline void jump(ons__cpu_fiber* from, ons__cpu_fiber* to) {
  swapcontext(&from->context, &to->context);
}

#else

/* Saves what a function has to preserve on the stack, and the stack's pointer at
 * `out_stack_pointer`; goes on with what another stack has saved. The floating-point
 * modes are the OS thread's: no kernel changes them over a wait. */
__attribute__((visibility("hidden"))) void ons__cpu_fiber_jump(void** out_stack_pointer,
                                                               void* stack_pointer);
__attribute__((visibility("hidden"))) void ons__cpu_fiber_begin(void);

static inline void jump(ons__cpu_fiber* from, ons__cpu_fiber* to) {
  ons__cpu_fiber_jump(&from->stack_pointer, to->stack_pointer);
}

/* The first jump finds in the preserved registers what to call. */
#define BEGIN_FUNCTION(name)                                             \
  ".text\n.p2align 4\n.globl " #name "\n.hidden " #name "\n.type " #name \
  ", %function\n" #name ":\n.cfi_startproc\n"
#define END_FUNCTION(name) ".cfi_endproc\n.size " #name ", . - " #name "\n"

#if defined(__x86_64__)
/* clang-format off */
__asm__(
    BEGIN_FUNCTION(ons__cpu_fiber_jump)
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  popq %rcx\n" /* a return would be predicted by the calls of another stack */
    "  jmpq *%rcx\n"
    END_FUNCTION(ons__cpu_fiber_jump)
    BEGIN_FUNCTION(ons__cpu_fiber_begin)
    "  .cfi_undefined %rip\n" /* the outermost frame */
    "  movq %r13, %rdi\n"
    "  callq *%r12\n"
    "  ud2\n"
    END_FUNCTION(ons__cpu_fiber_begin));
/* clang-format on */

static void prepare(ons__cpu_fiber* self, char* low, size_t bytes) {
  /* r15 to r12, rbx, rbp, the return address, and what a call's alignment needs. */
  uintptr_t* top = (uintptr_t*)(((uintptr_t)low + bytes) & ~(uintptr_t)15) - 9;
  void (*const function)(ons__cpu_fiber*) = begin;
  for (int i = 0; i < 9; ++i) top[i] = 0;
  top[2] = (uintptr_t)self;     /* r13 */
  top[3] = (uintptr_t)function; /* r12 */
  top[6] = (uintptr_t)ons__cpu_fiber_begin;
  self->stack_pointer = top;
}

#else
/* clang-format off */
__asm__(
    BEGIN_FUNCTION(ons__cpu_fiber_jump)
    "  sub sp, sp, #160\n"
    "  stp d8, d9, [sp]\n"
    "  stp d10, d11, [sp, #16]\n"
    "  stp d12, d13, [sp, #32]\n"
    "  stp d14, d15, [sp, #48]\n"
    "  stp x19, x20, [sp, #64]\n"
    "  stp x21, x22, [sp, #80]\n"
    "  stp x23, x24, [sp, #96]\n"
    "  stp x25, x26, [sp, #112]\n"
    "  stp x27, x28, [sp, #128]\n"
    "  stp x29, x30, [sp, #144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp d8, d9, [sp]\n"
    "  ldp d10, d11, [sp, #16]\n"
    "  ldp d12, d13, [sp, #32]\n"
    "  ldp d14, d15, [sp, #48]\n"
    "  ldp x19, x20, [sp, #64]\n"
    "  ldp x21, x22, [sp, #80]\n"
    "  ldp x23, x24, [sp, #96]\n"
    "  ldp x25, x26, [sp, #112]\n"
    "  ldp x27, x28, [sp, #128]\n"
    "  ldp x29, x30, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    END_FUNCTION(ons__cpu_fiber_jump)
    BEGIN_FUNCTION(ons__cpu_fiber_begin)
    "  .cfi_undefined x30\n" /* the outermost frame */
    "  mov x0, x20\n"
    "  blr x19\n"
    "  brk #1\n"
    END_FUNCTION(ons__cpu_fiber_begin));
/* clang-format on */

static void prepare(ons__cpu_fiber* self, char* low, size_t bytes) {
  uintptr_t* top = (uintptr_t*)(((uintptr_t)low + bytes) & ~(uintptr_t)15) - 20;
  void (*const function)(ons__cpu_fiber*) = begin;
  for (int i = 0; i < 20; ++i) top[i] = 0;
  top[8] = (uintptr_t)function; /* x19 */
  top[9] = (uintptr_t)self;     /* x20 */
  top[19] = (uintptr_t)ons__cpu_fiber_begin;
  self->stack_pointer = top;
}
#endif
#endif

/* ---- fibers ----------------------------------------------------------------------- */

void ons__cpu_fiber_adopt(ons__cpu_fiber* out_fiber) {
  *out_fiber = (ons__cpu_fiber){0};
  if (__sanitizer_start_switch_fiber) find_own_stack(out_fiber);
  if (__tsan_get_current_fiber) out_fiber->tsan = __tsan_get_current_fiber();
}

void ons__cpu_fiber_init(void* stack_low, size_t stack_bytes,
                         void (*entry)(void* argument), void* argument,
                         ons__cpu_fiber* out_fiber) {
  *out_fiber = (ons__cpu_fiber){.entry = entry,
                                .argument = argument,
                                .stack_low = stack_low,
                                .stack_bytes = stack_bytes};
  if (__asan_unpoison_memory_region) {
    __asan_unpoison_memory_region(stack_low, stack_bytes);
  }
  if (__tsan_create_fiber) out_fiber->tsan = __tsan_create_fiber(0);
  prepare(out_fiber, stack_low, stack_bytes);
}

void ons__cpu_fiber_switch(ons__cpu_fiber* from, ons__cpu_fiber* to) {
  assert(from != to);
  before_switch(from, to);
  jump(from, to);
  after_switch(from);
}

void ons__cpu_fiber_destroy(ons__cpu_fiber* fiber) {
  if (__tsan_destroy_fiber && fiber->tsan) __tsan_destroy_fiber(fiber->tsan);
  fiber->tsan = NULL;
}
