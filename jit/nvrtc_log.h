/* Reading the log of an NVRTC compile. */
#ifndef ONS_JIT_NVRTC_LOG_H_
#define ONS_JIT_NVRTC_LOG_H_

#include <stdbool.h>
#include <stddef.h>

/* Does the log complain about name expressions? */
bool ons__nvrtc_log_has_blame(const char* log);

/* Does the log blame this name expression, or another built on the same kernel name
 * (`ons_sig<decltype(name)>`)? On true |out_diagnostic| receives the first such
 * diagnostic without its position, cut to `capacity_bytes`. */
bool ons__nvrtc_log_blames(const char* log, const char* name, char* out_diagnostic,
                           size_t capacity_bytes);

/* The first error that is not about a name expression, as "file:line: error: text", and,
 * where a header is missing, what brings it; cut to `capacity_bytes`. False where there
 * is none (then the text is the log's first line). */
bool ons__nvrtc_log_first_error(const char* log, char* out_text, size_t capacity_bytes);

#endif /* ONS_JIT_NVRTC_LOG_H_ */
