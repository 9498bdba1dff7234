// CUDA's cooperative groups for host compilers, under the name that CUDA sources include:
// blocks, grids, tiles up to a warp, coalesced threads and partitions of them.
#ifndef ONSTREAM_CPU_COOPERATIVE_GROUPS_H_
#define ONSTREAM_CPU_COOPERATIVE_GROUPS_H_

#include <onstream/cpu_warp.h>

namespace cooperative_groups {

// A block, or some lanes of a warp: what every group but the grid converts to.
class thread_group {
 public:
  void sync(ONS_CPU_LINE) const {
    if (is_block_) {
      __syncthreads(line_);
    } else {
      __syncwarp(lanes_, line_);
    }
  }
  unsigned long long num_threads() const {
    return is_block_ ? ons_cpu::thread_count()
                     : static_cast<unsigned int>(ons_cpu::count_lanes(lanes_));
  }
  unsigned long long size() const { return num_threads(); }
  unsigned long long thread_rank() const {
    return is_block_ ? ons_cpu::thread_rank() : rank_in_warp();
  }

 protected:
  explicit thread_group(bool is_block, ons_cpu::lane_mask lanes)
      : is_block_(is_block), lanes_(lanes) {}
  unsigned int rank_in_warp() const {
    return static_cast<unsigned int>(
        ons_cpu::count_lanes(lanes_ & ons_cpu::lanes_below(ons_cpu::lane())));
  }

  bool is_block_;
  ons_cpu::lane_mask lanes_;  // unless a block

  friend thread_group tiled_partition(const thread_group& parent, unsigned int size);
};

class thread_block : public thread_group {
 public:
  thread_block() : thread_group(true, 0) {}
  static unsigned int num_threads() { return ons_cpu::thread_count(); }
  static unsigned int size() { return num_threads(); }
  static unsigned int thread_rank() { return ons_cpu::thread_rank(); }
  static dim3 group_index() { return ons_cpu_block_index(); }
  static dim3 thread_index() { return ons_cpu_thread_index(); }
  static dim3 dim_threads() { return ons_cpu_block_size(); }
  static dim3 group_dim() { return dim_threads(); }
};
inline thread_block this_thread_block() { return {}; }

class grid_group {
 public:
  bool is_valid() const { return ons_cpu::here.launch->services->is_cooperative() != 0; }
  void sync(ONS_CPU_LINE) const { ons_cpu::wait_grid(line_); }
  static dim3 dim_blocks() { return ons_cpu_grid_size(); }
  static dim3 group_dim() { return dim_blocks(); }
  static dim3 block_index() { return ons_cpu_block_index(); }
  static unsigned long long num_blocks() {
    const dim3 size = dim_blocks();
    return 1ull * size.x * size.y * size.z;
  }
  static unsigned long long block_rank() {
    const dim3 size = dim_blocks(), at = block_index();
    return (1ull * at.z * size.y + at.y) * size.x + at.x;
  }
  static unsigned long long num_threads() {
    return num_blocks() * ons_cpu::thread_count();
  }
  static unsigned long long size() { return num_threads(); }
  static unsigned long long thread_rank() {
    return block_rank() * ons_cpu::thread_count() + ons_cpu::thread_rank();
  }
};
inline grid_group this_grid() { return {}; }

// Some lanes of a warp; ranks count them from the lowest on.
class lane_group : public thread_group {
 public:
  unsigned int num_threads() const {
    return static_cast<unsigned int>(ons_cpu::count_lanes(lanes_));
  }
  unsigned int size() const { return num_threads(); }
  unsigned int thread_rank() const { return rank_in_warp(); }

  int any(int predicate, ONS_CPU_LINE) const {
    return __any_sync(lanes_, predicate, line_);
  }
  int all(int predicate, ONS_CPU_LINE) const {
    return __all_sync(lanes_, predicate, line_);
  }
  ons_cpu::lane_mask ballot(int predicate, ONS_CPU_LINE) const {
    return in_ranks(__ballot_sync(lanes_, predicate, line_));
  }
  template <class T_>
  ons_cpu::lane_mask match_any(T_ value, ONS_CPU_LINE) const {
    return in_ranks(__match_any_sync(lanes_, value, line_));
  }
  template <class T_>
  ons_cpu::lane_mask match_all(T_ value, int& is_same, ONS_CPU_LINE) const {
    return in_ranks(__match_all_sync(lanes_, value, &is_same, line_));
  }
  // Past either end of the group a thread gets its own value back.
  template <class T_>
  T_ shfl_up(T_ value, unsigned int delta, ONS_CPU_LINE) const {
    const unsigned int rank = rank_in_warp();
    return from_rank(value, delta <= rank ? rank - delta : rank, line_);
  }
  template <class T_>
  T_ shfl_down(T_ value, unsigned int delta, ONS_CPU_LINE) const {
    const unsigned int rank = rank_in_warp();
    return from_rank(value, delta < num_threads() - rank ? rank + delta : rank, line_);
  }

  ons_cpu::lane_mask lanes() const { return lanes_; }

 protected:
  explicit lane_group(ons_cpu::lane_mask lanes) : thread_group(false, lanes) {}
  template <class T_>
  T_ from_rank(T_ value, unsigned int rank, unsigned int line_) const {
    return ons_cpu::shuffle(lanes_, value, ons_cpu::lane_of_rank(lanes_, rank), line_);
  }

