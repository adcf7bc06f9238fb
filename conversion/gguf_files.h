// Plans GGUF files of given tensors, copies of GGUF files, and the tensors of a model that go into
// a GGUF file.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "conversion/export.h"
#include "core/dtype.h"
#include "core/gguf_key_value.h"
#include "core/result.h"
#include "dialects/gguf/model/architecture.h"
#include "dialects/gguf/model/written_tensors.h"
#include "packer/weight_files.h"
#include "plan/mapped_model.h"

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

// Whether the source of the model is a GGUF file.
bool is_gguf_source(const plan::MappedModel& model);

// Sorts what llama.cpp's converter writes into the order that llama-quantize writes: tensors by
// layer and name, and last the two keys whose values llama-quantize sets.
void sort_as_quantized(std::vector<GgufKeyValue>& keys, std::vector<GgufTensor>& tensors);

// Returns the config of the model, with the head that the model has: a checkpoint may hold a head
// of its own where the config ties it by default.
converters::ModelConfig gguf_config(const plan::MappedModel& model);

struct GgufModelTensors {
  std::vector<converters::GgufWrittenTensor> written;
  // Maps each weight of the model to the tensors of the file that hold it, for the mapping report.
  std::map<std::string, std::vector<std::string>> targets = {};
  std::vector<GgufKeyValue> layer_numbers = {};  // numbers of layers that are keys of the file
};

// Returns the tensors of the text model only. Tensors that are packed differently from checkpoints
// of the family, such as fused q, k and v or experts in one tensor, are unpacked first.
Result<GgufModelTensors> gguf_model_tensors(const plan::MappedModel& model,
                                            const converters::GgufArchitecture& architecture);

}  // namespace ferry::conversion
