// Recipes over derived tensors (core/derived_source.h), and the stored tensors behind them.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/recipe.h"

namespace ferry::graph {

// All elements of a derived entry. Where no dtype is asked for they are stored as `kept`, in which
// the decoding step states it.
Recipe derived_tensor(const TensorSource& source, size_t entry, DType kept);

// What --dtype keep stores the values of a recipe as: the dtype that a derived tensor is kept in,
// else that of the source.
DType kept_dtype(const Recipe& recipe);

// entries_of(), but for those that are derived the stored entries that they are made of.
std::vector<size_t> stored_entries_of(const Recipe& recipe, const TensorSource& source);

// Whether a piece is one of a derived entry.
bool is_derived(const Recipe& recipe, const TensorSource& source);

}  // namespace ferry::graph
