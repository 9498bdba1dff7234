// Warps for host compilers: shuffles, votes, matches, reductions, and what cooperative
// groups are made of. Follows cpu_threads.h, which has the waiting.
#ifndef ONSTREAM_CPU_WARP_H_
#define ONSTREAM_CPU_WARP_H_

namespace ons_cpu {

#if ONS_WARP_SIZE == 64
using lane_mask = unsigned long long;
#else
using lane_mask = unsigned int;
#endif

inline lane_mask lanes_below(unsigned int lane_) { return (lane_mask(1) << lane_) - 1; }
inline int count_lanes(lane_mask mask) { return __builtin_popcountll(mask); }

// The lane of the thread that is the rank-th in the mask; none: 64.
inline unsigned int lane_of_rank(lane_mask mask, unsigned int rank) {
  while (mask && rank--) mask &= mask - 1;
  return mask ? static_cast<unsigned int>(__builtin_ctzll(mask)) : 64;
}

// What each thread of a warp brings to a meeting and takes from it. Combine_ has a
// function apply(slots, lanes), slots[lane] being the Slot_ of a thread that came; it is
// called once, by one of them.
template <class Slot_, class Combine_>
inline void meet(uint64_t mask, Slot_& slot, Combine_, unsigned int line) {
  void* alone = &slot;
  const auto combine = [](void** slots, uint64_t lanes) {
    Combine_::apply(reinterpret_cast<Slot_**>(slots), lanes);
  };
  if (is_alone()) {
    combine(&alone, 1);
  } else {
    wait_warp(mask, combine, &slot, line);
  }
}

// ---- shuffles ----

template <class T_>
struct shuffle_slot {
  T_ value, result;
  unsigned int source;  // a lane
};
// From a lane that did not come a thread gets its own value back.
struct shuffle_combine {
  template <class T_>
  static void apply(shuffle_slot<T_>** slots, uint64_t lanes) {
    for (uint64_t left = lanes; left; left &= left - 1) {
      shuffle_slot<T_>& own = *slots[__builtin_ctzll(left)];
      const bool came = own.source < 64 && (lanes >> own.source & 1);
      own.result = came ? slots[own.source]->value : own.value;
    }
  }
};
template <class T_>
inline T_ shuffle(lane_mask mask, T_ value, unsigned int source, unsigned int line) {
  shuffle_slot<T_> slot = {value, value, source};
  meet(mask, slot, shuffle_combine(), line);
  return slot.result;
}

// ---- votes ----

struct vote_slot {
  bool predicate;
  uint64_t voters, came;
};
struct vote_combine {
  static void apply(vote_slot** slots, uint64_t lanes) {
    uint64_t voters = 0;
    for (uint64_t left = lanes; left; left &= left - 1) {
      const int at = __builtin_ctzll(left);
      voters |= static_cast<uint64_t>(slots[at]->predicate) << at;
    }
    for (uint64_t left = lanes; left; left &= left - 1) {
      slots[__builtin_ctzll(left)]->voters = voters;
      slots[__builtin_ctzll(left)]->came = lanes;
    }
  }
};
inline vote_slot vote(lane_mask mask, bool predicate, unsigned int line) {
  vote_slot slot = {predicate, 0, 0};
  meet(mask, slot, vote_combine(), line);
  return slot;
}

// ---- matches: values are the same where their bits are ----

template <class T_>
struct match_slot {
  T_ value;
  uint64_t same, came;
};
struct match_combine {
  template <class T_>
  static void apply(match_slot<T_>** slots, uint64_t lanes) {
    for (uint64_t left = lanes; left; left &= left - 1) {
      match_slot<T_>& own = *slots[__builtin_ctzll(left)];
      own.same = 0;
      own.came = lanes;
      for (uint64_t others = lanes; others; others &= others - 1) {
        const int at = __builtin_ctzll(others);
        if (memcmp(&slots[at]->value, &own.value, sizeof(T_)) == 0)
          own.same |= uint64_t(1) << at;
      }
    }
  }
};
template <class T_>
inline match_slot<T_> match(lane_mask mask, T_ value, unsigned int line) {
  match_slot<T_> slot = {value, 0, 0};
  meet(mask, slot, match_combine(), line);
  return slot;
}

// ---- reductions and scans, in the order of the lanes ----

template <class T_, class Op_>
struct reduce_slot {
  T_ value, before, through, all;  // `before` is not set for the first
  Op_* op;
};
struct reduce_combine {
  template <class T_, class Op_>
  static void apply(reduce_slot<T_, Op_>** slots, uint64_t lanes) {
    reduce_slot<T_, Op_>* last = nullptr;
    for (uint64_t left = lanes; left; left &= left - 1) {
      reduce_slot<T_, Op_>* own = slots[__builtin_ctzll(left)];
      if (last) own->before = last->through;
      own->through = last ? T_((*own->op)(last->through, own->value)) : own->value;
      last = own;
    }
    for (uint64_t left = lanes; left; left &= left - 1) {
      slots[__builtin_ctzll(left)]->all = last->through;
    }
  }
};
template <class T_, class Op_>
inline reduce_slot<T_, Op_> reduce(lane_mask mask, T_ value, Op_& op, unsigned int line) {
  reduce_slot<T_, Op_> slot = {value, value, value, value, &op};
  meet(mask, slot, reduce_combine(), line);
  return slot;
}

struct no_combine {
  static void apply(char**, uint64_t) {}
};

}  // namespace ons_cpu

