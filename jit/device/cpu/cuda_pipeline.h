// The primitives of CUDA's asynchronous copies for host compilers: the copies are done at
// once.
#ifndef ONSTREAM_CPU_CUDA_PIPELINE_H_
#define ONSTREAM_CPU_CUDA_PIPELINE_H_

// The last `zero_bytes` of the destination are filled with zeros instead.
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes,
                                    size_t zero_bytes = 0) {
  memcpy(to, from, bytes - zero_bytes);
  memset(static_cast<char*>(to) + (bytes - zero_bytes), 0, zero_bytes);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(size_t) {}

#endif  // ONSTREAM_CPU_CUDA_PIPELINE_H_
