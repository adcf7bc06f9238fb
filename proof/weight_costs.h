// Costs of codes of weights, as the divergence of the predictions of the model: MatrixCost for a
// matrix alone, CodeComparison for all codes of a calibration.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "graph/passes/quantize_weights.h"
#include "proof/checkpoint_execution.h"
#include "proof/linear_inputs.h"
#include "proof/prompts.h"
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

// CodeComparison measures what the codes of a calibration cost the model, beside the nearest codes.
// The model is executed layer by layer in three ways: with the weights in f32, with the nearest
// codes, and with the chosen codes. The last two round activations as the bundle's program does.
// One part with one kind of weights is in memory at a time.
class CodeComparison {
 public:
  // Messages begin with `name`. A few tokens of some of `sequences` are taken.
  CodeComparison(const Sequences& sequences, ThreadPool& pool, std::string name);

  struct Weights {
    ReadWeight exact, nearest, chosen;
  };
  // Executes the next part, one of the component `role`, whose probes belong to `inputs`. The last
  // part gives the logits.
  Status advance(const graph::Model& part, std::string_view role,
                 const std::vector<LinearInput>& inputs, const Weights& weights, bool last);

  // The mean KL divergences from the predictions in f32, in nats per token, after the last part.
  double nearest() const { return nearest_.divergence; }
  double chosen() const { return chosen_.divergence; }
  size_t tokens() const { return sequences_.token_count(); }

 private:
  struct Execution {
    std::vector<PassedTensors> states;  // for each sequence
    double divergence = 0;
  };
  Status run(const graph::Model& part, std::string_view role,
             const std::vector<LinearInput>& inputs, const ReadWeight& weights,
             Execution& execution) const;

  const Sequences sequences_;
  ThreadPool& pool_;
  const std::string name_;
  Execution exact_, nearest_, chosen_;
};

}  // namespace ferry::proof
