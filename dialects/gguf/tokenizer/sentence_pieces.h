// The pieces of a SentencePiece model (tokenizer.model): as much of its protobuf as the vocabulary
// of a GGUF file needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::text {

struct SentencePiece {
  enum Type : uint32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  std::string text;
  float score = 0;
  uint32_t type = kNormal;
};

// Returns the pieces in the order of their ids. kBadInput for bytes that are no SentencePiece
// model; `name` begins the messages.
Result<std::vector<SentencePiece>> read_sentence_pieces(std::string_view bytes,
                                                        const std::string& name);

}  // namespace ferry::text
