/* Where code lies. The path of a launch runs after a driver call that has emptied the
 * caches, so its code is kept together and free of what only failures need. */
#ifndef ONS_RUNTIME_BASE_ATTRIBUTES_H_
#define ONS_RUNTIME_BASE_ATTRIBUTES_H_

/* What a launch writes to the stack is bounded by its plan; a canary would be two cache
 * lines more. */
#if defined(__has_attribute) && __has_attribute(no_stack_protector)
#define ONS__HOT __attribute__((hot, no_stack_protector))
#else
#define ONS__HOT __attribute__((hot))
#endif
#define ONS__COLD __attribute__((cold, noinline))
#define ONS__LIKELY(condition) __builtin_expect(!!(condition), 1)
#define ONS__UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define ONS__NOINLINE __attribute__((noinline))

#endif /* ONS_RUNTIME_BASE_ATTRIBUTES_H_ */
