// Plans safetensors files: one file, or several with an index and the other files of a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "conversion/export.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "packer/bundle_plan.h"
#include "packer/weight_files.h"

namespace ferry::conversion {

struct NamedRecipe {
  std::string name;
  graph::Recipe recipe;  // with one output
};

// Tensors with equal recipes are stored once, under the first name. The metadata of the file lists
// the other names, as safetensors.torch.save_model writes them. If `options.out` ends in
// ".safetensors", the output is this file alone. Otherwise the output is a directory with
// model.safetensors and the files in `copied`. With max_file_bytes the directory has
// model-00001-of-00002.safetensors and so on, in the order of `tensors`, and their index. kUsage if
// a tensor does not fit a file.
Result<packer::WeightFilesInput> safetensors_files(std::vector<NamedRecipe> tensors,
                                                   const std::vector<packer::CopiedFile>& copied,
                                                   const ExportOptions& options);

// Whether `options.out` names a file with this ending. kUsage if other options do not fit a single
// file.
Result<bool> is_single_file(const ExportOptions& options, std::string_view ending);

// The files that are copied beside the weights.
std::vector<packer::PlainFileInput> plain_files(const std::vector<packer::CopiedFile>& copied);

}  // namespace ferry::conversion
