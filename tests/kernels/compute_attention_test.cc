// bmm, attention and the gated delta rule, compared with plain loops in double, on every
// instruction set of this machine. The results with pools of 1, 2 and 3 threads must be equal to
// the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/compute.h"
#include "tests/kernels/compute_testing.h"

namespace ferry::kernels::compute_attention_test {
namespace {

struct BmmCase {
  int64_t batch, m, n, k;
};

// The tolerance is 4 units of f32 of the sum of magnitudes.
TEST(BmmTest, MatchesDoubleWithAnyPool) {
  for (const BmmCase& c : {BmmCase{1, 1, 1, 1},
                           {2, 3, 17, 5},
                           {3, 1, 64, 257},
                           {1, 5, 300, 63},
                           {2, 37, 65, 64},
                           {1, 64, 16, 17},
                           {2, 2, 3, 0}}) {
    const auto a = random_values(c.batch * c.m * c.k, 20);
    const auto b = random_values(c.batch * c.k * c.n, 21);
    const auto run = [&](ThreadPool& pool) {
      std::vector<float> out(c.batch * c.m * c.n, kNan);
      bmm_f32(a.data(), b.data(), out.data(), c.batch, c.m, c.n, c.k, pool);
      return out;
    };
    expect_same_with_any_pool(run);
    on_every_target([&] {
      ThreadPool pool(1);
      const auto out = run(pool);
      for (int64_t i = 0; i < c.batch * c.m; ++i) {
        for (int64_t j = 0; j < c.n; ++j) {
          double sum = 0, size = 0;
          for (int64_t p = 0; p < c.k; ++p) {
            const double term = double(a[i * c.k + p]) * b[(i / c.m * c.k + p) * c.n + j];
            sum += term;
            size += std::abs(term);
          }
          ASSERT_NEAR(out[i * c.n + j], sum, 0x1p-22 * size);
        }
      }
    });
  }
}

enum class Seen { kCausal, kAll, kMask };

struct SdpaCase {
  SdpaShape shape;
  int64_t start_pos;
  Seen seen;
};

struct SdpaData {
  std::vector<float> query, key, value, mask;
};

SdpaData sdpa_data(const SdpaCase& c) {
  const SdpaShape& s = c.shape;
  SdpaData d{random_values(s.batch * s.t * s.heads * s.dim, 30, 3),
             random_values(s.batch * s.context * s.kv_heads * s.dim, 31, 3),
             random_values(s.batch * s.context * s.kv_heads * s.dim, 32, 3),
             {}};
  if (c.seen == Seen::kMask) d.mask = random_values(s.t * s.context, 33);
  return d;
}

std::vector<float> run_sdpa(const SdpaCase& c, const SdpaData& d, const StoredRows& key,
                            const StoredRows& value, ThreadPool& pool) {
  std::vector<float> out(d.query.size(), kNan);
  sdpa_f32(c.shape, d.query.data(), key, value, d.mask.empty() ? nullptr : d.mask.data(),
           c.seen == Seen::kCausal, c.start_pos, 0.3f, out.data(), pool);
  return out;
}

std::vector<float> run_sdpa(const SdpaCase& c, const SdpaData& d, ThreadPool& pool) {
  return run_sdpa(c, d, {DType::kF32, d.key.data()}, {DType::kF32, d.value.data()}, pool);
}

// Computes the softmax over all visible keys at once. A row without a finite score is zero.
std::vector<double> naive_sdpa(const SdpaCase& c, const SdpaData& d) {
  const SdpaShape& s = c.shape;
  std::vector<double> out(d.query.size(), 0.0);
  for (int64_t row = 0; row < s.batch * s.t * s.heads; ++row) {
    const int64_t b = row / s.heads / s.t, i = row / s.heads % s.t;
    const int64_t kv_head = row % s.heads / (s.heads / s.kv_heads);
    const int64_t seen = c.seen == Seen::kCausal ? c.start_pos + i + 1 : s.context;
    const auto at = [&](int64_t j) { return ((b * s.context + j) * s.kv_heads + kv_head) * s.dim; };
    std::vector<double> score(seen);
    double top = -kInf, total = 0;
    for (int64_t j = 0; j < seen; ++j) {
      for (int64_t e = 0; e < s.dim; ++e)
        score[j] += double(d.query[row * s.dim + e]) * d.key[at(j) + e];
      score[j] = score[j] * double(0.3f) + (d.mask.empty() ? 0 : d.mask[i * s.context + j]);
      top = std::max(top, score[j]);
    }
    if (std::isinf(top)) continue;
    for (double& v : score) total += v = std::exp(v - top);
    for (int64_t j = 0; j < seen; ++j) {
      for (int64_t e = 0; e < s.dim; ++e)
        out[row * s.dim + e] += score[j] / total * d.value[at(j) + e];
    }
  }
  return out;
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected,
                 double bound) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], bound) << i;
}

