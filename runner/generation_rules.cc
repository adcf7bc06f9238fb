#include "runner/generation_rules.h"

#include <algorithm>
#include <limits>

namespace ferry::runner {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void forbid(std::span<const int64_t> ids, std::span<float> logits) {
  for (const int64_t id : ids) logits[static_cast<size_t>(id)] = kNever;
}

// A forced token has the logit 0, as in the reference, and all others have none.
void force(std::span<const int64_t> ids, std::span<float> logits) {
  std::ranges::fill(logits, kNever);
  for (const int64_t id : ids) logits[static_cast<size_t>(id)] = 0.0F;
}

// Whether the sequence ends with the ids of `word` before its last one.
bool begins_here(std::span<const int64_t> word, std::span<const int64_t> sequence) {
  const size_t before = word.size() - 1;
  return before <= sequence.size() && std::ranges::equal(word.first(before), sequence.last(before));
}

}  // namespace

void apply_rules(const GenerationRules& rules, std::span<const int64_t> prompt,
                 std::span<const int64_t> answer, std::span<float> logits) {
  std::vector<int64_t> sequence(prompt.begin(), prompt.end());
  sequence.insert(sequence.end(), answer.begin(), answer.end());
  for (const std::vector<int64_t>& word : rules.bad_words) {
    if (begins_here(word, sequence)) forbid({&word.back(), 1}, logits);
  }
  if (rules.forced_first && sequence.size() == 1) force({&*rules.forced_first, 1}, logits);
  const int64_t made = std::ssize(answer);
  if (!rules.forced_last.empty() && made + 1 == rules.most) force(rules.forced_last, logits);
  forbid(rules.suppressed, logits);
  const bool first_is_forced = rules.forced_first && prompt.size() == 1;
  if (made == (first_is_forced ? 1 : 0)) forbid(rules.suppressed_first, logits);
}

}  // namespace ferry::runner
