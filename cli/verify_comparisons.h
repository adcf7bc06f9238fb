// Lists the comparisons of a verification, and states the meaning of its verdict in words.
#pragma once

#include <string>
#include <vector>

#include "proof/bundle_proof.h"

namespace ferry::cli {

struct NamedComparison {
  std::string id;  // such as "outputs" or "mode.lookahead" (docs/verifying.md)
  std::string ours, expected;
  const proof::ParityReport* report = nullptr;  // null: not made, and `absent` is the reason
  std::string absent = {};
  std::string title() const { return ours + ", against " + expected; }
};

// Returns the comparisons in the order in which people should read them. The results point into
// `verification`.
std::vector<NamedComparison> comparisons_of(const proof::Verification& verification);

// The bounds of a comparison. Measured floors replace the bounds of the report.
struct StatedBounds {
  std::string precision;           // such as "f32", "bf16" or "8da4w-g32"
  std::string_view source;         // result of bound_source()
  std::optional<double> max_abs;   // limit of the logits or of an encoder's output
  std::optional<double> floor_db;  // least SQNR of the logits or of an encoder's output
};
StatedBounds bounds_of(const NamedComparison& comparison);
// Returns the source of a report's bounds: "noise" that was measured in f64, "measured" floors,
// "argument" for --tolerance, "verifier" for constants, or "none" if nothing is limited.
std::string_view bound_source(const proof::ParityReport& report);
// Returns "parity", "no parity" or "not proved".
std::string_view verdict_name(proof::Verdict verdict);
// Returns a text such as "noise 1.2e-05, bound 9.6e-05", "floor 21.0 dB", "measured" or "bound
// 0.0001".
std::string bound_text(const proof::ParityReport& report);
// Returns a text such as ", greedy 8/8"; empty if no continuation was compared.
std::string greedy_text(const proof::ParityReport& report);

// Returns a text such as "layer 1 (cache.1.key)" or "the embedding (hidden_states.0)". Requires a
// divergence.
std::string place_of(const proof::ParityReport& report);

// Returns the verdict in one line, without parity with the first reason.
std::string verdict_line(const proof::Verification& verification);

// The statements that a verdict of parity proves, and the statements that it leaves open.
struct Meaning {
  std::vector<std::string> proves, leaves_open;
};
Meaning meaning_of(const proof::Verification& verification);

// Returns the precision for which the bounds are, such as "f32" or "bf16".
std::string rounding_name(const proof::ParityBounds& bounds);

}  // namespace ferry::cli
