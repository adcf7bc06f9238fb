// MatrixCost says what codes of a matrix cost the model, as the divergence of its predictions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "graph/passes/quantize_weights.h"
#include "proof/checkpoint_execution.h"
#include "proof/sequences.h"

namespace ferry::proof {

struct MatrixCost {
  std::string weight;  // name
  bool is_of_experts = false;
  // The mean over tokens of KL(p || q) in nats: p predicts with the weights in f32, q with the
  // codes of this matrix, and all other weights in f32.
  double divergence = 0;
  // Other schemes that the matrix can have, and their errors of the matrix's output relative to
  // that of its scheme, where both have the nearest codes.
  std::vector<std::pair<graph::LinearQuantization, double>> alternatives = {};

  graph::QuantizationScheme form_of(const graph::LinearQuantization& scheme) const {
    return is_of_experts ? graph::scheme_of_experts(scheme) : graph::scheme_of(scheme);
  }
};

// Measures divergences while a model is executed layer by layer. Each matrix has a variant of the
// model, with the codes of this matrix alone. The hidden states of all variants are in memory, and
// each layer continues them. Both models see the same tokens, so few tokens suffice.
class DivergenceMeter {
 public:
  // Messages begin with `name`. A few tokens of some of `sequences` are taken.
  DivergenceMeter(const Sequences& sequences, ThreadPool& pool, std::string name);

  // Executes the next part, one of the component `role`. `weights` are matrices of the part that
  // have codes, which `coded` reads as f32 values. The last part gives the logits.
  Status advance(const graph::Model& part, std::string_view role,
                 const std::vector<std::string>& weights, const ReadWeight& exact,
                 const ReadWeight& coded, bool last);
  // Returns the divergence of each matrix, in the order in which they were given, after the last
  // part.
  const std::vector<std::pair<std::string, double>>& divergences() const { return divergences_; }

 private:
  using States = std::vector<PassedTensors>;  // for each sequence
  struct Variant {
    std::string weight;
    States states;
  };
  Status run(LoadedPart& part, std::string_view role, States& states) const;
  // Adds the divergence of the logits of `variant` from `exact`, those of each sequence, and
  // forgets them.
  Status compare(const std::vector<std::vector<float>>& exact, Variant& variant);

  Sequences sequences_;
  ThreadPool& pool_;
  const std::string name_;
  States exact_;
  std::vector<Variant> variants_;
  std::vector<std::pair<std::string, double>> divergences_;
};

}  // namespace ferry::proof
