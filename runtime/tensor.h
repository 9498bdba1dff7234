/* Questions about a borrowed DLTensor. None of them reads the data. */
#ifndef ONS_RUNTIME_TENSOR_H_
#define ONS_RUNTIME_TENSOR_H_

#include <onstream/dlpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A dtype as one word, for comparing. */
static inline uint32_t ons__dtype_word(DLDataType dtype) {
  uint32_t word;
  memcpy(&word, &dtype, sizeof(word));
  return word;
}

/* Do two indices certainly name one element: a stride of 0, or two strides that are
 * equal, in dimensions larger than 1? (Other overlaps are not looked for.) */
bool ons__tensor_overlaps(const DLTensor* tensor);

bool ons__tensor_is_empty(const DLTensor* tensor);

/* Dense in row-major order. Dimensions of size 1 may have any stride; an empty tensor is
 * dense. */
static inline bool ons__tensor_is_dense(const DLTensor* tensor) {
  int64_t expected = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
    int64_t size = tensor->shape[i];
    if (size < 0) return false;
    if (size != 1 && tensor->strides && tensor->strides[i] != expected) {
      return ons__tensor_is_empty(tensor);
    }
    if (__builtin_mul_overflow(expected, size, &expected)) return false;
  }
  return true;
}

/* The number of elements, modulo 2^64. */
uint64_t ons__tensor_count(const DLTensor* tensor);

/* What the elements take, wherever they lie. */
size_t ons__tensor_size_bytes(const DLTensor* tensor);

/* Stride of a dimension in elements, also where `strides` is NULL. */
int64_t ons__tensor_stride(const DLTensor* tensor, int32_t dimension);

/* "(3, 4)", "(5,)", "()", cut to the capacity. */
void ons__shape_text(const int64_t* values, int32_t count, char* out_text,
                     size_t capacity_bytes);

/* "cuda:0", "cpu", "pinned memory", "device type 14". */
void ons__device_text(DLDevice device, char* out_text, size_t capacity_bytes);

#endif /* ONS_RUNTIME_TENSOR_H_ */
