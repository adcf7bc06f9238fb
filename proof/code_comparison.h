// CodeComparison measures what the codes of a calibration cost the model, beside the nearest codes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "proof/linear_inputs.h"
#include "proof/predictions.h"

namespace ferry::proof {

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
