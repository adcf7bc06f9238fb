// Adapters that stay apart from the weights: place_adapter() finds the weights of a model that an
// adapter changes, slots_of() the factors that programs need for several adapters, and
// factor_weights() makes the contents of one adapter's data file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/lora/adapter_tensors.h"
#include "core/derived_source.h"
#include "core/dtype.h"
#include "core/result.h"
#include "graph/passes/add_factors.h"
#include "graph/recipe.h"

namespace ferry::converters {

// A weight of the model by its runtime name.
struct ModelWeight {
  std::string name;
  Shape shape;
  // The values before any quantisation, which magnitudes need; nullptr where they are not at hand.
  const graph::Recipe* recipe = nullptr;
};

// The change of one weight by an adapter.
struct PlacedFactors {
  graph::FactorSlot slot;                // its rank is that of the adapter
  Shape shape;                           // of the weight: [out, in], or [entries, width] of a table
  size_t a = 0, b = 0;                   // entries of the adapter
  std::optional<size_t> magnitude = {};  // entry of the adapter: DoRA
  // The row of the module's matrix that each row of the weight is.
  std::vector<int64_t> rows;
  float scale = 1;
  float multiple = 1;  // what the weight is of the module's matrix
};
struct PlacedAdapter {
  std::vector<PlacedFactors> factors;
  DType dtype = DType::kF32;  // the smallest that holds A and B of all modules
};

// Whether the base has the values of an entry of the adapter under this key.
using IsOfBase = std::function<Result<bool>(const std::string& key, size_t entry)>;

// `weights` are those of the whole model, in the order of the model. kUnsupported, by name, for
// what factors cannot hold: modules that replace those of the base, experts, matrices of which a
// weight has a part of several, weights that are computed, magnitudes without the values of the
// base. kBadInput as merge_lora().
Result<PlacedAdapter> place_adapter(const AdapterTensors& adapter,
                                    const std::vector<ModelWeight>& weights,
                                    const ModelConfig& config, const IsOfBase& is_of_base);

// Returns the factors that hold all adapters: every weight that one of them changes, with the
// largest rank, in the order of `weights`; in the dtype of the adapters if that is one, else f32.
graph::FactorSlots slots_of(std::span<const PlacedAdapter> adapters,
                            const std::vector<ModelWeight>& weights);

// kUnsupported, by name, if the slots do not hold the adapter: a weight without a slot, a rank that
// is too large, a float dtype that cannot hold its values. `name` begins the message.
Status check_fits(const PlacedAdapter& adapter, const graph::FactorSlots& slots,
                  const std::string& name);

// Returns the tensors of the adapter's data file: the factors of every slot, under the names of
// graph::factor_names(). Smaller ranks are padded with zeros; slots that the adapter leaves out
// have the values that change nothing. Values are those of derived tensors, which are added to
// `source`. check_fits() must hold.
Result<graph::StateDict> factor_weights(const PlacedAdapter& adapter,
                                        const graph::FactorSlots& slots,
                                        const std::vector<ModelWeight>& weights,
                                        DerivedSource& source, const std::string& name,
                                        size_t any_entry);

}  // namespace ferry::converters
