// Verification: whether a bundle computes what its checkpoint computes.
#pragma once

#include <ferry/bundle.h>
#include <ferry/engine.h>
#include <ferry/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ferry {
inline namespace v0 {

// At least one of a reference (given or embedded), a checkpoint and another bundle is compared
// with.
struct VerifyOptions {
  std::string reference = {};   // a tensor file of expected outputs; empty: the embedded one
  std::string checkpoint = {};  // the checkpoint that the bundle was made of; may be empty
  std::string config = {};      // a config.json instead of the checkpoint's; may be empty
  std::string lora = {};        // the directory of the adapter that was merged; may be empty
  std::string against = {};     // another bundle of the same model; may be empty
  // Images of the prompts of a vision-language reference: "PROMPT=FILE", or "FILE".
  std::vector<std::string> images = {};
  std::optional<double> tolerance = {};  // largest absolute error of a logit; default: measured
  std::optional<uint64_t> memory = {};   // bytes that planned memory may have
};

enum class Verdict {
  kProved,     // everything that was compared agrees
  kNotProved,  // nothing disagrees, but the comparison could not tell a wrong bundle
  kNoParity,   // something disagrees
};

// How far computed values are from the expected ones.
struct ErrorMetrics {
  double max_abs = 0, mean_abs = 0;
  double relative_rms = 0;
  double cosine = 1;
  double sqnr_db = 0;  // signal-to-noise ratio; 999 for equal values
};

struct TensorComparison {
  std::string name;  // "hidden_states.3"
  ErrorMetrics errors;
  bool within_bounds = true;
};

struct PromptComparison {
  std::string prompt;
  int64_t tokens = 0;
  std::string skipped;                         // why it was not run; otherwise empty
  int64_t greedy_match = 0, greedy_total = 0;  // tokens of the continuation that are equal
  bool parity = true;
};

// The weights and programs of a bundle, derived again from the checkpoint.
struct CheckpointComparison {
  uint64_t tensors = 0, bytes = 0;             // compared bit for bit
  std::vector<std::string> different_weights;  // a line each
  bool programs_equal = true;
};

struct Verification {
  Verdict verdict = Verdict::kNoParity;
  bool proved() const { return verdict == Verdict::kProved; }

  // The outputs of the bundle, beside what they were compared with. With a bundle of reduced
  // precision this is a measurement, and other comparisons decide.
  std::string output;  // "logits", or the last output of an encoder; empty if none was compared
  ErrorMetrics errors;
  double kl_mean = 0, kl_max = 0;  // divergence of distributions over the vocabulary, in nats
  double top1_agreement = 1;       // rows whose likeliest token is equal
  int64_t greedy_match = 0, greedy_total = 0;
  std::string first_divergence;  // the first tensor beyond its bounds; empty if there is none
  std::vector<TensorComparison> tensors;
  std::vector<PromptComparison> prompts;
  std::optional<CheckpointComparison> checkpoint;
};

// A bundle that differs is not an error: the verdict says so. kUsage if there is nothing to compare
// with.
Result<Verification> verify(const Bundle& bundle, const VerifyOptions& options,
                            const Engine& engine, const OnProgress& progress = {});

// One JSON object with the members of Verification.
std::string to_json(const Verification& verification);

}  // namespace v0
}  // namespace ferry
