// GGUF files of planned tensors, and those of another GGUF file.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "conversion/export.h"
#include "core/gguf_key_value.h"
#include "core/result.h"
#include "core/shape.h"
#include "packer/weight_files.h"

namespace ferry::conversion {

struct GgufTensor {
  std::string name;
  Shape shape = {};   // of the values
  uint32_t type = 0;  // id
  graph::Recipe recipe = {};
  std::vector<std::byte> bytes = {};  // where known: instead of a recipe
};

// One file, or with limits of `options` several. kUsage where several are wanted and `options.out`
// names a file.
Result<packer::WeightFilesInput> gguf_files(const std::vector<GgufKeyValue>& keys,
                                            std::vector<GgufTensor> tensors,
                                            const ExportOptions& options);

// The files of a model that is a GGUF file already. Keys and, unless another type is asked for,
// blocks are those of the file.
Result<PlannedFiles> plan_gguf_copy(plan::MappedModel& model, const ExportOptions& options);

// Makes llama-quantize's order of what the converter writes: tensors by layer and name, and two
// keys, whose values it sets, last.
void sort_as_quantized(std::vector<GgufKeyValue>& keys, std::vector<GgufTensor>& tensors);

}  // namespace ferry::conversion