const SdpaCase kSdpaCases[] = {
    {{1, 1, 1, 1, 1, 1}, 0, Seen::kCausal},
    {{1, 1, 4, 2, 64, 300}, 257, Seen::kCausal},
    {{2, 1, 8, 1, 17, 97}, 96, Seen::kCausal},
    {{1, 1, 3, 3, 128, 200}, 95, Seen::kCausal},
    {{1, 5, 4, 2, 16, 101}, 95, Seen::kCausal},
    {{2, 40, 6, 2, 24, 130}, 0, Seen::kCausal},
    {{1, 130, 4, 4, 80, 257}, 63, Seen::kCausal},
    {{1, 33, 2, 1, 65, 200}, 100, Seen::kCausal},
    {{1, 7, 4, 2, 64, 65}, 0, Seen::kAll},
    {{2, 3, 2, 2, 8, 193}, 0, Seen::kAll},
    {{1, 17, 4, 2, 32, 113}, 0, Seen::kMask},
    {{2, 1, 4, 1, 63, 257}, 5, Seen::kMask},
    // These cases have several chunks of keys, one kv head, or more heads than are computed at a
    // time.
    {{1, 1, 8, 1, 64, 1300}, 1200, Seen::kCausal},
    {{1, 1, 32, 1, 40, 900}, 700, Seen::kCausal},
    {{1, 1, 22, 11, 24, 850}, 800, Seen::kCausal},
    {{2, 3, 10, 10, 17, 800}, 766, Seen::kCausal},
    {{1, 70, 2, 1, 32, 900}, 720, Seen::kCausal},
    {{1, 2, 4, 2, 33, 777}, 0, Seen::kMask},
};

// The tolerance allows for values up to 3 and scores up to about 100, whose rounding exp magnifies.
TEST(SdpaTest, MatchesDoubleOnEveryTarget) {
  ThreadPool pool(2);
  for (const SdpaCase& c : kSdpaCases) {
    const SdpaData d = sdpa_data(c);
    const auto expected = naive_sdpa(c, d);
    on_every_target([&] { expect_near(run_sdpa(c, d, pool), expected, 1e-4); });
  }
}

// Keys at both ends that no query of a block sees are left out where a mask lowers them so far that
// they are known to be hidden. The bits are those with a mask whose keys are all computed.
TEST(SdpaTest, KeysThatNoQuerySeesChangeNoBit) {
  for (const SdpaShape& shape :
       {SdpaShape{1, 70, 4, 2, 20, 250}, {1, 3, 4, 4, 32, 900}, {2, 33, 2, 1, 64, 97}}) {
    const SdpaCase c = {shape, 0, Seen::kMask};
    const auto run = [&](float hidden) {
      SdpaData d = sdpa_data(c);
      for (int64_t i = 0; i < shape.t; ++i) {
        const int64_t first = i * (shape.context - 41) / shape.t;
        for (int64_t j = 0; j < shape.context; ++j) {
          d.mask[i * shape.context + j] = j >= first && j < first + 40 ? 0.0f : hidden;
        }
      }
      ThreadPool pool(1);
      return run_sdpa(c, d, pool);
    };
    on_every_target([&] {
      const auto left_out = run(-65535.0f), computed = run(-20000.0f);
      ASSERT_EQ(left_out.size(), computed.size());
      EXPECT_EQ(std::memcmp(left_out.data(), computed.data(), computed.size() * sizeof(float)), 0);
    });
  }
}

TEST(SdpaTest, SameBitsWithAnyPool) {
  for (const SdpaCase& c : kSdpaCases) {
    const SdpaData d = sdpa_data(c);
    expect_same_with_any_pool([&](ThreadPool& pool) { return run_sdpa(c, d, pool); });
  }
}

