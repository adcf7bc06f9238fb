// One trial: a checkpoint or a program is made wrong in one manner, converted and verified.
#pragma once

#include <string>
#include <vector>

#include "tests/mutation/kinds.h"

namespace ferry::mutation {

// Which side is wrong in a trial.
enum class Mode {
  kBundle,      // only the bundle; `verify` gets the right checkpoint and the right reference
  kConversion,  // every conversion, so bundle and checkpoint agree; the reference is right
};
const char* mode_name(Mode mode);

// Precisions of bundles: dtypes of matrices, and values of `convert --quantize`.
inline const std::vector<std::string> kDTypes = {"f32", "bf16", "f16", "8da8w", "8da4w"};
inline bool is_quantized(const std::string& dtype) { return dtype.ends_with("w"); }

// The distance of a right conversion from being refused.
struct Margins {
  double db = 999;   // the least SQNR above its floor
  double share = 0;  // the largest difference, as a share of its bound
};
inline constexpr Margins kLeastMargins = {.db = 3, .share = 0.5};

struct Verdict {
  Mode mode;
  std::string dtype;
  bool caught = false;  // `verify` ended with exit code 1
  bool named = false;   // the report names a layer or a tensor that is wrong, and no other
  bool placed = false;  // the report names the first wrong layer, as far as one is known
  // Outputs alone show the error of a quantised bundle, without weights and programs.
  bool seen = false;
  std::string said = {};  // what the report names, or the failure of the trial
  Margins margins = {};   // margins of an unchanged checkpoint
};

struct Model {
  std::string name, directory, reference;
};
// Returns every checkpoint of the test data that has a reference.
std::vector<Model> models();

struct Trial {
  std::string kind = {}, model = {};
  std::string excluded = {};   // why the kind does not apply; then there are no verdicts
  std::string invisible = {};  // why there are no verdicts of Mode::kConversion
  std::vector<Verdict> verdicts = {};
  std::string broken = {};  // why the trial itself failed, so that it proves nothing
};

// Returns why a kind does not apply; empty where it does.
std::string excluded(const Kind& kind, const Model& model);
// It may be called from several threads.
Trial run_trial(const Kind& kind, const Model& model, const std::vector<std::string>& dtypes);
// Verifies the unchanged checkpoint. `caught` means that verify refused it, or that it passed by
// less than kLeastMargins.
Trial run_control(const Model& model, const std::vector<std::string>& dtypes);

}  // namespace ferry::mutation
