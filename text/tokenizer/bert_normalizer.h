// The normalizers BertNormalizer, StripAccents, Nmt, Precompiled and ByteLevel.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "text/tokenizer/normalizer.h"

namespace ferry::text {

using ReadNormalizer = Result<std::unique_ptr<NormalizerStep>> (*)(StepFields&);

// Returns the function that reads the fields of a step of this type, or nullptr for other types.
ReadNormalizer find_character_normalizer(std::string_view type);

// Converts every character of `text` to lower case.
void lower_case(std::string& text);

}  // namespace ferry::text
