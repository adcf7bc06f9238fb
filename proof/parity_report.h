// ParityReport states what a verification compared, the bounds, and the results.
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

// The comparison of one tensor with its reference: a hidden state, a cache, or router logits. If
// the tensor was compared several times, this is the worst result.
struct LayerResult {
  ReferenceTensor tensor;
  ValueMetrics metrics;
  bool within = true;                   // within its bounds
  std::optional<double> floor_db = {};  // floor of the signal-to-noise ratio, if the tensor has one
  std::optional<double> margin_db() const {
    return floor_db ? std::optional(metrics.sqnr_db - *floor_db) : std::nullopt;
  }
};

// The rms of a difference that is within the measured noise, and kNoiseMultiple divided by the
// ratio of the difference to the noise. A margin of at least 1 is parity. nullopt if no noise was
// measured.
std::optional<double> noise_bound(const ValueMetrics& metrics);
std::optional<double> noise_margin(const ValueMetrics& metrics);

// Largest distances from logits computed in f64.
struct F64Distance {
  double ours = 0, reference = 0;
};

// Counts tokens that routers sent to other experts than the reference did. The outputs are compared
// along the experts of the reference.
struct RoutingReport {
  int64_t choices = 0;    // choices of all routers and positions
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
  // Counts of the continuation, in lookahead mode.
  std::optional<runner::LookaheadCounts> lookahead;
  std::vector<LayerResult> layers;  // in model order
  std::optional<F64Distance> f64;
  std::vector<std::string> not_compared;  // reference tensors that the bundle has no counterpart of
  bool parity = true;
  std::shared_ptr<const CaseDetails> details = {};  // only if requested

  // Returns the worst of the three. The agreement is the rate over the rows of all three, because a
  // prefill may have a single row. Without logits, returns the metrics of the last tensor, the
  // output of an encoder.
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
  LogitMetrics metrics;  // metrics of the output: the worst over prompts and comparisons
  int64_t greedy_match = 0, greedy_total = 0;
  RoutingReport routing;
  std::vector<LayerResult> layers;             // the worst over prompts
  std::optional<Divergence> first_divergence;  // in model order; "logits" if only they differ
  std::optional<double> logits_floor_db;
  bool measured_floors = false;  // the floors come from measured noise (MeasuredFloors)
  std::vector<CaseReport> cases;

  bool has_logits() const { return metrics.rows > 0; }
  // Returns the name of the output that `metrics` describes: "logits", or the last output of an
  // encoder.
  std::string output() const;
  // Sets the counts of continuations to 0.
  void forget_greedy();
  // Returns the largest difference of the output that is parity; nullopt if noise or a floor
  // decides, or if nothing does.
  std::optional<double> output_limit() const;
};

// Returns the first tensor beyond its bounds, in model order; "logits" if only the logits, or the
// tokens chosen from them, are beyond; nullopt at parity.
std::optional<Divergence> first_divergence(const ParityReport& report);

// kUnsupported if every case was skipped. `reference` begins the message.
Result<ParityReport> summarize(std::vector<CaseReport> cases, const ParityBounds& bounds,
                               const std::string& reference);

// Signal-to-noise floors of the tensors of one model, from noise that was measured in these
// tensors.
struct MeasuredFloors {
  double logits = 0;                      // dB; for an encoder, of its last output
  std::map<std::string, double> tensors;  // by name; other tensors have the floor of the logits

  // Judges all cases of `report` by these floors instead of its bounds. Tensors within their noise
  // pass too. Tokens are not judged, because they follow from the logits.
  void judge(ParityReport& report) const;
};

// Returns floors for a comparison in which the noise of `noise` is expected. A single row may have
// kOneRowDb more noise than all rows.
MeasuredFloors floors_of_noise(const ParityReport& noise);

}  // namespace ferry::proof
