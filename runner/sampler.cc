#include "runner/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace ferry::runner {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
// Logits are examined in blocks by loops without exits, which the compiler vectorises.
constexpr size_t kBlock = 1024;

// Returns the largest value, ignoring NaN, or minus infinity if there is none.
float largest_of(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::ranges::fill(lanes, -kInf);
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      lanes[l] = values[i + l] > lanes[l] ? values[i + l] : lanes[l];
    }
  }
  float largest = *std::ranges::max_element(lanes);
  for (float value : values.subspan(whole)) largest = value > largest ? value : largest;
  return largest;
}

// Returns whether the values contain neither NaN nor infinity. Minus infinity is allowed.
bool is_ordered(std::span<const float> values) {
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    unsigned others = 0;
    for (float value : values.subspan(begin, std::min(kBlock, values.size() - begin))) {
      others |= value < kInf ? 0 : 1;
    }
    if (others != 0) return false;
  }
  return true;
}

}  // namespace

// Equally likely candidates are ordered by id.
bool Sampler::less_likely(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight < b.weight : a.id > b.id;
}
bool Sampler::more_likely(const Candidate& a, const Candidate& b) { return less_likely(b, a); }

Random::Random(uint64_t seed) {
  for (uint64_t& word : state_) {
    seed += 0x9E3779B97F4A7C15;
    uint64_t z = seed;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    word = z ^ z >> 31;
  }
}

uint64_t Random::next() {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

Result<Sampler> Sampler::make(const SamplingOptions& o) {
  if (!(o.temperature >= 0 && o.temperature <= 100)) {
    return fail_field(ErrorCode::kUsage, "temperature", " must be from 0 to 100");
  }
  if (o.top_k < 0) return fail_field(ErrorCode::kUsage, "top_k", " must be at least 0");
  if (!(o.top_p > 0 && o.top_p <= 1)) {
    return fail_field(ErrorCode::kUsage, "top_p", " must be above 0 and at most 1");
  }
  if (!(o.min_p >= 0 && o.min_p <= 1)) {
    return fail_field(ErrorCode::kUsage, "min_p", " must be from 0 to 1");
  }
  if (!(o.repetition_penalty >= 0.01 && o.repetition_penalty <= 100)) {
    return fail_field(ErrorCode::kUsage, "repetition_penalty", " must be from 0.01 to 100");
  }
  return Sampler(o);
}

std::span<const float> Sampler::penalized(std::span<const float> logits,
                                          std::span<const int64_t> prompt,
                                          std::span<const int64_t> answer) {
  if (options_.repetition_penalty == 1 && options_.rules.empty()) return logits;
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  penalized_.assign(logits.begin(), logits.end());
  for (const std::span<const int64_t> part : {prompt, answer}) {
    for (const int64_t id : part) {
      if (id < 0 || id >= std::ssize(logits)) continue;
      // The penalty is computed from the input logit, so that a token that occurs twice is not
      // penalised twice.
      const float logit = logits[static_cast<size_t>(id)];
      penalized_[static_cast<size_t>(id)] = logit < 0 ? logit * penalty : logit / penalty;
    }
  }
  if (!options_.rules.empty()) apply_rules(options_.rules, prompt, answer, penalized_);
  return penalized_;
}

void Sampler::keep_top_k() {
  const auto top_k = static_cast<size_t>(options_.top_k);
  if (top_k == 0 || top_k >= candidates_.size()) return;
  // As in the reference, candidates that are as likely as the last one are kept too.
  const auto last = candidates_.begin() + options_.top_k - 1;
  std::ranges::nth_element(candidates_, last, more_likely);
  const double least = last->weight;
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < least; });
  std::ranges::sort(candidates_, more_likely);
}

void Sampler::keep_top_p() {
  if (options_.top_p == 1) return;
  const double wanted = options_.top_p * total();
  // A heap is used, because only a few candidates are kept. Each moves from its top to the end.
  double sum = 0;
  auto heap_end = candidates_.end();
  std::ranges::make_heap(candidates_, less_likely);
  while (heap_end != candidates_.begin() && sum < wanted) {
    std::pop_heap(candidates_.begin(), heap_end, less_likely);
    sum += (--heap_end)->weight;
  }
  std::reverse(heap_end, candidates_.end());
  candidates_.erase(candidates_.begin(), heap_end);
}

// The likeliest token has the weight 1, so min_p is a limit of weights.
void Sampler::keep_min_p() {
  if (options_.min_p == 0) return;
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < options_.min_p; });
}

double Sampler::total() const {
  double sum = 0;
  for (const Candidate& c : candidates_) sum += c.weight;
  return sum;
}

void Sampler::find_candidates(std::span<const float> logits, double largest) {
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((logits[i] - largest) / options_.temperature);
    candidates_.push_back({weight, static_cast<int64_t>(i)});
  }
  keep_top_k();
  keep_top_p();
  keep_min_p();
}

Result<int64_t> Sampler::prepare(std::span<const float> logits, std::span<const int64_t> prompt,
                                 std::span<const int64_t> answer) {
  // -inf is a probability of 0, such as that of a masked token. A comparison with NaN is false.
  const bool ordered = is_ordered(logits);
  logits = penalized(logits, prompt, answer);
  const auto best = static_cast<int64_t>(argmax(logits));
  const double largest = logits[static_cast<size_t>(best)];
  if (!ordered || !std::isfinite(largest)) {
    return bad_input("the logits are not finite: there is nothing to choose from");
  }
  candidates_.clear();
  if (options_.temperature != 0) find_candidates(logits, largest);
  return best;
}

Result<int64_t> Sampler::sample(std::span<const float> logits, std::span<const int64_t> prompt,
                                std::span<const int64_t> answer) {
  const int64_t best = FERRY_TRY(prepare(logits, prompt, answer));
  if (options_.temperature == 0) return best;
  double left = random_.uniform() * total();
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  return best;  // rounding errors have left a rest
}

Result<std::vector<TokenProbability>> Sampler::distribution(std::span<const float> logits,
                                                            std::span<const int64_t> prompt,
                                                            std::span<const int64_t> answer) {
  const int64_t best = FERRY_TRY(prepare(logits, prompt, answer));
  if (options_.temperature == 0) return std::vector<TokenProbability>{{best, 1}};
  std::vector<TokenProbability> out;
  const double sum = total();
  for (const Candidate& c : candidates_) {
    if (c.weight > 0) out.push_back({c.id, c.weight / sum});
  }
  std::ranges::sort(out, {}, &TokenProbability::id);
  return out;
}

size_t argmax(std::span<const float> row) {
  float largest = -kInf;
  std::span<const float> block;  // the first block that contains the value
  for (size_t begin = 0; begin < row.size(); begin += kBlock) {
    const auto next = row.subspan(begin, std::min(kBlock, row.size() - begin));
    if (const float top = largest_of(next); top > largest) {
      largest = top;
      block = next;
    }
  }
  if (!block.empty()) {
    return static_cast<size_t>(std::ranges::find(block, largest) - block.begin()) +
           static_cast<size_t>(block.data() - row.data());
  }
  // The row contains only minus infinity and NaN.
  const auto found = std::ranges::find(row, -kInf);
  if (found != row.end()) return static_cast<size_t>(found - row.begin());
  return row.empty() ? 0 : row.size() - 1;
}

}  // namespace ferry::runner
