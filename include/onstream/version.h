/* The version of these headers, and of the library that is really loaded. */
#ifndef ONSTREAM_VERSION_H_
#define ONSTREAM_VERSION_H_

#include <onstream/export.h>

#define ONS_VERSION_MAJOR 0
#define ONS_VERSION_MINOR 1
#define ONS_VERSION_PATCH 0
#define ONS_VERSION_STRING "0.1.0"

ONS_BEGIN_DECLS

/* The loaded library's version, "MAJOR.MINOR.PATCH". Static; never NULL. Any thread. */
ONS_API const char* ons_version(void);

ONS_END_DECLS

#endif /* ONSTREAM_VERSION_H_ */
