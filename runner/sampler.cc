#include "runner/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace ferry::runner {

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
    return fail(ErrorCode::kUsage, "--temperature must be from 0 to 100");
  }
  if (o.top_k < 0) return fail(ErrorCode::kUsage, "--top-k must be at least 0");
  if (!(o.top_p > 0 && o.top_p <= 1)) {
    return fail(ErrorCode::kUsage, "--top-p must be above 0 and at most 1");
  }
  return Sampler(o);
}

Result<int64_t> Sampler::sample(std::span<const float> logits) {
  // -inf is a probability of 0, as of a token that is masked. NaN is below nothing.
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const bool ordered = std::ranges::all_of(logits, [](float logit) { return logit < kInf; });
  const auto best = static_cast<int64_t>(argmax(logits));
  if (!ordered || logits[static_cast<size_t>(best)] == -kInf) {
    return bad_input("the logits are not finite: there is nothing to choose from");
  }
  if (options_.temperature == 0) return best;
  const double largest = logits[static_cast<size_t>(best)];
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((logits[i] - largest) / options_.temperature);
    candidates_.push_back({weight, static_cast<int64_t>(i)});
  }
  // As the reference: the temperature first, then top k, then top p of what is left. Likeliest
  // first, equally likely ones by their id.
  const auto less_likely = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight < b.weight : a.id > b.id;
  };
  const auto more_likely = [&](const Candidate& a, const Candidate& b) {
    return less_likely(b, a);
  };
  const auto top_k = static_cast<size_t>(options_.top_k);
  if (top_k > 0 && top_k < candidates_.size()) {
    std::ranges::nth_element(candidates_, candidates_.begin() + top_k, more_likely);
    candidates_.resize(top_k);
    std::ranges::sort(candidates_, more_likely);
  }
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  if (options_.top_p < 1) {
    // A heap, because a few of many are kept: each goes from its top to the end.
    double sum = 0;
    auto heap_end = candidates_.end();
    std::ranges::make_heap(candidates_, less_likely);
    while (heap_end != candidates_.begin() && sum < options_.top_p * total) {
      std::pop_heap(candidates_.begin(), heap_end, less_likely);
      sum += (--heap_end)->weight;
    }
    std::reverse(heap_end, candidates_.end());
    candidates_.erase(candidates_.begin(), heap_end);
    total = sum;
  }
  double left = random_.uniform() * total;
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  return best;  // rounding has left a crumb
}

size_t argmax(std::span<const float> row) {
  size_t best = 0;
  for (size_t i = 1; i < row.size(); ++i) {
    if (row[i] > row[best] || std::isnan(row[best])) best = i;
  }
  return best;
}

}  // namespace ferry::runner
