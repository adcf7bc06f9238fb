// Writes what became of every key of a checkpoint, which `ferry convert` prints for every output
// format.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "cli/convert_report.h"
#include "core/json_writer.h"
#include "core/tensor_source.h"
#include "graph/recipe.h"
#include "plan/conversion.h"

namespace ferry::cli {

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
