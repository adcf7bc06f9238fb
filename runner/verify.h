// Verify: runs a bundle on the prompts of a reference and says how far it is from what the original
// model computed, tensor by tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "runner/decoder.h"
#include "runner/parity.h"
#include "runner/reference.h"

namespace ferry {

// One tensor of the model beside its reference: a hidden state or a cache, the worse of both ways.
struct LayerResult {
  std::string name;   // "hidden_states.3", "cache.0.key"
  int64_t layer = 0;  // that computes it: -1 the embedding, num_layers what follows the last layer
  ValueMetrics metrics;
  bool within = true;  // the bound for its size
};

// Whose logits are nearer to those computed in f64.
struct TruthReport {
  double ours = 0, reference = 0;  // largest distance from the f64 logits
};

struct CaseReport {
  std::string prompt;
  int64_t tokens = 0;
  std::string skipped;   // why nothing was run; otherwise empty
  LogitMetrics prefill;  // the whole prompt in one forward
  LogitMetrics steps;    // the prompt token by token
  LogitMetrics greedy;   // the continuation, up to the first token that differs
  int64_t greedy_match = 0, greedy_total = 0;
  bool greedy_tie = false;          // the first differing token was a near tie in the reference
  std::vector<LayerResult> layers;  // in model order
  std::optional<TruthReport> truth;
  std::vector<std::string> not_compared;  // reference tensors that the bundle has nothing for
  bool parity = true;

  // The worst of the three; but agreement is the rate over all their rows, because a prefill may
  // give a single one.
  LogitMetrics worst() const;
};

struct Divergence {
  int64_t layer = 0;
  std::string tensor;
};

struct ParityReport {
  bool parity = true;
  double tolerance = 0;
  LogitMetrics metrics;  // the worst over prompts and ways
  int64_t greedy_match = 0, greedy_total = 0;
  std::vector<LayerResult> layers;             // the worst over prompts
  std::optional<Divergence> first_divergence;  // in model order; "logits" if only they differ
  std::vector<CaseReport> cases;
};

// Every prompt twice: token by token from position 0, and in one forward that the greedy
// continuation follows. kUnsupported if no prompt can be run; kBadInput for a reference that does
// not belong to the model.
Result<ParityReport> verify(Decoder& decoder, const Manifest& manifest, const Reference& reference,
                            double tolerance);

}  // namespace ferry
