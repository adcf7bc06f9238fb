// Sampler chooses the next token from logits. Equal seeds and logits give equal tokens, with any
// number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runner/generation_rules.h"

namespace ferry::runner {

// xoshiro256** by Blackman and Vigna, seeded through splitmix64. It is small, fast, and defined by
// its arithmetic alone, unlike the distributions of the standard library.
class Random {
 public:
  explicit Random(uint64_t seed);
  uint64_t next();
  double uniform();  // in [0, 1), with 53 bits

 private:
  std::array<uint64_t, 4> state_;
};

// The options are in order of their effect, which is that of the processors of transformers'
// generate().
struct SamplingOptions {
  GenerationRules rules = {};
  // Logits of tokens of the sequence, prompt and answer, are divided by the penalty if they are
  // positive, else multiplied (Keskar et al., CTRL, 2019), in f32. 1 has no effect.
  double repetition_penalty = 1;
  double temperature = 0;  // 0: the largest logit is chosen, without the options below
  int64_t top_k = 0;       // keeps the likeliest tokens, and equals of the last; 0 for all tokens
  double top_p = 1;        // keeps the fewest likeliest tokens with this total probability
  double min_p = 0;        // keeps tokens with this share of the largest probability
  uint64_t seed = 0;
};

struct TokenProbability {
  int64_t id;
  double probability;
};

class Sampler {
 public:
  // kUsage if an option is out of range.
  static Result<Sampler> make(const SamplingOptions& options);

  // Returns an index into `logits`, which must not be empty. `prompt` and `answer` are the tokens
  // before the new one, for the repetition penalty. kBadInput, at any temperature, if a logit is
  // NaN or +inf, or if all are -inf.
  Result<int64_t> sample(std::span<const float> logits, std::span<const int64_t> prompt = {},
                         std::span<const int64_t> answer = {});

  // Returns the tokens that sample() can return, with their probabilities, by id. Draws nothing.
  // Errors as for sample().
  Result<std::vector<TokenProbability>> distribution(std::span<const float> logits,
                                                     std::span<const int64_t> prompt = {},
                                                     std::span<const int64_t> answer = {});

 private:
  explicit Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}

  struct Candidate {
    double weight;  // exp((logit - largest) / temperature)
    int64_t id;
  };
  static bool less_likely(const Candidate& a, const Candidate& b);
  static bool more_likely(const Candidate& a, const Candidate& b);

  // Returns `logits` with the rules and the repetition penalty.
  std::span<const float> penalized(std::span<const float> logits, std::span<const int64_t> prompt,
                                   std::span<const int64_t> answer);
  // Finds the candidates that the options keep, or none at temperature 0. Returns the first of the
  // largest logits.
  Result<int64_t> prepare(std::span<const float> logits, std::span<const int64_t> prompt,
                          std::span<const int64_t> answer);
  // `largest` is the largest of `logits`.
  void find_candidates(std::span<const float> logits, double largest);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  double total() const;

  SamplingOptions options_;
  Random random_;
  std::vector<Candidate> candidates_;
  std::vector<float> penalized_;
};

// Returns the index of the largest value, the first of equals. NaN is never the largest. `row` must
// not be empty.
size_t argmax(std::span<const float> row);

}  // namespace ferry::runner
