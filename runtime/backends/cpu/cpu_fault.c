#include "runtime/backends/cpu/cpu_fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <ucontext.h>

#include "runtime/backends/cpu/cpu_block.h"

/* ---- the first fault of a launch -------------------------------------------------- */

void ons__cpu_fault_set(ons__cpu_fault* fault, ons_status status, const char* format,
                        ...) {
  if (atomic_exchange(&fault->claimed, true)) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(fault->text, sizeof(fault->text), format, arguments);
  va_end(arguments);
  atomic_store_explicit(&fault->status, (int)status, memory_order_release);
}

void ons__cpu_fault_place(const uint32_t block[3], const uint32_t thread[3],
                          char* out_text, size_t capacity) {
  snprintf(out_text, capacity, "block (%u, %u, %u), thread (%u, %u, %u)", block[0],
           block[1], block[2], thread[0], thread[1], thread[2]);
}

/* ---- full stacks ------------------------------------------------------------------ */

static struct sigaction earlier;

/* Where the thread goes on, on its worker's other stack. */
static void land(void) {
  ons__cpu_block_fail(ons__cpu_worker_current()->block,
                      "the thread's stack of %d KiB is full: recurse less deeply, or use "
                      "smaller local arrays",
                      ONS__CPU_STACK_BYTES / 1024);
}

/* Out of the signal: to land(), with the stack as if it had been called. */
static void redirect(ucontext_t* context, void* stack) {
  const uintptr_t top = (uintptr_t)stack & ~(uintptr_t)15;
#if defined(__x86_64__)
  context->uc_mcontext.gregs[REG_RSP] = (greg_t)(top - 8);
  context->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)land;
#elif defined(__aarch64__)
  context->uc_mcontext.sp = top;
  context->uc_mcontext.pc = (uintptr_t)land;
#else
  sigset_t segv;
  (void)context;
  (void)top;
  sigemptyset(&segv);
  sigaddset(&segv, SIGSEGV);
  pthread_sigmask(SIG_UNBLOCK, &segv, NULL);
  land();
#endif
}

static void pass_on(int signal_number, siginfo_t* info, void* context) {
  if (earlier.sa_flags & SA_SIGINFO) {
    earlier.sa_sigaction(signal_number, info, context);
  } else if (earlier.sa_handler == SIG_DFL || earlier.sa_handler == SIG_IGN) {
    sigaction(signal_number, &earlier, NULL); /* and the fault comes again */
  } else {
    earlier.sa_handler(signal_number);
  }
}

static void on_fault(int signal_number, siginfo_t* info, void* context) {
  ons__cpu_worker* worker = ons__cpu_worker_current();
  if (worker && worker->fault && worker->block &&
      ons__cpu_block_overflown(worker->block, info->si_addr)) {
    redirect(context, worker->rescue_stack);
  } else {
    pass_on(signal_number, info, context);
  }
}

static void install(void) {
  struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
  action.sa_sigaction = on_fault;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGSEGV, NULL, &earlier) == 0) sigaction(SIGSEGV, &action, NULL);
}

void ons__cpu_fault_watch_stacks(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install);
}
