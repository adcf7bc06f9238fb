// ExpertInputs observes what routed experts multiply with their matrices (graph/experts.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "graph/graph.h"
#include "runner/method.h"

namespace ferry::proof {

// The matrices of a node of experts. `w1` and `w3` read x, and `w2` reads what they make of it.
struct ExpertMatrices {
  std::string w1, w3, w2;  // names of weights
  int64_t experts = 0, inner = 0, hidden = 0;
  std::vector<float> gates = {}, ups = {};              // w1 and w3, [experts, inner, hidden]
  std::vector<float> downs = {};                        // w2, [experts, hidden, inner]
  std::vector<float> gate_biases = {}, up_biases = {};  // [experts, inner], or empty
  double steepness = 0, limit = 0;                      // used with biases
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
