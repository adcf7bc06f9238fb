// LinearInput is an activation that linear nodes multiply with weights that are calibrated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "graph/graph.h"
#include "plan/conversion.h"
#include "proof/checkpoint_execution.h"
#include "proof/sequences.h"

namespace ferry::proof {

struct LinearInput {
  std::vector<std::string> weights;
  int64_t columns = 0;
  // Whether the program rounds the activation to 8 bits wherever it reads it.
  bool rounded = false;
  // Where a factor of a column can move from to the columns of `weights`, if nothing else reads the
  // activation. Both are empty otherwise.
  // Weights of the norm that makes the activation: the factors of its columns, and their bias where
  // there is one.
  std::vector<std::string> norm = {};
  // The matrix in `calibrated` whose outputs are a factor of the activation, as those of the up
  // projection are in a gated MLP: its rows.
  std::string product = {};
  bool can_be_smoothed() const { return !norm.empty() || !product.empty(); }
};

// Returns the method of a part that calibrations execute; nullptr if there is none.
const graph::MethodGraph* forward_of(const graph::Model& part);

// Returns how many nodes of all parts read each weight, in the method that calibrations execute.
std::map<std::string, int> readers_of_weights(const plan::ConvertedComponent& component);

// Adds a probe to `part` for every activation that a weight in `calibrated` reads; the i-th probe
// belongs to the i-th element of the result. The program rounds the activations that it multiplies
// with weights in `rounding`. `readers` are those of readers_of_weights().
std::vector<LinearInput> observed_inputs(graph::Model& part,
                                         const std::set<std::string>& calibrated,
                                         const std::set<std::string>& rounding,
                                         const std::map<std::string, int>& readers);

// Returns the index of the input that a probe of observed_inputs() belongs to.
std::optional<size_t> input_of(std::string_view probe);

// Calls use(index, value, floats) whenever the part computes an input that observed_inputs() gave a
// probe. Earlier observers are replaced.
using UseOfInput = std::function<void(size_t index, int32_t value, std::vector<float>& values)>;
Status observe_inputs(LoadedPart& part, const UseOfInput& use);

// Rounds rows of `columns` elements to 8 bits, as programs round activations.
void round_rows(std::span<float> values, int64_t columns);

// Executes a part of the component `role` for every sequence. Rounds the activations that the
// program rounds; without `inputs` nothing is rounded. Earlier observers of the inputs are
// replaced.
Status run_rounded(LoadedPart& part, std::string_view role, const std::vector<LinearInput>& inputs,
                   const Sequences& sequences, std::vector<PassedTensors>& states);

// Returns the weights of linear nodes whose activations the program rounds to 8 bits.
std::set<std::string> rounding_weights(const plan::Conversion& target);

// Returns the names of the weights that the bundle stores as codes of values, each for itself. A
// matrix that the embedding shares keeps the nearest codes.
std::set<std::string> codes_of_their_own(
    const std::map<std::string, const graph::Weight*>& planned);

}  // namespace ferry::proof
