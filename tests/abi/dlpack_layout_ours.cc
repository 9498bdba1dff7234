#include <onstream/dlpack.h>

#include "dlpack_layout.h"

const Fact dlpack_ours[] = {DLPACK_FACTS(DLPACK_FACT)};
const size_t dlpack_fact_count = sizeof dlpack_ours / sizeof dlpack_ours[0];
