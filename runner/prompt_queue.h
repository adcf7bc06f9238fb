// answer_all() answers prompts in the sequences of a DecoderGroup. A sequence whose answer is whole
// takes the next prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/result.h"
#include "runner/decoder_group.h"

namespace ferry::runner {

// The part of a caller, which makes answers of prompts. Prompts have numbers from 0 on.
class PromptAnswers {
 public:
  virtual ~PromptAnswers() = default;
  // Runs the prompt in a decoder that has another sequence or none. Returns the first token of the
  // answer that is to be run; nullopt if the answer ends with its first token.
  virtual Result<std::optional<int64_t>> begin(size_t prompt, Decoder& decoder) = 0;
  // Chooses the next token of an answer from its logits. Returns nullopt if the answer ends.
  virtual Result<std::optional<int64_t>> choose(size_t prompt, std::span<const float> logits) = 0;
  // Takes note that the answer is whole.
  virtual Status end(size_t prompt) = 0;
};

// Answers `count` prompts, begun in their order. Ends with the first error of the group or of the
// caller; answers in the making are then not whole. kInterrupted after a request to stop.
Status answer_all(DecoderGroup& group, size_t count, PromptAnswers& answers);

}  // namespace ferry::runner