 private:
  ons_cpu::lane_mask in_ranks(ons_cpu::lane_mask mask) const {
    ons_cpu::lane_mask ranks = 0;
    unsigned int rank = 0;
    for (ons_cpu::lane_mask left = lanes_; left; left &= left - 1, ++rank) {
      if (mask & left & -left) ranks |= ons_cpu::lane_mask(1) << rank;
    }
    return ranks;
  }
};

class coalesced_group : public lane_group {
 public:
  explicit coalesced_group(ons_cpu::lane_mask lanes, unsigned int rank = 0,
                           unsigned int count = 1)
      : lane_group(lanes), meta_rank_(rank), meta_count_(count) {}
  template <class T_>
  T_ shfl(T_ value, int source, ONS_CPU_LINE) const {
    return from_rank(value, static_cast<unsigned int>(source), line_);
  }
  unsigned int meta_group_rank() const { return meta_rank_; }
  unsigned int meta_group_size() const { return meta_count_; }

 private:
  unsigned int meta_rank_, meta_count_;
};
inline coalesced_group coalesced_threads(ONS_CPU_LINE) {
  return coalesced_group(__activemask(line_));
}

template <unsigned int size_, class Parent_ = void>
class thread_block_tile : public lane_group {
  static_assert(size_ > 0 && (size_ & (size_ - 1)) == 0, "a power of two");
  static_assert(size_ <= ONS_WARP_SIZE,
                "the CPU backend has tiles up to the size of a warp");

 public:
  explicit thread_block_tile(unsigned int parent_rank, unsigned int parent_size)
      : lane_group((~ons_cpu::lane_mask(0) >> (ONS_WARP_SIZE - size_))
                   << (ons_cpu::lane() & ~(size_ - 1))),
        meta_rank_(parent_rank / size_),
        meta_count_((parent_size + size_ - 1) / size_) {}

  static constexpr unsigned int num_threads() { return size_; }
  static constexpr unsigned int size() { return size_; }
  static unsigned int thread_rank() { return ons_cpu::lane() & (size_ - 1); }
  unsigned int meta_group_rank() const { return meta_rank_; }
  unsigned int meta_group_size() const { return meta_count_; }

  template <class T_>
  T_ shfl(T_ value, int source, ONS_CPU_LINE) const {
    return from_rank(value, static_cast<unsigned int>(source) % size_, line_);
  }
  template <class T_>
  T_ shfl_xor(T_ value, unsigned int bits, ONS_CPU_LINE) const {
    const unsigned int rank = thread_rank() ^ bits;
    return from_rank(value, rank < size_ ? rank : thread_rank(), line_);
  }

 private:
  unsigned int meta_rank_, meta_count_;
};

// ---- partitions ----

template <unsigned int size_>
inline thread_block_tile<size_, thread_block> tiled_partition(
    const thread_block& parent) {
  return thread_block_tile<size_, thread_block>(parent.thread_rank(), parent.size());
}
template <unsigned int size_, unsigned int parent_, class Grandparent_>
inline thread_block_tile<size_, thread_block_tile<parent_, Grandparent_>> tiled_partition(
    const thread_block_tile<parent_, Grandparent_>& parent) {
  static_assert(size_ <= parent_, "a tile is no larger than what it is a part of");
  return thread_block_tile<size_, thread_block_tile<parent_, Grandparent_>>(
      parent.thread_rank(), parent_);
}
// Of the threads with these ranks in the group, as lanes.
inline ons_cpu::lane_mask ons_cpu_lanes_of_ranks(ons_cpu::lane_mask group,
                                                 unsigned int first, unsigned int count) {
  ons_cpu::lane_mask lanes = 0;
  for (unsigned int rank = first; rank < first + count; ++rank) {
    const unsigned int lane = ons_cpu::lane_of_rank(group, rank);
    if (lane < 64) lanes |= ons_cpu::lane_mask(1) << lane;
  }
  return lanes;
}
inline thread_group tiled_partition(const thread_group& parent, unsigned int size) {
  // A block's tiles begin where its warps do.
  const ons_cpu::lane_mask group =
      parent.is_block_ ? ~ons_cpu::lane_mask(0) : parent.lanes_;
  const unsigned int rank = parent.is_block_ ? ons_cpu::lane() : parent.rank_in_warp();
  return thread_group(false, ons_cpu_lanes_of_ranks(group, rank / size * size, size));
}
inline coalesced_group tiled_partition(const coalesced_group& parent, unsigned int size) {
  const unsigned int rank = parent.thread_rank();
  return coalesced_group(ons_cpu_lanes_of_ranks(parent.lanes(), rank / size * size, size),
                         rank / size, (parent.size() + size - 1) / size);
}

// The threads for which the predicate, or the label, is the same.
template <class Group_>
inline coalesced_group binary_partition(const Group_& group, bool predicate,
                                        ONS_CPU_LINE) {
  const ons_cpu::lane_mask yes = __ballot_sync(group.lanes(), predicate, line_);
  return coalesced_group(predicate ? yes : group.lanes() & ~yes, predicate ? 0 : 1, 2);
}
template <class Group_, class Label_>
inline coalesced_group labeled_partition(const Group_& group, Label_ label,
                                         ONS_CPU_LINE) {
  return coalesced_group(__match_any_sync(group.lanes(), label, line_));
}

// ---- functions of groups ----

template <class Group_>
inline void sync(const Group_& group, ONS_CPU_LINE) {
  group.sync(line_);
}
template <class Group_>
inline unsigned long long thread_rank(const Group_& group) {
  return group.thread_rank();
}
template <class Group_>
inline unsigned long long group_size(const Group_& group) {
  return group.size();
}
template <class Group_, class F_, class... A_>
inline void invoke_one(const Group_& group, F_&& function, A_&&... arguments) {
  if (group.thread_rank() == 0) function(static_cast<A_&&>(arguments)...);
}

}  // namespace cooperative_groups

#endif  // ONSTREAM_CPU_COOPERATIVE_GROUPS_H_
