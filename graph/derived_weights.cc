#include "graph/derived_weights.h"

#include <algorithm>
#include <unordered_set>

#include "core/derived_source.h"

namespace ferry::graph {

Recipe derived_tensor(const TensorSource& source, size_t entry, DType kept) {
  Recipe recipe = whole_tensor(source, entry);
  recipe.steps = {{.kind = Step::Kind::kDecode, .dtype = kept}};
  return recipe;
}

DType kept_dtype(const Recipe& recipe) {
  const bool decoded = !recipe.steps.empty() && recipe.steps[0].kind == Step::Kind::kDecode;
  return decoded ? recipe.steps[0].dtype : recipe.source_dtype;
}

std::vector<size_t> stored_entries_of(const Recipe& recipe, const TensorSource& source) {
  std::vector<size_t> stored;
  std::unordered_set<size_t> seen;
  for (const size_t entry : entries_of(recipe)) {
    const std::span<const size_t> parts = parts_of(source, entry);
    if (parts.empty() && seen.insert(entry).second) stored.push_back(entry);
    for (const size_t part : parts) {
      if (seen.insert(part).second) stored.push_back(part);
    }
  }
  return stored;
}

bool is_derived(const Recipe& recipe, const TensorSource& source) {
  return std::ranges::any_of(recipe.pieces, [&](const StridedPiece& piece) {
    return !parts_of(source, piece.tensor).empty();
  });
}

}  // namespace ferry::graph
