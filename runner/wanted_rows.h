// Outputs of which a caller reads some rows only: a prompt needs the logits of its last token, and
// programs state those of all tokens. For a small model with a large vocabulary that is a quarter
// of the work.
#pragma once

#include "runner/method_loading.h"

namespace ferry::runner {

// Finds outputs that are the result of a linear layer, cast or quantised or neither. Their rows do
// not depend on each other. Call after all else is loaded.
void find_row_outputs(Loading& loading);

// From now on rows [begin, begin + count) of an output are computed at least. A row is what the
// last dimension holds; others keep what was in their memory. Allocates nothing.
void want_rows(MethodState& state, size_t output, int64_t begin, int64_t count);
// All rows of all outputs.
void want_all_rows(MethodState& state);

}  // namespace ferry::runner
