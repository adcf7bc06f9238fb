// Writes the result of `ferry convert`: what became of every key, the files, and the planned
// memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "conversion/export.h"
#include "core/json_writer.h"
#include "core/tensor_source.h"
#include "graph/recipe.h"
#include "packer/weight_files.h"
#include "plan/conversion.h"
#include "signing/sign_model.h"

namespace ferry::cli {

// The outcome of a planned conversion.
struct ConversionOutcome {
  std::string source = {};              // path of the checkpoint as given
  std::string path = {};                // path of the output; empty for a dry run
  std::string dtype = {};               // value of --dtype
  std::vector<std::string> notes = {};  // notes for people, in the order of printing
  double seconds = 0;
  bool up_to_date = false;  // the output existed already, so nothing was written
  // The signature of a bundle, if one was made.
  std::optional<signing::SignedModel> signature = std::nullopt;
  // What was chosen for the weights on a text; null if nothing was.
  std::shared_ptr<const graph::CalibratedWeights> calibrated = nullptr;
  // Weights with infinite values or NaN; nullopt if no weight was read, as in a dry run.
  std::optional<std::vector<packer::NonFiniteWeight>> non_finite = std::nullopt;
};

// The outcome of a planned conversion to files of another format.
struct ExportOutcome : ConversionOutcome {
  std::string format = {};                      // value of --to
  std::vector<packer::WrittenFile> files = {};  // empty if nothing was written
};

// Returns the result of `convert --json`, also for a dry run and for keys that do not fit.
std::string conversion_json(const plan::Conversion& conversion, const ConversionOutcome& outcome);

// Returns a line for each of the first few weights with infinite values or NaN.
std::vector<std::string> non_finite_notes(const std::vector<packer::NonFiniteWeight>& weights,
                                          const std::string& source);

// Returns one line about the keys of the config that nothing has used. Requires at least one key.
std::string unused_keys_note(const std::vector<std::string>& keys);

// Returns the text for people. If `table`, every source key has a line with rule, targets and
// transform, else only dropped keys have lines.
std::string conversion_text(const plan::Conversion& conversion, bool table);

// Return the JSON result and the text of a conversion to files of another format.
std::string export_json(const conversion::Export& exported, const ExportOutcome& outcome);
std::string export_text(const conversion::Export& exported, bool table);

// -- what became of every key of a checkpoint, for every output format (account_report.cc)

// Maps the name of each written tensor to transform_text() of its recipe. Empty if the keys of the
// checkpoint did not fit.
using Transforms = std::unordered_map<std::string, std::string>;

// Describes a recipe, such as "rows 0..63 of 192, x 0.5, bf16 to f32" or "copy".
std::string transform_text(const graph::Recipe& recipe, const TensorSource& source);

// Writes the members from `path` to `non_finite` (docs/schemas/convert.json).
void write_account(JsonWriter& json, const plan::MappedCheckpoint& checkpoint,
                   const Transforms& transforms, const ConversionOutcome& outcome);
void write_files(JsonWriter& json, const std::vector<packer::PlannedFile>& files);

// Returns lines about the model and its numbers of tensors.
std::string model_lines(const plan::MappedCheckpoint& checkpoint);
// Returns a line for each key if `table`, else only lines for dropped keys.
std::string key_lines(const plan::MappedCheckpoint& checkpoint, const Transforms& transforms,
                      bool table);
std::string file_lines(const std::vector<packer::PlannedFile>& files);

}  // namespace ferry::cli
