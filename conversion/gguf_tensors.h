// The tensors of a model that go into a GGUF file, under the keys that GGUF writers know.
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
  // Weight of the model -> tensors of the file that hold it, for the account.
  std::map<std::string, std::vector<std::string>> targets = {};
};

// Those of the text model alone. Tensors that are packed otherwise than in checkpoints of the
// family, such as q, k and v in one, and experts in one tensor, become those of the family first.
Result<GgufModelTensors> gguf_model_tensors(const plan::MappedModel& model,
                                            const converters::GgufArchitecture& architecture);

}  // namespace ferry::conversion
