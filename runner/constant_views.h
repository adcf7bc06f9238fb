// view_selected_constants: selects from constants without copying. A selection along the outermost
// dimension is contiguous, so the result can point into the constant. Programs with experts select
// three matrices per expert, and copying them costs as much as using them.
#pragma once

#include "formats/pte/program.h"
#include "runner/method_state.h"

namespace ferry::runner {

// Replaces select_copy along dimension 0 of a constant by a view where that is unobservable: the
// result is no input or output, is not aliased, and has no other writer. Call after all steps are
// made.
void view_selected_constants(const pte::Method& method, MethodState& state);

}  // namespace ferry::runner
