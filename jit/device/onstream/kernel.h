// Included ahead of every kernel source, on every backend: ons::view, ons::ptrs,
// ons::tensor_map and, where the compiler has no <stdint.h>, the fixed-width integers.
// C++17; nothing else is included. Template parameters end in an underscore because -DN=4
// and -DT=float are what sources are compiled with.
#ifndef ONSTREAM_KERNEL_H_
#define ONSTREAM_KERNEL_H_

#if defined(__CUDACC_RTC__)
// Spelt as libcu++ spells them, so that <cuda/std/cstdint> may follow.
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
#define ONS_DEVICE_INLINE __host__ __device__ __forceinline__
#elif defined(__CUDACC__) || defined(__HIP__)
#define ONS_DEVICE_INLINE __host__ __device__ inline
#else
#define ONS_DEVICE_INLINE inline
#endif
#if defined(ONSTREAM_CPU_ABI_H_)
extern "C" inline void ons_cpu_trap(const char* file, unsigned int line);
#endif

// With ONS_CHECK an index out of range ends the kernel with a message, on every backend.
#if defined(ONS_CHECK)
#if !defined(__CUDACC_RTC__) && !defined(__CUDACC__) && !defined(__HIP__)
extern "C" int printf(const char*, ...);
#endif
#define ONS_CHECK_INDEX(index, size, what, dimension)                                    \
  do {                                                                                   \
    if ((index) < 0 || (index) >= (size)) {                                              \
      printf(                                                                            \
          "onstream: index %lld is outside of dimension %d, of size %lld, of an %s\n",   \
          static_cast<long long>(index), dimension, static_cast<long long>(size), what); \
      ons::stop();                                                                       \
    }                                                                                    \
  } while (0)
#else
#define ONS_CHECK_INDEX(index, size, what, dimension) static_cast<void>(0)
#endif

namespace ons {

ONS_DEVICE_INLINE void stop() {
#if defined(__CUDA_ARCH__)
  __trap();
#elif defined(ONSTREAM_CPU_ABI_H_)
  ons_cpu_trap(nullptr, 0);
#else
  __builtin_trap();
#endif
}

// A tensor of rank N by value: element (i, j, ...) is data[i * strides[0] + j *
// strides[1] + ...]. Shape and strides count elements. view<const T, N> takes tensors
// that must not be written; Index_ is the type of the arithmetic, int where the tensor is
// known to be small.
template <class T_, int N_, class Index_ = long long>
struct view {
  static_assert(N_ >= 1, "a view has at least one dimension");
  static_assert(sizeof(Index_) == 4 || sizeof(Index_) == 8,
                "Index is a 32- or 64-bit integer");
  static constexpr int rank = N_;

  T_* data;
  Index_ shape[N_];
  Index_ strides[N_];

  template <class... I_>
  ONS_DEVICE_INLINE T_& operator()(I_... index) const {
    static_assert(sizeof...(I_) == N_, "as many indices as the view has dimensions");
    const Index_ at[] = {static_cast<Index_>(index)...};
    Index_ offset = 0;
    for (int d = 0; d < N_; ++d) {
      ONS_CHECK_INDEX(at[d], shape[d], "ons::view", d);
      offset += at[d] * strides[d];
    }
    return data[offset];
  }

  ONS_DEVICE_INLINE Index_ size() const {
    Index_ count = 1;
    for (int d = 0; d < N_; ++d) count *= shape[d];
    return count;
  }
};

// The tensors of a list by value, each dense: ptrs<const float, 3> holds three pointers.
template <class T_, int N_>
struct ptrs {
  static_assert(N_ >= 1 && N_ <= 512, "1 to 512 pointers fit the parameters of a kernel");
  static constexpr int count = N_;

  T_* data[N_];

  ONS_DEVICE_INLINE T_* operator[](int index) const {
    ONS_CHECK_INDEX(index, N_, "ons::ptrs", 0);
    return data[index];
  }
};

// TMA's descriptor of a tensor, as CUtensorMap: declare the parameter
// `const __grid_constant__ ons::tensor_map map` and pass &map to the instructions.
struct alignas(64) tensor_map {
  unsigned long long opaque[16];
};

}  // namespace ons

#endif  // ONSTREAM_KERNEL_H_
