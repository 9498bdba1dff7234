// The original header in torch's copy; then ours, which its include guard has to skip.
#include ONS_TEST_DLPACK_HEADER
#include <onstream/onstream.h>

#include "dlpack_layout.h"

const Fact dlpack_torch[] = {DLPACK_FACTS(DLPACK_FACT)};
