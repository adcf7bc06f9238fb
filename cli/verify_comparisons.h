// The comparisons that a verification consists of, in the order in which they are to be read, and
// the meaning of its verdict in words.
#pragma once

#include <string>
#include <vector>

#include "proof/bundle_proof.h"

namespace ferry::cli {

struct NamedComparison {
  std::string id;  // "outputs", "mode.lookahead"; docs/verifying.md lists them
  std::string ours, expected;
  const proof::ParityReport* report = nullptr;  // null where `absent` says why
  std::string absent = {};
  std::string title() const { return ours + ", against " + expected; }
};

// They point into `verification`.
std::vector<NamedComparison> comparisons_of(const proof::Verification& verification);

// The bounds of a report: where floors were measured they hold in place of its bounds.
struct StatedBounds {
  std::string precision;           // "f32", "bf16", "8da4w-g32"
  std::string_view source;         // see bound_source()
  std::optional<double> max_abs;   // of logits, or the output of an encoder
  std::optional<double> floor_db;  // likewise
};
StatedBounds bounds_of(const NamedComparison& comparison);
// Where the bounds of a report come from: "noise", measured in f64; "measured" floors; "argument",
// --tolerance; "verifier", constants; "none" for a measurement that is no gate.
std::string_view bound_source(const proof::ParityReport& report);
// "parity", "no parity", "not proved"
std::string_view verdict_name(proof::Verdict verdict);
// "noise 1.2e-05, bound 9.6e-05", "floor 21.0 dB", "measured", "bound 0.0001"
std::string bound_text(const proof::ParityReport& report);
// ", greedy 8/8"; empty where no continuation was compared.
std::string greedy_text(const proof::ParityReport& report);

// "layer 1 (cache.1.key)", "the embedding (hidden_states.0)"; there is a divergence.
std::string place_of(const proof::ParityReport& report);

// The verdict in one line: without parity the first reason.
std::string verdict_line(const proof::Verification& verification);

// The statements that a verdict of parity proves, and those that it leaves open.
struct Meaning {
  std::vector<std::string> proves, leaves_open;
};
Meaning meaning_of(const proof::Verification& verification);

// The precision that bounds belong to: "f32", "bf16".
std::string rounding_name(const proof::ParityBounds& bounds);

}  // namespace ferry::cli
