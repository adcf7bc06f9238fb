// widened_values: which values of a method are held in a wider dtype than the program states. Not a
// public header.
#pragma once

#include <optional>
#include <vector>

#include "core/dtype.h"
#include "formats/pte/program.h"

namespace ferry::runner {

// Per value: the dtype that MethodOptions::widen holds it in, if not its own. That is f32 for
// tensors in f16 or bf16 that are neither constants, nor selected from constants, nor mutable
// buffers.
std::vector<std::optional<DType>> widened_values(const pte::Method& method);
// For MethodOptions::f64: f64 for all floating-point tensors but matrices, which linear
// layers and embeddings read as they are stored.
std::vector<std::optional<DType>> f64_values(const pte::Method& method);

}  // namespace ferry::runner
