// widened_values: which values of a method are half-precision activations. Not a public header.
#pragma once

#include <vector>

#include "formats/pte/program.h"

namespace ferry::runner {

// Per value: whether MethodOptions::widen holds it in f32. True for tensors in f16 or bf16 that are
// neither constants, nor selected from constants, nor mutable buffers.
std::vector<bool> widened_values(const pte::Method& method);

}  // namespace ferry::runner
