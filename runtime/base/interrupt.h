/* The host's question whether to stop, and threads that must not ask it. */
#ifndef ONS_RUNTIME_BASE_INTERRUPT_H_
#define ONS_RUNTIME_BASE_INTERRUPT_H_

#include <onstream/runtime.h>
#include <stdbool.h>

/* Asks the hook, unless the thread is held. */
bool ons__interrupt_ask(ons_interrupt_fn interrupt, void* user_data);

/* A thread that another library has lent asks nothing until it is given back: that
 * library has no use for what the hook may leave in the thread, an exception of Python's
 * say. */
void ons__interrupt_hold(void);
void ons__interrupt_release(void);

#endif /* ONS_RUNTIME_BASE_INTERRUPT_H_ */
