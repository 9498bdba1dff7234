// cooperative_groups::reduce for host compilers, in the order of the ranks.
#ifndef ONSTREAM_CPU_COOPERATIVE_GROUPS_REDUCE_H_
#define ONSTREAM_CPU_COOPERATIVE_GROUPS_REDUCE_H_

#include <cooperative_groups.h>

namespace cooperative_groups {

#define ONS_CPU_GROUP_OPERATOR(name, expression)           \
  template <class T_>                                      \
  struct name {                                            \
    T_ operator()(T_ a, T_ b) const { return expression; } \
  };
ONS_CPU_GROUP_OPERATOR(plus, a + b)
ONS_CPU_GROUP_OPERATOR(less, b < a ? b : a)
ONS_CPU_GROUP_OPERATOR(greater, a < b ? b : a)
ONS_CPU_GROUP_OPERATOR(bit_and, a& b)
ONS_CPU_GROUP_OPERATOR(bit_or, a | b)
ONS_CPU_GROUP_OPERATOR(bit_xor, a ^ b)
#undef ONS_CPU_GROUP_OPERATOR

template <class Group_, class T_, class Op_>
inline T_ reduce(const Group_& group, T_ value, Op_ op, ONS_CPU_LINE) {
  return ons_cpu::reduce(group.lanes(), value, op, line_).all;
}

}  // namespace cooperative_groups

#endif  // ONSTREAM_CPU_COOPERATIVE_GROUPS_REDUCE_H_
