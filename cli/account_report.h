// The list of what became of every key of a checkpoint, which `ferry convert` prints for every
// output.
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

// Tensor that is made -> what is done to make it, in words. Empty where the keys did not fit.
using Transforms = std::unordered_map<std::string, std::string>;

// "rows 0..63 of 192, x 0.5, bf16 to f32", "copy".
std::string transform_text(const graph::Recipe& recipe, const TensorSource& source);

// The members from `path` to `non_finite`.
void write_account(JsonWriter& json, const plan::MappedCheckpoint& checkpoint,
                   const Transforms& transforms, const ConversionOutcome& outcome);
void write_files(JsonWriter& json, const std::vector<packer::PlannedFile>& files);

// For people: the model and the numbers of its tensors.
std::string model_lines(const plan::MappedCheckpoint& checkpoint);
// With `table` a line for each key, without it one for those that are dropped.
std::string key_lines(const plan::MappedCheckpoint& checkpoint, const Transforms& transforms,
                      bool table);
std::string file_lines(const std::vector<packer::PlannedFile>& files);

}  // namespace ferry::cli
