// The f32 weights of a planned model as rows of values, for the search in programs of other tools.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "graph/recipe.h"
#include "plan/conversion.h"

namespace ferry::proof {

struct WeightRows {
  std::string name;
  const graph::Weight* weight = nullptr;
  int64_t rows = 0, columns = 0;
};

// Return the weights with several dimensions as matrices of the last one, and those with a single
// dimension as one row. Weights with less than two columns are left out. `layers` is planned by
// plan_f32_layers() and must outlive the result.
std::vector<WeightRows> matrices_of(const plan::Conversion& layers);
std::vector<WeightRows> vectors_of(const plan::Conversion& layers);

// Reads whole rows from `first` on.
Status read_rows(const WeightRows& of, const TensorSource& source, int64_t first,
                 std::span<float> out);

// Returns `weight` without its layer, such as "attention.wq.weight".
std::string kind_of(const std::string& weight);

// The order of rows in heads of so many rows: the two halves of the first `turned` rows alternate,
// which is the order of Meta's checkpoints. Without heads rows are in order.
struct RowOrder {
  int64_t head = 0, turned = 0;

  // Returns where row `row` is.
  int64_t place_of(int64_t row) const;
};

// Returns the orders that a weight may have in a program: its own, and those of Meta's checkpoints
// for queries and keys.
std::vector<RowOrder> orders_of(const WeightRows& weight, const converters::ModelConfig& config);

}  // namespace ferry::proof
