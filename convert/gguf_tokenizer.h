// The tokenizer keys of a GGUF file, from the files of its checkpoint.
#pragma once

#include <string>
#include <vector>

#include "core/gguf_key_value.h"
#include "core/result.h"
#include "dialects/gguf/model/architecture.h"
#include "plan/mapped_model.h"

namespace ferry::convert {

// Appends them to `keys`; a key that is there takes its value in its place. `pre` is the name of
// the pre-tokenizer, or empty: dialects/gguf/tokenizer/tokenizer_keys.h. `notes` gets a line for
// what a reader of the file will do otherwise than the checkpoint says.
Status add_gguf_tokenizer(const plan::MappedModel& model,
                          const converters::GgufArchitecture& architecture, const std::string& pre,
                          std::vector<GgufKeyValue>& keys, std::vector<std::string>& notes);

}  // namespace ferry::convert
