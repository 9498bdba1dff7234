// cooperative_groups::memcpy_async for host compilers: a copy that is shared out among
// the group's threads and done at once; the wait is for the other threads.
#ifndef ONSTREAM_CPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H_
#define ONSTREAM_CPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H_

#include <cooperative_groups.h>

namespace cooperative_groups {

template <class Group_>
inline void memcpy_async(const Group_& group, void* to, const void* from, size_t bytes) {
  const size_t share = (bytes + group.size() - 1) / group.size();
  const size_t first = share * group.thread_rank();
  if (first >= bytes) return;
  memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
         share < bytes - first ? share : bytes - first);
}
// In elements: as many as both have.
template <class Group_, class T_>
inline void memcpy_async(const Group_& group, T_* to, size_t to_count, const T_* from,
                         size_t from_count) {
  memcpy_async(group, static_cast<void*>(to), static_cast<const void*>(from),
               sizeof(T_) * (to_count < from_count ? to_count : from_count));
}

template <class Group_>
inline void wait(const Group_& group, ONS_CPU_LINE) {
  group.sync(line_);
}
template <unsigned int stages_, class Group_>
inline void wait_prior(const Group_& group, ONS_CPU_LINE) {
  group.sync(line_);
}

}  // namespace cooperative_groups

#endif  // ONSTREAM_CPU_COOPERATIVE_GROUPS_MEMCPY_ASYNC_H_
