// gguf_model_tensors() gives the tensors of a model that go into a GGUF file, under the keys that
// GGUF writers know.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "dialects/gguf/model/architecture.h"
#include "dialects/gguf/model/written_tensors.h"
#include "plan/mapped_model.h"

namespace ferry::conversion {

struct GgufModelTensors {
  std::vector<converters::GgufWrittenTensor> written;
  // Maps each weight of the model to the tensors of the file that hold it, for the mapping report.
  std::map<std::string, std::vector<std::string>> targets = {};
};

// Returns the tensors of the text model only. Tensors that are packed differently from checkpoints
// of the family, such as fused q, k and v or experts in one tensor, are unpacked first.
Result<GgufModelTensors> gguf_model_tensors(const plan::MappedModel& model,
                                            const converters::GgufArchitecture& architecture);

}  // namespace ferry::conversion
