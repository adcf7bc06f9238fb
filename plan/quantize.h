// Quantizer turns the weights of a conversion's components into codes and scales.
#pragma once

#include <set>
#include <string>

#include "converters/keys/key_rule.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "graph/passes/quantize_weights.h"

namespace ferry::plan {

// Lets the head of a tied model share the 8-bit table of the embedding instead of storing the same
// matrix again: adds the rule "output=8da8w". Nothing is added unless the embedding has 8 bits and
// the linear weights have 4 or keep their codes, or if a rule of `options` matches the head. On
// SmolLM2-135M that saves 16 MB of 109 and lowers the mean KL divergence from 0.46 to 0.32
// (docs/quantisation.md). Returns whether the rule was added.
bool share_tied_table(graph::QuantizeOptions& options, const converters::MappingReport& mapping);

// `options`, `source` and `pool` must outlive the Quantizer.
class Quantizer {
 public:
  Quantizer(const graph::QuantizeOptions& options, const TensorSource& source, ThreadPool& pool)
      : options_(options), source_(source), pool_(pool) {}

  // Quantises one component. Call it before cast_weights(). With ScaleMethod::kHqq it reads the
  // weights, because the number of rounds depends on all values of a tensor.
  Result<graph::QuantizedModel> apply(graph::Model model);
  // Call this after the last component. kUsage for a rule that matched no weight of any component,
  // and if codes were to be kept and the checkpoint has none.
  Status check_rules() const;
  // Call this after the last component. Returns a line that says which matrices have another scheme
  // than the one requested, or an empty text.
  std::string replaced_note() const;
  // Call this after the last component. Says what became of the codes of the checkpoint; empty if
  // none were to be kept.
  std::string kept_note() const;

 private:
  Status settle_rounds(graph::StateDict& weights);
  // Gives weights that are calibrated their factors and codes.
  void take_calibrated(graph::StateDict& weights) const;

  const graph::QuantizeOptions& options_;
  const TensorSource& source_;
  ThreadPool& pool_;
  std::set<size_t> used_rules_;
  graph::ReplacedSchemes replaced_;
  graph::KeptCodes kept_;
};

}  // namespace ferry::plan
