// LinearInput is an activation that linear nodes multiply with weights that are calibrated.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "plan/conversion.h"

namespace ferry::proof {

struct LinearInput {
  std::vector<std::string> weights;
  int64_t columns = 0;
  // Whether the program rounds the activation to 8 bits wherever it reads it.
  bool rounded = false;
  // Weights of the norm that makes the activation: the factors of its columns, and their bias where
  // there is one. Empty unless nothing else reads the activation or these weights. Then a factor of
  // a column can move from here to the columns of `weights`.
  std::vector<std::string> norm = {};
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

// Returns the weights of linear nodes whose activations the program rounds to 8 bits.
std::set<std::string> rounding_weights(const plan::Conversion& target);

// Returns the names of the weights that the bundle stores as codes of values, each for itself. A
// matrix that the embedding shares keeps the nearest codes.
std::set<std::string> codes_of_their_own(
    const std::map<std::string, const graph::Weight*>& planned);

}  // namespace ferry::proof
