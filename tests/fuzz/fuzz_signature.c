/* Any text is read as a kernel's signature, or refused with a reason. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/signature.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void check(const ons__signature* signature) {
  for (size_t i = 0; i < signature->count; ++i) {
    const ons__parameter* parameter = &signature->parameters[i];
    assert(parameter->type && strlen(parameter->type) <= 4096);
    assert(parameter->kind >= ONS_PARAMETER_POINTER &&
           parameter->kind <= ONS_PARAMETER_TENSOR_MAP);
    assert((parameter->size_bytes == 0) == (parameter->align_bytes == 0));
    assert(parameter->kind == ONS_PARAMETER_STRUCT || parameter->size_bytes > 0);
    char text[64];
    ons__dtype_text(parameter->dtype, text, sizeof(text));
    assert(text[0]);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  char* mangled = malloc(size + 1);
  if (!mangled) return 0;
  if (size) memcpy(mangled, data, size);
  mangled[size] = '\0';
  ons_error error = ONS_ERROR_INIT;
  ons__signature* signature = NULL;
  ons_status status = ons__signature_parse(NULL, mangled, &signature, &error);
  if (status == ONS_STATUS_OK) {
    check(signature);
  } else {
    assert(status == ONS_STATUS_UNSUPPORTED && !signature && error.message[0]);
  }
  ons__signature_destroy(signature);
  free(mangled);
  return 0;
}
