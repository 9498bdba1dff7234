// Our dlpack.h against the layout that every producer was built with.
#include "dlpack_layout.h"

#include <cstdio>
#include <cstring>

// The layout on 64-bit machines, by hand; where no other copy is at hand this is all
// there is.
static const Fact written_down[] = {
    {"sizeof(DLDevice)", 8},
    {"sizeof(DLDataType)", 4},
    {"sizeof(DLTensor)", 48},
    {"offsetof(DLTensor, byte_offset)", 40},
    {"sizeof(DLManagedTensor)", 64},
    {"sizeof(DLManagedTensorVersioned)", 80},
    {"offsetof(DLManagedTensorVersioned, deleter)", 16},
    {"offsetof(DLManagedTensorVersioned, dl_tensor)", 32},
    {"sizeof(DLPackExchangeAPI)", 56},
    {"offsetof(DLPackExchangeAPI, current_work_stream)", 48},
};

static int compare(const Fact& ours, const Fact& theirs, const char* whose) {
  if (ours.value == theirs.value) return 0;
  std::fprintf(stderr, "%s is %lld here, %lld in %s\n", ours.what, ours.value,
               theirs.value, whose);
  return 1;
}

static int compare_written_down(const Fact& expected) {
  for (size_t i = 0; i < dlpack_fact_count; ++i) {
    if (std::strcmp(dlpack_ours[i].what, expected.what) == 0)
      return compare(dlpack_ours[i], expected, "the specification");
  }
  std::fprintf(stderr, "%s is not looked at\n", expected.what);
  return 1;
}

int main() {
  int wrong = 0;
  for (const Fact& fact : written_down) wrong += compare_written_down(fact);
#ifdef ONS_TEST_TORCH_DLPACK
  for (size_t i = 0; i < dlpack_fact_count; ++i)
    wrong += compare(dlpack_ours[i], dlpack_torch[i], "torch");
  std::printf("%zu numbers as in torch's copy, %d wrong\n", dlpack_fact_count, wrong);
#else
  std::printf("no torch to compare with; %d wrong\n", wrong);
#endif
  return wrong != 0;
}
