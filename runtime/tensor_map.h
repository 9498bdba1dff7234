/* Tensor maps: what TMA knows a tensor by, encoded by the driver for each launch. */
#ifndef ONS_RUNTIME_TENSOR_MAP_H_
#define ONS_RUNTIME_TENSOR_MAP_H_

#include <onstream/launch.h>

#include "runtime/backend.h"

/* Writes ONS_TENSOR_MAP_BYTES. NULL, or what does not fit the hardware, with what to do,
 * for an error message (static). |tensor| is well-formed and in the device's memory. */
const char* ons__tensor_map_encode(const ons_tensor_map* map, const DLTensor* tensor,
                                   ons__device* device, unsigned char* out_bytes);

#endif /* ONS_RUNTIME_TENSOR_MAP_H_ */
