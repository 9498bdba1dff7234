/* Who compiles a key, among the processes that share a folder.
 *
 * The owner has a lock that the system gives up when the process ends. File systems
 * without locks get a file in its place, which counts for as long as a compile may take.
 * As in all of the folder nothing here is an error: without a lease everybody compiles.
 */
#ifndef ONS_JIT_CACHE_LEASE_H_
#define ONS_JIT_CACHE_LEASE_H_

#include <stdbool.h>

#include "jit/cache_key.h"

typedef enum ons__lease_state {
  ONS__LEASE_NONE = 0,  /* none can be had, or who had it kept nothing */
  ONS__LEASE_OWNED = 1, /* until the release */
  ONS__LEASE_TAKEN = 2  /* somebody else is at it: try again */
} ons__lease_state;

/* How it is told that an owner is gone. */
typedef enum ons__lease_kind {
  ONS__LEASE_BY_LOCK = 0,
  ONS__LEASE_BY_AGE = 1 /* ONS__LEASE_SECONDS later */
} ons__lease_kind;

enum { ONS__LEASE_SECONDS = 120 };

typedef struct ons__lease {
  ons__lease_kind kind; /* set by the caller; becomes BY_AGE where there are no locks */
  ons__lease_state state;
  int folder_fd;   /* these: -1 where not open */
  int fd;          /* of the file NAME.lock */
  bool has_waited; /* for an owner */
  char name[2 * ONS__HASH_BYTES + sizeof(".lock")];
} ons__lease;

#define ONS__LEASE_INIT \
  { ONS__LEASE_BY_LOCK, ONS__LEASE_NONE, -1, -1, false, "" }

/* Makes the folder where it is missing. Never waits. */
ons__lease_state ons__lease_try(ons__lease* lease, const char* folder,
                                const ons__cache_key* key);

/* Also after TAKEN, and without a lease. `has_kept`: there is an entry for those who
 * wait; otherwise they go on by themselves. */
void ons__lease_release(ons__lease* lease, bool has_kept);

#endif /* ONS_JIT_CACHE_LEASE_H_ */
