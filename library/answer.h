// Answer makes the answer to a prompt, token by token, from logits that its caller computes.
#pragma once

#include <ferry/generate.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/result.h"
#include "packer/manifest.h"
#include "runner/decoder.h"
#include "runner/sampler.h"
#include "text/answer_end.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry {
inline namespace v0 {
namespace library {

// kUsage for options that are out of range.
Status check_options(const GenerateOptions& options);

// Returns the sampler of an answer of at most `most` tokens, which obeys `rules`.
Result<runner::Sampler> make_sampler(const SamplingOptions& from,
                                     const runner::GenerationRules& rules, int64_t most);

// The references and the prompt must outlive it.
class Answer {
 public:
  Answer(const GenerateOptions& options, const packer::Manifest& manifest,
         const runner::Decoder& decoder, const text::Tokenizer* tokenizer, const OnToken& on_token,
         runner::Sampler sampler, std::span<const int64_t> prompt);

  // Chooses the next token from the logits before it. nullopt if generation ends here.
  Result<std::optional<int64_t>> choose(std::span<const float> logits);
  // Ends the answer before its time, for `why`.
  void stop(StopReason why) { stop_ = why; }
  // Returns the answer, which has ended.
  Result<Generation> finish();

 private:
  std::optional<StopReason> reason(bool goes_on) const;

  const GenerateOptions& options_;
  const packer::Manifest& manifest_;
  const runner::Decoder& decoder_;
  const OnToken& on_token_;
  runner::Sampler sampler_;
  std::span<const int64_t> prompt_;
  text::StopTexts stops_;
  std::optional<text::TextStream> stream_;
  std::optional<StopReason> stop_;
  Generation generation_;
};

}  // namespace library
}  // namespace v0
}  // namespace ferry