TEST(SdpaTest, AQueryOfAPrefillHasTheBitsItHasAlone) {
  ThreadPool pool(2);
  for (const SdpaCase& all : {SdpaCase{{1, 130, 6, 2, 40, 300}, 63, Seen::kCausal},
                              {{1, 130, 8, 1, 24, 900}, 700, Seen::kCausal},
                              {{1, 67, 18, 9, 16, 800}, 350, Seen::kCausal}}) {
    const SdpaData d = sdpa_data(all);
    on_every_target([&] {
      const auto batch = run_sdpa(all, d, pool);
      const int64_t row = all.shape.heads * all.shape.dim;
      for (int64_t i = 0; i < all.shape.t; i += 7) {
        SdpaCase one = all;
        one.shape.t = 1;
        one.start_pos += i;
        SdpaData alone = d;
        alone.query.assign(&d.query[i * row], &d.query[i * row] + row);
        const auto out = run_sdpa(one, alone, pool);
        ASSERT_EQ(std::memcmp(out.data(), &batch[i * row], row * sizeof(float)), 0) << i;
      }
    });
  }
}

TEST(SdpaTest, KeysBeyondWhatAQuerySeesHaveNoInfluence) {
  ThreadPool pool(2);
  const SdpaCase c{{1, 20, 4, 2, 32, 200}, 90, Seen::kCausal};
  SdpaData d = sdpa_data(c);
  on_every_target([&] {
    const auto expected = run_sdpa(c, d, pool);
    SdpaData poisoned = d;
    // Only the last query sees the key at `last`.
    const int64_t row = 2 * 32, last = (90 + 19) * row;
    for (size_t i = last; i < poisoned.key.size(); ++i) {
      poisoned.key[i] = poisoned.value[i] = kNan;
    }
    const auto out = run_sdpa(c, poisoned, pool);
    const size_t others = 19 * 4 * 32;
    EXPECT_EQ(std::memcmp(out.data(), expected.data(), others * sizeof(float)), 0);
    EXPECT_TRUE(std::isnan(out[others]));
  });
}

TEST(SdpaTest, MaskedKeysHaveNoWeight) {
  ThreadPool pool(2);
  on_every_target([&] {
    for (const float low : {-65535.0f, -kInf}) {
      SdpaCase c{{1, 5, 4, 2, 16, 300}, 0, Seen::kMask};
      SdpaData d = sdpa_data(c);
      // Query i sees the keys from 60 * i on, so whole blocks at the start are masked.
      for (int64_t i = 0; i < 5; ++i) {
        for (int64_t j = 0; j < 300; ++j) d.mask[i * 300 + j] = j < 60 * i ? low : 0.0f;
      }
      expect_near(run_sdpa(c, d, pool), naive_sdpa(c, d), 1e-4);
      // With a longer context whole chunks are masked.
      c.shape.context = 900;
      d = sdpa_data(c);
      for (int64_t i = 0; i < 5; ++i) {
        for (int64_t j = 0; j < 900; ++j) d.mask[i * 900 + j] = j / 100 == 2 * i ? 0.0f : low;
      }
      expect_near(run_sdpa(c, d, pool), naive_sdpa(c, d), 1e-4);
    }
  });
}

TEST(SdpaTest, ARowWithoutAnyKeyIsZero) {
  ThreadPool pool(2);
  on_every_target([&] {
    SdpaCase c{{1, 3, 4, 2, 16, 130}, 0, Seen::kMask};
    SdpaData d = sdpa_data(c);
    std::fill_n(&d.mask[130], 130, -kInf);
    const auto out = run_sdpa(c, d, pool);
    expect_near(out, naive_sdpa(c, d), 1e-4);
    for (size_t i = 4 * 16; i < 2 * 4 * 16; ++i) EXPECT_EQ(out[i], 0.0f);
  });
}

TEST(SdpaTest, ARowOfVeryLowFiniteMasksIsStillASoftmax) {
  ThreadPool pool(2);
  on_every_target([&] {
    SdpaCase c{{1, 1, 2, 1, 16, 200}, 0, Seen::kMask};
    SdpaData d = sdpa_data(c);
    std::fill(d.mask.begin(), d.mask.end(), -65535.0f);
    // Scores near 65535 have 8 bits after the binary point, as in the reference.
    expect_near(run_sdpa(c, d, pool), naive_sdpa(c, d), 2e-2);
  });
}

