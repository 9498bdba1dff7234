/* What every way of depending on onstream has to be able to build and run. */
#include <onstream/onstream.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  ons_error error = ONS_ERROR_INIT;
  ons_runtime* runtime = NULL;
  ons_module* module = NULL;
  int32_t count = 0;
  int failed = 1;
  if (strcmp(ons_version(), ONS_VERSION_STRING) != 0) goto done;
  if (ons_runtime_create(NULL, &runtime, &error)) goto done;
  if (ons_runtime_device_count(runtime, kDLCPU, &count, &error) || count != 1) goto done;
  if (ons_module_create(runtime, "__global__ void k(int* p) { *p = 1; }", NULL, &module,
                        &error))
    goto done;
  failed = strcmp(ons_module_kernel_name(module, 0), "k") != 0;
done:
  if (failed) fprintf(stderr, "consumer: %s\n", error.message);
  ons_module_release(module);
  ons_runtime_release(runtime);
  return failed;
}
