// adopt_projector() puts a projector and the text decoder that it belongs to together: they become
// a Hugging Face checkpoint of a vision-language model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "converters/keys/keyed_tensors.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/adopt.h"

namespace ferry::converters {

struct ProjectorInput {
  const TensorSource* source = nullptr;      // the projector's tensors, as they are in the file
  const nlohmann::json* metadata = nullptr;  // one member for each of its keys
  const nlohmann::json* text_metadata = nullptr;  // likewise of the text decoder
  std::string user_config = {};                   // as in GgufConfigInput: of the whole model
  std::string user_name = {};
  bool has_processor = false;  // the user states how pictures become pixel values
};

struct AdoptedProjector {
  KeyedTensors tensors;   // of the projector
  std::string processor;  // text of processor_config.json
  std::vector<std::string> notes = {};
};

// Whether the metadata are those of a projector.
bool is_projector(const nlohmann::json& metadata);

// Adopts the projector. `text` is the text decoder: its config and the keys of its tensors become
// those of the text part of the whole, and its tokenizer_config.json names the tokens of images.
// Takes what the keys of the file do not say as llama.cpp has it; `user_config` may say
// otherwise, and its sizes must agree with the file. kUnsupported for kinds that are not known, for
// keys that the kind is not known to have, and for a text decoder of another model; kBadInput for
// keys that are missing or have wrong values, and where the two files do not belong together.
Result<AdoptedProjector> adopt_projector(const ProjectorInput& input, AdoptedGguf& text);

}  // namespace ferry::converters