// A cache as it is stored. The constructor replaces `values` by the values that the cache stores.
struct StoredCache {
  StoredCache(DType stored_as, int64_t dim, std::vector<float>& values)
      : dtype(stored_as),
        bytes(values.size() * static_cast<size_t>(dtype_bytes(dtype))),
        scales(values.size() / static_cast<size_t>(dim)),
        zero_points(scales.size()) {
    if (dtype == DType::kI8) {
      make_codes(static_cast<size_t>(dim), values);
      return;
    }
    const auto n = static_cast<int64_t>(values.size());
    cast(DType::kF32, values.data(), dtype, bytes.data(), n);
    cast(dtype, bytes.data(), DType::kF32, values.data(), n);
  }
  StoredRows rows() const { return {dtype, bytes.data(), scales.data(), zero_points.data()}; }

  DType dtype;
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  std::vector<int8_t> zero_points;

 private:
  void make_codes(size_t dim, std::vector<float>& values) {
    std::mt19937 bits(7);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t row = i / dim;
      if (i % dim == 0) {
        scales[row] = 0.01f + 0.0001f * static_cast<float>(bits() % 97);
        zero_points[row] = static_cast<int8_t>(bits());
      }
      const auto code = static_cast<int8_t>(bits());
      bytes[i] = static_cast<std::byte>(code);
      values[i] = static_cast<float>(code - zero_points[row]) * scales[row];
    }
  }
};

TEST(SdpaTest, AStoredCacheGivesTheBitsOfItsValues) {
  ThreadPool pool(2);
  for (const SdpaCase& c : kSdpaCases) {
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kI8}) {
      SdpaData d = sdpa_data(c);
      const StoredCache key(dtype, c.shape.dim, d.key), value(dtype, c.shape.dim, d.value);
      on_every_target([&] {
        const auto expected = run_sdpa(c, d, pool);
        const auto out = run_sdpa(c, d, key.rows(), value.rows(), pool);
        ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0);
      });
    }
  }
}

TEST(SdpaTest, HeadsThatFillTheTileOfAStoredCache) {
  ThreadPool pool(2);
  for (const int64_t dim : {kMaxStoredDim, kMaxStoredDim / 3}) {
    const SdpaCase c{{1, 2, 2, 1, dim, 100}, 97, Seen::kCausal};
    SdpaData d = sdpa_data(c);
    const StoredCache key(DType::kF16, dim, d.key), value(DType::kI8, dim, d.value);
    const auto expected = run_sdpa(c, d, pool);
    const auto out = run_sdpa(c, d, key.rows(), value.rows(), pool);
    EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0);
  }
}

struct DeltaRuleData {
  std::vector<float> query, key, value, decay, beta, state;
};

DeltaRuleData delta_rule_data(const DeltaRuleShape& s) {
  const int64_t heads = s.batch * s.heads, steps = heads * s.t;
  DeltaRuleData d{random_values(steps * s.key_dim, 40),
                  random_values(steps * s.key_dim, 41),
                  random_values(steps * s.value_dim, 42),
                  random_values(steps * (s.decay_per_key ? s.key_dim : 1), 43),
                  random_values(steps, 44),
                  random_values(heads * s.key_dim * s.value_dim, 45)};
  for (float& g : d.decay) g = 0.6f + 0.4f * g;
  for (float& b : d.beta) b = 0.5f + 0.5f * b;
  // Keys are unit vectors, as callers pass them. Otherwise the state grows without bound.
  for (int64_t i = 0; i < steps; ++i) {
    double square = 0;
    for (int64_t j = 0; j < s.key_dim; ++j) square += std::pow(d.key[i * s.key_dim + j], 2);
    for (int64_t j = 0; j < s.key_dim; ++j) d.key[i * s.key_dim + j] /= float(std::sqrt(square));
  }
  return d;
}

// Returns the output, followed by the state.
std::vector<float> run_delta_rule(const DeltaRuleShape& s, const DeltaRuleData& d,
                                  ThreadPool& pool) {
  std::vector<float> result(d.value.size() + d.state.size(), kNan);
  gated_delta_rule_f32(s, d.query.data(), d.key.data(), d.value.data(), d.decay.data(),
                       d.beta.data(), d.state.data(), result.data(), result.data() + d.value.size(),
                       pool);
  return result;
}

