/* Visibility, attributes and linkage used by every public header. */
#ifndef ONSTREAM_EXPORT_H_
#define ONSTREAM_EXPORT_H_

#if defined(__GNUC__) || defined(__clang__)
#define ONS_API __attribute__((visibility("default")))
#define ONS_NODISCARD __attribute__((warn_unused_result))
#define ONS_PRINTF(format_index, first_index) \
  __attribute__((format(printf, format_index, first_index)))
#else
#define ONS_API
#define ONS_NODISCARD
#define ONS_PRINTF(format_index, first_index)
#endif

#ifdef __cplusplus
#define ONS_BEGIN_DECLS extern "C" {
#define ONS_END_DECLS }
#else
#define ONS_BEGIN_DECLS
#define ONS_END_DECLS
#endif

#endif /* ONSTREAM_EXPORT_H_ */
