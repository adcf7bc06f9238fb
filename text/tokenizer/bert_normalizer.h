// The normalizers of BERT and SentencePiece models: BertNormalizer, StripAccents, Nmt and
// Precompiled; and ByteLevel.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "text/tokenizer/normalizer.h"

namespace ferry::text {

using ReadNormalizer = Result<std::unique_ptr<NormalizerStep>> (*)(StepFields&);

// How the fields of a step of this type are read; nullptr for other types.
ReadNormalizer find_character_normalizer(std::string_view type);

// `text` with every character in lower case.
void lower_case(std::string& text);

}  // namespace ferry::text
