// One trial: a checkpoint or a program is made wrong in one manner, converted and verified.
#pragma once

#include <string>
#include <vector>

#include "tests/mutation/kinds.h"

namespace ferry::mutation {

// Who is wrong.
enum class Mode {
  kBundle,      // the bundle; the checkpoint and the reference that verify gets are right
  kConversion,  // the conversion, everywhere: bundle and checkpoint agree, the reference is right
};
const char* mode_name(Mode mode);

// Precisions of bundles: dtypes of matrices, and what `convert --quantize` takes.
inline const std::vector<std::string> kDTypes = {"f32", "bf16", "f16", "8da8w", "8da4w"};
inline bool is_quantized(const std::string& dtype) { return dtype.ends_with("w"); }

// How far a right conversion is from being refused.
struct Margins {
  double db = 999;   // least SQNR above its floor
  double share = 0;  // largest difference as a share of its bound
};
inline constexpr Margins kLeastMargins = {.db = 3, .share = 0.5};

struct Verdict {
  Mode mode;
  std::string dtype;
  bool caught = false;  // exit code 1
  bool named = false;   // the report names a layer or a tensor, and not a wrong one
  bool placed = false;  // what it names is at the first layer that is wrong, as far as one is known
  // Of a quantised bundle: outputs alone show it, beside weights and programs.
  bool seen = false;
  std::string said = {};  // what it names, or what went wrong
  Margins margins = {};   // of a control
};

struct Model {
  std::string name, directory, reference;
};
// Every checkpoint with a reference in the test data.
std::vector<Model> models();

struct Trial {
  std::string kind = {}, model = {};
  std::string excluded = {};   // why it does not apply: no verdicts then
  std::string invisible = {};  // why there are no verdicts of Mode::kConversion
  std::vector<Verdict> verdicts = {};
  std::string broken = {};  // the trial itself failed: it proves nothing
};

// Why a kind does not apply; empty where it does.
std::string excluded(const Kind& kind, const Model& model);
// Safe to call from several threads.
Trial run_trial(const Kind& kind, const Model& model, const std::vector<std::string>& dtypes);
// The unchanged checkpoint: `caught` means that verify refused it, or that it passed by less than
// kLeastMargins.
Trial run_control(const Model& model, const std::vector<std::string>& dtypes);

}  // namespace ferry::mutation
