// Selecting from a constant without copying it: what an instruction takes out of a constant along
// its outermost dimension lies there in one piece, so its result can simply point at it. Programs
// with experts select three matrices per expert; copying them costs as much as using them.
#pragma once

#include "formats/pte/program.h"
#include "runner/method_state.h"

namespace ferry::runner {

// Makes views of the aten::select_copy.int_out steps of `state` of which nobody can tell: from a
// constant along dimension 0, into a tensor that is no input or output, has no second name, and
// that nothing else writes. Call after all steps are made.
void view_selected_constants(const pte::Method& method, MethodState& state);

}  // namespace ferry::runner
