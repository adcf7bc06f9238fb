// Verification checks whether a bundle computes what its checkpoint computes.
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

// The bundle is compared with at least one of a reference (given or embedded), a checkpoint and
// another bundle.
struct VerifyOptions {
  std::string reference = {};  // path of a tensor file of expected outputs; empty: the embedded one
  std::string checkpoint = {};  // the checkpoint that the bundle was made from; may be empty
  std::string config = {};  // path of a config.json that replaces the checkpoint's; may be empty
  std::string lora = {};    // directory of the adapter that was merged; may be empty
  std::string mmproj = {};  // projector of a GGUF file that was converted; may be empty
  // The file of ConvertOptions::calibrate_weights; may be empty for "default".
  std::string calibrate_weights = {};
  std::string against = {};  // path of another bundle of the same model; may be empty
  // Image files for the prompts of a vision-language reference: "PROMPT=FILE", or "FILE".
  std::vector<std::string> images = {};
  // Largest absolute error of a logit; default: measured bounds.
  std::optional<double> tolerance = {};
  std::optional<uint64_t> memory = {};  // limit of planned memory in bytes
};

enum class Verdict {
  kProved,     // everything that was compared agrees
  kNotProved,  // nothing disagrees, but the comparison could not tell a wrong bundle
  kNoParity,   // something disagrees
};

// Measures of the distance between computed and expected values.
struct ErrorMetrics {
  double max_abs = 0, mean_abs = 0;
  double relative_rms = 0;
  double cosine = 1;
  double sqnr_db = 0;  // signal-to-noise ratio; 999 for equal values
};

struct TensorComparison {
  std::string name;  // such as "hidden_states.3"
  ErrorMetrics errors;
  bool within_bounds = true;
};

struct PromptComparison {
  std::string prompt;
  int64_t tokens = 0;
  std::string skipped;                         // reason why the prompt was not run; otherwise empty
  int64_t greedy_match = 0, greedy_total = 0;  // equal tokens of the continuation, of all
  bool parity = true;
};

// The weights and programs of a bundle, compared with those derived again from the checkpoint.
struct CheckpointComparison {
  uint64_t tensors = 0, bytes = 0;             // amounts that were compared bit for bit
  std::vector<std::string> different_weights;  // one line per weight
  bool programs_equal = true;
};

struct Verification {
  Verdict verdict = Verdict::kNoParity;
  bool proved() const { return verdict == Verdict::kProved; }

  // The outputs of the bundle compared with the expected outputs. For a bundle with reduced
  // precision this is only a measurement, and other comparisons decide the verdict.
  std::string output;  // "logits", or the last output of an encoder; may be empty
  ErrorMetrics errors;
  double kl_mean = 0, kl_max = 0;  // divergence of the distributions over the vocabulary, in nats
  double top1_agreement = 1;       // share of rows whose likeliest token is equal
  int64_t greedy_match = 0, greedy_total = 0;
  std::string first_divergence;  // first tensor beyond its bounds; empty if there is none
  std::vector<TensorComparison> tensors;
  std::vector<PromptComparison> prompts;
  std::optional<CheckpointComparison> checkpoint;
};

// A difference is not an error; the verdict reports it. kUsage if there is nothing to compare with.
Result<Verification> verify(const Bundle& bundle, const VerifyOptions& options,
                            const Engine& engine, const OnProgress& progress = {});

// Returns one JSON object with the members of Verification.
std::string to_json(const Verification& verification);

}  // namespace v0
}  // namespace ferry
