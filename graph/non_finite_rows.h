// Why values of a coded recipe could not be quantised.
#pragma once

#include <cstdint>

#include "core/result.h"
#include "core/tensor_source.h"
#include "graph/recipe.h"

namespace ferry::graph {

// How many of the values behind rows [first, first + rows) are NaN or infinite. What
// materialize_rows() counts beyond them is in blocks whose scale f16 cannot hold.
Result<uint64_t> count_non_finite_rows(const Recipe& recipe, const TensorSource& source,
                                       int64_t first, int64_t rows);

}  // namespace ferry::graph
