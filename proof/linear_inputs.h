// Inputs of weights that are calibrated: LinearInput is an activation that linear nodes multiply
// with them, ExpertInputs observes those of routed experts.
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
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "graph/graph.h"
#include "plan/conversion.h"
#include "proof/checkpoint_execution.h"
#include "proof/sequences.h"
#include "runner/method.h"

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

// -- what routed experts multiply with their matrices (graph/experts.h)

// The matrices of a node of experts. `w1` and `w3` read x, and `w2` reads what they make of it.
struct ExpertMatrices {
  std::string w1, w3, w2;  // names of weights
  int64_t experts = 0, inner = 0, hidden = 0;
  std::vector<float> gates = {}, ups = {};              // w1 and w3, [experts, inner, hidden]
  std::vector<float> downs = {};                        // w2, [experts, hidden, inner]
  std::vector<float> gate_biases = {}, up_biases = {};  // [experts, inner], or empty
  double steepness = 0, limit = 0;                      // used with biases
  std::string activation = {};                          // used without biases
};

class ExpertInputs {
 public:
  // Adds probes to `part` for every node of experts with a matrix that `is_wanted`. The weights are
  // read from `source`.
  using IsWanted = std::function<bool(const std::string& weight)>;
  static Result<ExpertInputs> add_to(graph::Model& part, const TensorSource& source,
                                     const IsWanted& is_wanted);

  const std::vector<ExpertMatrices>& nodes() const { return nodes_; }
  // Takes the value of a probe. Other probes than those of add_to() are left alone.
  void take(std::string_view probe, const runner::TensorView& view);

  // Called with the index of the node, an expert, rows of what w1 and w3 read, [rows, hidden], and
  // what w2 reads of them, [rows, inner].
  using Use = std::function<void(size_t node, size_t expert, std::span<const float> x,
                                 std::span<const float> inner)>;
  // Calls `use` for every expert that tokens of the last call of the part were sent to, with these
  // tokens in their order, and forgets them. If `step` is not 0, every expert also gets each
  // `step`-th token of all calls, wherever it was sent.
  void give(ThreadPool& pool, const Use& use, size_t step = 0);

 private:
  std::vector<ExpertMatrices> nodes_;
  struct Seen {
    std::vector<float> x;
    std::vector<int64_t> ids;
    size_t tokens = 0;  // of earlier calls
  };
  std::vector<Seen> seen_;  // for each node
};

}  // namespace ferry::proof
