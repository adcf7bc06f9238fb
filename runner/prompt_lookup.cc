#include "runner/prompt_lookup.h"

namespace ferry::runner {
namespace {

// More tokens in common make a better guess; one in common makes none.
constexpr size_t kMostCommon = 4, kLeastCommon = 2;

}  // namespace

Result<std::span<const int64_t>> PromptLookup::guess(int64_t token, size_t limit) {
  call_.assign(1, token);
  const size_t most = count(limit);
  tokens_.push_back(token);
  const size_t size = tokens_.size();
  size_t best = 0, best_common = kLeastCommon - 1;
  // The latest of the longest matches: `end` is the place behind the common tokens.
  for (size_t end = size - 1; end >= kLeastCommon && most > 0; --end) {
    size_t common = 0;
    while (common < kMostCommon && common < end &&
           tokens_[end - 1 - common] == tokens_[size - 1 - common]) {
      ++common;
    }
    if (common <= best_common) continue;
    best = end;
    best_common = common;
    if (common == kMostCommon) break;
  }
  for (size_t i = best; best > 0 && i < size && call_.size() <= most; ++i) {
    call_.push_back(tokens_[i]);
  }
  tokens_.pop_back();
  return call_;
}

}  // namespace ferry::runner
