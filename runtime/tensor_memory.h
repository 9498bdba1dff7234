/* Tensors whose memory is onstream's own. */
#ifndef ONS_RUNTIME_TENSOR_MEMORY_H_
#define ONS_RUNTIME_TENSOR_MEMORY_H_

#include <onstream/tensor.h>
#include <stdbool.h>

/* Is the memory one of ons_tensor_allocate's? NULL is accepted. */
bool ons__tensor_memory_is_own(const DLManagedTensorVersioned* managed);

/* Gives device memory of our own back to its pool, in the order of the stream that it was
 * allocated on; what is left for the deleter is no memory of the device. False, with
 * nothing done, where the stream is part of a capture or the driver refuses: then the
 * deleter frees it, once the device is past every use. */
bool ons__tensor_memory_free_in_order(DLManagedTensorVersioned* managed, void* stream);

#endif /* ONS_RUNTIME_TENSOR_MEMORY_H_ */
