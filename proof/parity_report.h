// ParityReport: what a verification compared, the bounds, and the results.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proof/bounds.h"
#include "proof/error_details.h"
#include "proof/parity.h"
#include "proof/reference.h"
#include "runner/decoder.h"

namespace ferry::proof {

// The comparison of one tensor with its reference: a hidden state, a cache, or router logits. If it
// was compared several times, the worst result.
struct LayerResult {
  ReferenceTensor tensor;
  ValueMetrics metrics;
  bool within = true;                   // its bounds
  std::optional<double> floor_db = {};  // of its signal-to-noise ratio, where it has one
  std::optional<double> margin_db() const {
    return floor_db ? std::optional(metrics.sqnr_db - *floor_db) : std::nullopt;
  }
};

// Where noise was measured: the rms of a difference that is within the bounds, and how many times
// its ratio to the noise fits into kNoiseMultiple. A margin of 1 and more is parity.
std::optional<double> noise_bound(const ValueMetrics& metrics);
std::optional<double> noise_margin(const ValueMetrics& metrics);

// Largest distances from logits computed in f64.
struct F64Distance {
  double ours = 0, reference = 0;
};

// Tokens that routers sent to other experts than the reference did. They are compared along the
// experts of the reference.
struct RoutingReport {
  int64_t choices = 0;    // of all routers and positions
  int64_t different = 0;  // choices of another set of experts
};

struct CaseReport {
  std::string prompt;
  int64_t tokens = 0;
  std::string skipped;   // why nothing was run; otherwise empty
  LogitMetrics prefill;  // the whole prompt in one forward
  LogitMetrics steps;    // the prompt token by token
  LogitMetrics greedy;   // the continuation, up to the first token that is not explained
  int64_t greedy_match = 0, greedy_total = 0;
  bool greedy_tie = false;  // errors within the bounds explain the tokens that differ
  RoutingReport routing;
  std::optional<runner::LookaheadCounts> lookahead;  // of the continuation, in that mode
  std::vector<LayerResult> layers;                   // in model order
  std::optional<F64Distance> f64;
  std::vector<std::string> not_compared;  // reference tensors without a counterpart
  bool parity = true;
  std::shared_ptr<const CaseDetails> details = {};  // where they were asked for

  // The worst of the three. The agreement is the rate over the rows of all three, because a prefill
  // may have a single row. Without logits: that of the last tensor, the output of an encoder.
  LogitMetrics worst() const;
  // Sets `parity` from the other members.
  void judge(const ParityBounds& bounds);
};

struct Divergence {
  int64_t layer = 0;
  std::string tensor;
};

struct ParityReport {
  bool parity = true;
  ParityBounds bounds;
  LogitMetrics metrics;  // of the output: the worst over prompts and comparisons
  int64_t greedy_match = 0, greedy_total = 0;
  RoutingReport routing;
  std::vector<LayerResult> layers;             // the worst over prompts
  std::optional<Divergence> first_divergence;  // in model order; "logits" if only they differ
  std::optional<double> logits_floor_db;
  bool measured_floors = false;  // the floors are those of measured noise (measured_floors.h)
  std::vector<CaseReport> cases;

  bool has_logits() const { return metrics.rows > 0; }
  // What `metrics` is about: "logits", or the last output of an encoder.
  std::string output() const;
  // Sets the counts of continuations to 0.
  void forget_greedy();
  // The largest difference of it that is parity; none where noise or a floor decides, or nothing.
  std::optional<double> output_limit() const;
};

// The first tensor beyond its bounds, in model order; "logits" if only they are, or the tokens
// chosen from them; none at parity.
std::optional<Divergence> first_divergence(const ParityReport& report);

// kUnsupported if every case was skipped; `reference` begins the message.
Result<ParityReport> summarize(std::vector<CaseReport> cases, const ParityBounds& bounds,
                               const std::string& reference);

// Signal-to-noise floors of the tensors of one model, from noise that was measured in the same
// tensors.
struct MeasuredFloors {
  double logits = 0;                      // dB; of an encoder: of its last output
  std::map<std::string, double> tensors;  // by name; others have that of the logits

  // Judges all cases of `report` by these floors instead of its bounds; what is within its noise is
  // right too. Tokens are not judged: they follow from the logits.
  void judge(ParityReport& report) const;
};

// Floors for the same comparison in which `noise` was measured. A single row may have kOneRowDb
// more than all rows.
MeasuredFloors floors_of_noise(const ParityReport& noise);

}  // namespace ferry::proof
