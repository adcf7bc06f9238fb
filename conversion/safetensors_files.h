// Tensors as safetensors files: one, or several with an index, beside the files of a checkpoint.
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

// Tensors of equal recipes are stored once, under the first name; the metadata of the file has the
// others, as safetensors.torch.save_model leaves them. `options.out` that ends in ".safetensors" is
// one file without anything beside it. Otherwise a directory: model.safetensors, or with
// max_file_bytes model-00001-of-00002.safetensors and so on, in the order of `tensors`, and the
// index; then `copied`. kUsage where a tensor does not fit a file.
Result<packer::WeightFilesInput> safetensors_files(std::vector<NamedRecipe> tensors,
                                                   const std::vector<packer::CopiedFile>& copied,
                                                   const ExportOptions& options);

// Whether `options.out` names a file with this ending. kUsage where options do not fit that.
Result<bool> is_single_file(const ExportOptions& options, std::string_view ending);

// Files beside the weights.
std::vector<packer::PlainFileInput> plain_files(const std::vector<packer::CopiedFile>& copied);

}  // namespace ferry::conversion
