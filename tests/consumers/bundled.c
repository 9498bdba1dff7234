/* Kernels that were linked into the program. */
#include <onstream/onstream.h>
#include <stdio.h>

#include "consumer_kernels.h"

int main(void) {
  ons_error error = ONS_ERROR_INIT;
  ons_runtime* runtime = NULL;
  ons_module* module = NULL;
  ons_kernel* kernel = NULL;
  int values[2] = {1, 2};
  int64_t count = 2;
  DLTensor tensor = {0};
  ons_arg arg = {0};
  ons_launch launch = ONS_LAUNCH_INIT;
  int failed = 1;
  tensor.data = values;
  tensor.device.device_type = kDLCPU;
  tensor.dtype.code = kDLInt;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.ndim = 1;
  tensor.shape = &count;
  arg.kind = ONS_ARG_TENSOR;
  arg.value.tensor = &tensor;
  launch.block[0] = 2;
  if (ons_runtime_create(NULL, &runtime, &error)) goto done;
  if (ons_module_create_from_bundle(runtime, consumer_kernels,
                                    (size_t)(consumer_kernels_end - consumer_kernels),
                                    &module, &error))
    goto done;
  if (ons_module_kernel(module, "add<int>", &kernel, &error)) goto done;
  if (ons_kernel_launch(kernel, &launch, &arg, 1, &error)) goto done;
  failed = values[0] != 4 || values[1] != 5;
done:
  if (failed)
    fprintf(stderr, "bundled: %s (%d, %d)\n", error.message, values[0], values[1]);
  ons_kernel_release(kernel);
  ons_module_release(module);
  ons_runtime_release(runtime);
  return failed;
}
