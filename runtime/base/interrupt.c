#include "runtime/base/interrupt.h"

static _Thread_local unsigned int hold_count;

bool ons__interrupt_ask(ons_interrupt_fn interrupt, void* user_data) {
  return hold_count == 0 && interrupt(user_data) != 0;
}

void ons__interrupt_hold(void) { ++hold_count; }

void ons__interrupt_release(void) { --hold_count; }
