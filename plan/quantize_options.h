// How the matrices of a bundle were quantised, from the recipes in its manifest.
#pragma once

#include "graph/passes/quantize_weights.h"
#include "packer/bundle_reader.h"

namespace ferry::plan {

// Options that quantise the same weights in the same way: a rule for each linear weight. Recipes
// that say nothing of the kind are left out; weights then differ from what the options give.
graph::QuantizeOptions quantize_options_of(const packer::Bundle& bundle);

}  // namespace ferry::plan