std::vector<double> naive_delta_rule(const DeltaRuleShape& s, const DeltaRuleData& d) {
  std::vector<double> result;
  std::vector<double> state(d.state.begin(), d.state.end());
  for (int64_t at = 0; at < s.batch * s.heads * s.t; ++at) {
    double* const held = &state[at / s.t * s.key_dim * s.value_dim];
    for (int64_t j = 0; j < s.value_dim; ++j) {
      double memory = 0, out = 0;
      for (int64_t i = 0; i < s.key_dim; ++i) {
        held[i * s.value_dim + j] *= d.decay[s.decay_per_key ? at * s.key_dim + i : at];
        memory += held[i * s.value_dim + j] * d.key[at * s.key_dim + i];
      }
      const double delta = d.beta[at] * (d.value[at * s.value_dim + j] - memory);
      for (int64_t i = 0; i < s.key_dim; ++i) {
        held[i * s.value_dim + j] += d.key[at * s.key_dim + i] * delta;
        out += held[i * s.value_dim + j] * d.query[at * s.key_dim + i];
      }
      result.push_back(out);
    }
  }
  result.insert(result.end(), state.begin(), state.end());
  return result;
}

const DeltaRuleShape kDeltaRuleCases[] = {
    {1, 1, 1, 1, 1, false},    {2, 3, 1, 16, 64, false},  {1, 2, 9, 17, 33, true},
    {1, 4, 20, 64, 63, false}, {1, 1, 3, 128, 128, true}, {2, 1, 2, 3, 257, false},
    {1, 2, 0, 4, 5, false},
};

TEST(DeltaRuleTest, MatchesDoubleOnEveryTarget) {
  ThreadPool pool(2);
  for (const DeltaRuleShape& s : kDeltaRuleCases) {
    const DeltaRuleData d = delta_rule_data(s);
    const auto expected = naive_delta_rule(s, d);
    on_every_target([&] { expect_near(run_delta_rule(s, d, pool), expected, 2e-5); });
  }
}

TEST(DeltaRuleTest, SameBitsWithAnyPool) {
  for (const DeltaRuleShape& s : kDeltaRuleCases) {
    const DeltaRuleData d = delta_rule_data(s);
    expect_same_with_any_pool([&](ThreadPool& pool) { return run_delta_rule(s, d, pool); });
  }
}

TEST(DeltaRuleTest, StepByStepHasTheBitsOfTheWholeSequence) {
  ThreadPool pool(2);
  const DeltaRuleShape all{1, 1, 12, 24, 70, false};
  const DeltaRuleData d = delta_rule_data(all);
  on_every_target([&] {
    const auto expected = run_delta_rule(all, d, pool);
    DeltaRuleShape one = all;
    one.t = 1;
    std::vector<float> result, state = d.state;
    for (int64_t t = 0; t < all.t; ++t) {
      const auto part = [&](const std::vector<float>& from, int64_t n) {
        return std::vector<float>(from.begin() + t * n, from.begin() + (t + 1) * n);
      };
      const DeltaRuleData step{part(d.query, 24), part(d.key, 24), part(d.value, 70),
                               part(d.decay, 1),  part(d.beta, 1), state};
      const auto out = run_delta_rule(one, step, pool);
      result.insert(result.end(), out.begin(), out.begin() + 70);
      state.assign(out.begin() + 70, out.end());
    }
    result.insert(result.end(), state.begin(), state.end());
    EXPECT_EQ(result, expected);
  });
}

TEST(DeltaRuleTest, TheStateMayBeUpdatedInPlace) {
  ThreadPool pool(2);
  for (const DeltaRuleShape& s : kDeltaRuleCases) {
    const DeltaRuleData d = delta_rule_data(s);
    on_every_target([&] {
      std::vector<float> result(d.value.size() + d.state.size());
      float* const state = result.data() + d.value.size();
      std::copy(d.state.begin(), d.state.end(), state);
      gated_delta_rule_f32(s, d.query.data(), d.key.data(), d.value.data(), d.decay.data(),
                           d.beta.data(), state, result.data(), state, pool);
      EXPECT_EQ(result, run_delta_rule(s, d, pool));
    });
  }
}

}  // namespace
}  // namespace ferry::kernels::compute_attention_test
