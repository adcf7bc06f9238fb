// Plans GGUF files of given tensors, and copies of GGUF files.
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
  Shape shape = {};   // shape of the values
  uint32_t type = 0;  // id of the ggml type
  graph::Recipe recipe = {};
  std::vector<std::byte> bytes = {};  // used instead of a recipe if the bytes are known
};

// Plans one file, or several if `options` has limits. kUsage if several files are needed and
// `options.out` names a file.
Result<packer::WeightFilesInput> gguf_files(const std::vector<GgufKeyValue>& keys,
                                            std::vector<GgufTensor> tensors,
                                            const ExportOptions& options);

// Plans the files of a model whose source is a GGUF file. Keys are those of the source, and so are
// blocks unless the options ask for another type.
Result<PlannedFiles> plan_gguf_copy(plan::MappedModel& model, const ExportOptions& options);

// Sorts what llama.cpp's converter writes into the order that llama-quantize writes: tensors by
// layer and name, and last the two keys whose values llama-quantize sets.
void sort_as_quantized(std::vector<GgufKeyValue>& keys, std::vector<GgufTensor>& tensors);

}  // namespace ferry::conversion
