// cooperative_groups::inclusive_scan and exclusive_scan for host compilers.
#ifndef ONSTREAM_CPU_COOPERATIVE_GROUPS_SCAN_H_
#define ONSTREAM_CPU_COOPERATIVE_GROUPS_SCAN_H_

#include <cooperative_groups/reduce.h>

namespace cooperative_groups {

template <class Group_, class T_, class Op_>
inline T_ inclusive_scan(const Group_& group, T_ value, Op_ op, ONS_CPU_LINE) {
  return ons_cpu::reduce(group.lanes(), value, op, line_).through;
}
template <class Group_, class T_>
inline T_ inclusive_scan(const Group_& group, T_ value) {
  return inclusive_scan(group, value, plus<T_>());
}

// The first thread gets T_(), which is what sums start from.
template <class Group_, class T_, class Op_>
inline T_ exclusive_scan(const Group_& group, T_ value, Op_ op, ONS_CPU_LINE) {
  const auto scan = ons_cpu::reduce(group.lanes(), value, op, line_);
  return group.thread_rank() == 0 ? T_() : scan.before;
}
template <class Group_, class T_>
inline T_ exclusive_scan(const Group_& group, T_ value) {
  return exclusive_scan(group, value, plus<T_>());
}

}  // namespace cooperative_groups

#endif  // ONSTREAM_CPU_COOPERATIVE_GROUPS_SCAN_H_
