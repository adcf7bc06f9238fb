#include "runner/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::runner {
namespace {

// A guess should be right more often than not, because a wrong one costs a row of the large model
// and a pass of the small one.
constexpr float kLeastProbability = 0.5f;

// Returns the likeliest token if its probability is large enough, else -1.
int64_t likely_token(std::span<const float> logits) {
  const auto best = std::ranges::max_element(logits);
  float sum = 0;
  for (const float logit : logits) sum += std::exp(logit - *best);
  return sum * kLeastProbability <= 1 ? best - logits.begin() : -1;
}

// Returns why the tokens of one bundle are no tokens of the other; empty if they are.
std::string difference(const packer::Bundle& draft, const packer::Bundle& bundle) {
  const std::string& style = draft.manifest().program_style;
  if (style == kStaticStyle || style == kEncoderStyle) {
    return fmt::format("has {} programs; a draft has stateful ones", style);
  }
  const int64_t own = draft.manifest().vocab_size, other = bundle.manifest().vocab_size;
  if (own != other) return fmt::format("has {} tokens, and the model has {}", own, other);
  constexpr const char* kFile = "tokenizer.json";
  if (!draft.has_text(kFile) || !bundle.has_text(kFile)) return {};
  constexpr uint64_t kMostBytes = uint64_t{1} << 28;
  const auto a = draft.text(kFile, kMostBytes), b = bundle.text(kFile, kMostBytes);
  return a && b && *a != *b ? "has another tokenizer than the model" : std::string();
}

}  // namespace

Result<std::unique_ptr<Guesser>> DraftModel::load(const packer::Bundle& draft,
                                                  const packer::Bundle& bundle, ThreadPool& pool,
                                                  const MethodOptions& options,
                                                  MemoryBudget& budget) {
  if (const std::string why = difference(draft, bundle); !why.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("{}: the draft {}", printable(draft.path()), why));
  }
  MethodOptions plain = options;
  plain.profile = nullptr;
  StatefulDecoder decoder = FERRY_TRY(StatefulDecoder::load(draft, pool, plain, nullptr, budget));
  FERRY_RETURN_IF_ERROR(decoder.check_going_back("a draft"));
  return std::unique_ptr<Guesser>(new DraftModel(std::move(decoder), draft.manifest().vocab_size));
}

void DraftModel::restart() {
  tokens_.clear();
  decoder_.restart();
}

void DraftModel::add(std::span<const int64_t> tokens) {
  // The decoder has run the last guesses behind tokens_. Those that were wrong are taken back.
  size_t right = 0;
  while (right < tokens.size() && right < call_.size() && call_[right] == tokens[right]) ++right;
  decoder_.go_back(
      std::min(decoder_.position(), std::ssize(tokens_) + static_cast<int64_t>(right)));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  call_.clear();
}

Result<std::span<const int64_t>> DraftModel::guess(int64_t token, size_t limit) {
  call_.assign(1, token);
  const int64_t room = decoder_.capacity() - std::ssize(tokens_) - 1;
  const int64_t back = std::min(room, decoder_.most_taken_back());
  const size_t most = count(std::min(limit, static_cast<size_t>(std::max<int64_t>(back, 0))));
  if (most == 0) return call_;
  std::vector<int64_t> fresh(tokens_.begin() + decoder_.position(), tokens_.end());
  fresh.push_back(token);
  while (call_.size() <= most) {
    const std::span<const float> logits = FERRY_TRY(decoder_.forward(fresh));
    const auto vocab = static_cast<size_t>(vocab_);
    if (logits.size() < vocab)
      return bad_input("the draft's logits are shorter than its vocabulary");
    const int64_t next = likely_token(logits.last(vocab));
    if (next < 0) break;
    call_.push_back(next);
    fresh.assign(1, next);
  }
  return call_;
}

}  // namespace ferry::runner