namespace ons_cpu_dialect {

inline void __syncwarp(ons_cpu::lane_mask mask = ~ons_cpu::lane_mask(0), ONS_CPU_LINE) {
  char nothing = 0;
  ons_cpu::meet(mask, nothing, ons_cpu::no_combine(), line_);
}
inline ons_cpu::lane_mask __activemask(ONS_CPU_LINE) {
  return static_cast<ons_cpu::lane_mask>(ons_cpu::active_mask(line_));
}

// A warp falls into sections of `width` lanes, a power of two.
template <class T_>
inline T_ __shfl_sync(ons_cpu::lane_mask mask, T_ value, int source,
                      int width = ONS_WARP_SIZE, ONS_CPU_LINE) {
  const unsigned int last = static_cast<unsigned int>(width) - 1;
  const unsigned int lane = ons_cpu::lane();
  return ons_cpu::shuffle(
      mask, value, (lane & ~last) | (static_cast<unsigned int>(source) & last), line_);
}
template <class T_>
inline T_ __shfl_up_sync(ons_cpu::lane_mask mask, T_ value, unsigned int delta,
                         int width = ONS_WARP_SIZE, ONS_CPU_LINE) {
  const unsigned int last = static_cast<unsigned int>(width) - 1;
  const unsigned int lane = ons_cpu::lane();
  delta %= ONS_WARP_SIZE;
  return ons_cpu::shuffle(mask, value, (lane & last) >= delta ? lane - delta : lane,
                          line_);
}
template <class T_>
inline T_ __shfl_down_sync(ons_cpu::lane_mask mask, T_ value, unsigned int delta,
                           int width = ONS_WARP_SIZE, ONS_CPU_LINE) {
  const unsigned int last = static_cast<unsigned int>(width) - 1;
  const unsigned int lane = ons_cpu::lane();
  delta %= ONS_WARP_SIZE;
  return ons_cpu::shuffle(mask, value,
                          (lane & last) + delta <= last ? lane + delta : lane, line_);
}
// Earlier sections can be reached, later ones not.
template <class T_>
inline T_ __shfl_xor_sync(ons_cpu::lane_mask mask, T_ value, int bits,
                          int width = ONS_WARP_SIZE, ONS_CPU_LINE) {
  const unsigned int last = static_cast<unsigned int>(width) - 1;
  const unsigned int lane = ons_cpu::lane();
  const unsigned int source = lane ^ (static_cast<unsigned int>(bits) % ONS_WARP_SIZE);
  return ons_cpu::shuffle(mask, value, source <= (lane | last) ? source : lane, line_);
}

inline int __any_sync(ons_cpu::lane_mask mask, int predicate, ONS_CPU_LINE) {
  return ons_cpu::vote(mask, predicate != 0, line_).voters != 0;
}
inline int __all_sync(ons_cpu::lane_mask mask, int predicate, ONS_CPU_LINE) {
  const ons_cpu::vote_slot vote = ons_cpu::vote(mask, predicate != 0, line_);
  return vote.voters == vote.came;
}
inline int __uni_sync(ons_cpu::lane_mask mask, int predicate, ONS_CPU_LINE) {
  const ons_cpu::vote_slot vote = ons_cpu::vote(mask, predicate != 0, line_);
  return vote.voters == vote.came || vote.voters == 0;
}
inline ons_cpu::lane_mask __ballot_sync(ons_cpu::lane_mask mask, int predicate,
                                        ONS_CPU_LINE) {
  return static_cast<ons_cpu::lane_mask>(
      ons_cpu::vote(mask, predicate != 0, line_).voters);
}

template <class T_>
inline ons_cpu::lane_mask __match_any_sync(ons_cpu::lane_mask mask, T_ value,
                                           ONS_CPU_LINE) {
  return static_cast<ons_cpu::lane_mask>(ons_cpu::match(mask, value, line_).same);
}
template <class T_>
inline ons_cpu::lane_mask __match_all_sync(ons_cpu::lane_mask mask, T_ value,
                                           int* is_same, ONS_CPU_LINE) {
  const ons_cpu::match_slot<T_> match = ons_cpu::match(mask, value, line_);
  *is_same = match.same == match.came;
  return *is_same ? static_cast<ons_cpu::lane_mask>(match.came) : 0;
}

#define ONS_CPU_REDUCE(name, T_, expression)                        \
  inline T_ name(ons_cpu::lane_mask mask, T_ value, ONS_CPU_LINE) { \
    auto op = [](T_ a, T_ b) -> T_ { return expression; };          \
    return ons_cpu::reduce(mask, value, op, line_).all;             \
  }
ONS_CPU_REDUCE(__reduce_add_sync, int, a + b)
ONS_CPU_REDUCE(__reduce_add_sync, unsigned int, a + b)
ONS_CPU_REDUCE(__reduce_min_sync, int, b < a ? b : a)
ONS_CPU_REDUCE(__reduce_min_sync, unsigned int, b < a ? b : a)
ONS_CPU_REDUCE(__reduce_max_sync, int, a < b ? b : a)
ONS_CPU_REDUCE(__reduce_max_sync, unsigned int, a < b ? b : a)
ONS_CPU_REDUCE(__reduce_and_sync, unsigned int, a& b)
ONS_CPU_REDUCE(__reduce_or_sync, unsigned int, a | b)
ONS_CPU_REDUCE(__reduce_xor_sync, unsigned int, a ^ b)
#undef ONS_CPU_REDUCE

}  // namespace ons_cpu_dialect

#endif  // ONSTREAM_CPU_WARP_H_
