// Sampler: chooses the next token from logits. The same seed and logits give the same tokens, with
// any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/result.h"

namespace ferry::runner {

// xoshiro256** by Blackman and Vigna, seeded through splitmix64: small, fast, and defined by its
// arithmetic alone, unlike the distributions of the standard library.
class Random {
 public:
  explicit Random(uint64_t seed);
  uint64_t next();
  double uniform();  // [0, 1), 53 bits

 private:
  std::array<uint64_t, 4> state_;
};

struct SamplingOptions {
  double temperature = 0;  // 0: the largest logit; the other options have no effect
  int64_t top_k = 0;       // 0: all tokens
  double top_p = 1;        // the fewest likeliest tokens with at least this probability together
  uint64_t seed = 0;
};

class Sampler {
 public:
  // kUsage if an option is out of range.
  static Result<Sampler> make(const SamplingOptions& options);

  // Returns an index into `logits`, which must not be empty. kBadInput, at any temperature, if a
  // logit is NaN or +inf, or if all are -inf.
  Result<int64_t> sample(std::span<const float> logits);

 private:
  explicit Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}

  struct Candidate {
    double weight;  // exp((logit - largest) / temperature)
    int64_t id;
  };

  SamplingOptions options_;
  Random random_;
  std::vector<Candidate> candidates_;
};

// Index of the largest value, the first of equals; NaN is never the largest. `row` is not empty.
size_t argmax(std::span<const float> row);

}  // namespace ferry::runner
