#include "library/answer.h"

#include <algorithm>
#include <utility>

#include "library/internal.h"

namespace ferry {
inline namespace v0 {
namespace library {

Status check_options(const GenerateOptions& options) {
  if (options.max_new_tokens < 1) return wrong("max_new_tokens", "must be 1 or more");
  for (const std::string& stop : options.stops) {
    if (stop.empty()) return wrong("stops", "must not have an empty text");
  }
  return {};
}

Result<runner::Sampler> make_sampler(const SamplingOptions& from,
                                     const runner::GenerationRules& rules, int64_t most) {
  runner::SamplingOptions options;
  options.rules = rules;
  options.rules.most = most;
  options.repetition_penalty = from.repetition_penalty;
  options.temperature = from.temperature;
  options.top_k = from.top_k;
  options.top_p = from.top_p;
  options.min_p = from.min_p;
  options.seed = from.seed;
  return runner::Sampler::make(options);
}

Answer::Answer(const GenerateOptions& options, const packer::Manifest& manifest,
               const runner::Decoder& decoder, const text::Tokenizer* tokenizer,
               const OnToken& on_token, runner::Sampler sampler, std::span<const int64_t> prompt)
    : options_(options),
      manifest_(manifest),
      decoder_(decoder),
      on_token_(on_token),
      sampler_(std::move(sampler)),
      prompt_(prompt),
      stops_(options.stops) {
  if (tokenizer != nullptr) stream_.emplace(*tokenizer);
}

Result<std::optional<int64_t>> Answer::choose(std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(manifest_.vocab_size);
  if (logits.size() < vocab) {
    return bad_input("the bundle's logits are shorter than its vocabulary");
  }
  const int64_t token = FERRY_TRY(sampler_.sample(logits.last(vocab), prompt_, generation_.tokens));
  generation_.tokens.push_back(token);
  const bool is_end =
      !options_.ignore_end_tokens && std::ranges::count(manifest_.eos_ids, token) > 0;
  std::string part;
  if (stream_ && !is_end) part = stops_.push(FERRY_TRY(stream_->push(token)));
  generation_.text += part;
  const bool goes_on = !on_token_ || on_token_(token, part);
  stop_ = is_end ? std::optional(StopReason::kEndToken) : reason(goes_on);
  return stop_ ? std::nullopt : std::optional(token);
}

Result<Generation> Answer::finish() {
  if (stream_) {
    std::string rest = stops_.push(FERRY_TRY(stream_->finish()));
    rest += stops_.finish();
    generation_.text += rest;
    if (on_token_ && !rest.empty() && stop_ != StopReason::kCallback) on_token_(-1, rest);
  }
  generation_.stop = *stop_;
  return std::move(generation_);
}

std::optional<StopReason> Answer::reason(bool goes_on) const {
  if (stops_.found()) return StopReason::kStopText;
  if (!goes_on) return StopReason::kCallback;
  if (std::ssize(generation_.tokens) >= options_.max_new_tokens) return StopReason::kMaxNewTokens;
  if (decoder_.position() >= decoder_.capacity()) return StopReason::kContextFull;
  return std::nullopt;
}

}  // namespace library
}  // namespace v0
}  // namespace ferry
