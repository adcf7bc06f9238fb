// Codes and scales: equal to those of the official exporter to the bit, and general properties.

#include "graph/quantization/scheme.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/highway_targets.h"
#include "graph/quantization/block_encoder.h"
#include "graph/quantization/candidates.h"
#include "graph/quantization/groups.h"
// This must be included after the choice of targets.
#include "hwy/targets.h"

namespace ferry::graph::scheme_test {
namespace {

std::vector<std::byte> bytes_of(const std::string& name) {
  std::ifstream file(FERRY_TESTDATA "/xnnpack_weights/" + name, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(chars.size());
  if (!chars.empty()) std::memcpy(bytes.data(), chars.data(), chars.size());
  EXPECT_FALSE(bytes.empty()) << name;
  return bytes;
}

std::vector<float> floats_of(const std::string& name) {
  const std::vector<std::byte> bytes = bytes_of(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  to_f32(DType::kF32, bytes.data(), values.data(), values.size());
  return values;
}

struct Quantized {
  std::vector<std::byte> codes, scales;
};

Quantized quantize(const QuantizationScheme& scheme, std::span<const float> values,
                   int64_t columns) {
  const size_t rows = values.size() / static_cast<size_t>(columns);
  Quantized q{std::vector<std::byte>(rows * scheme.code_bytes(columns)),
              std::vector<std::byte>(rows * scheme.scale_bytes(columns))};
  quantize_rows(scheme, values, columns, q.codes, q.scales);
  return q;
}

// ---- official codes and scales

struct Official {
  const char *weight, *form;
  QuantizationScheme scheme;
  int rounds;
};

const Official kOfficial[] = {
    {"wk", "qbint4_g32", {.bits = 4, .group = 32, .scale_dtype = DType::kBF16}, 8},
    {"linear", "qbint4_g64", {.bits = 4, .group = 64, .scale_dtype = DType::kBF16}, 12},
    {"linear", "qcint8", {.bits = 8}, 15},
    {"tok_embeddings",
     "embedding_4bit_g32",
     {.bits = 4, .group = 32, .order = NibbleOrder::kHighFirst},
     9},
    {"tok_embeddings", "embedding_byte", {.bits = 8}, 10},
};

// Returns the number of HQQ rounds. The changes are added in two parts, as for a tensor that does
// not fit into memory.
int rounds_of(const QuantizationScheme& scheme, std::span<const float> values, int64_t columns) {
  std::array<float, kMaxHqqRounds> changes{};
  const size_t first = 3 * static_cast<size_t>(columns);
  add_hqq_changes(scheme, values.first(first), columns, changes);
  add_hqq_changes(scheme, values.subspan(first), columns, changes);
  return hqq_rounds(changes);
}

TEST(Quantization, HqqGivesTheCodesAndScalesOfTheOfficialExporter) {
  for (const Official& official : kOfficial) {
    SCOPED_TRACE(official.form);
    const std::vector<float> values = floats_of(official.weight + std::string(".f32"));
    QuantizationScheme scheme = official.scheme;
    scheme.method = ScaleMethod::kHqq;
    scheme.rounds = rounds_of(scheme, values, 64);
    EXPECT_EQ(scheme.rounds, official.rounds);
    const Quantized q = quantize(scheme, values, 64);
    const std::string stem = official.weight + std::string(".") + official.form;
    EXPECT_EQ(q.codes, bytes_of(stem + ".codes"));
    EXPECT_EQ(q.scales, bytes_of(stem + ".scales"));
  }
}

// The sums are those of torch 1.13 (CPU) of ((i * 2654435761 mod 2^32) >> 8) / 2^24.
TEST(Quantization, SumsHaveTheOrderOfTorch) {
  const std::pair<size_t, uint32_t> kSums[] = {
      {8, 0x40538453},     {20, 0x4116d2c4},      {31, 0x41762c3f},   {32, 0x4178b7bc},
      {63, 0x41f829b9},    {100, 0x424512ac},     {512, 0x437fbbe8},  {513, 0x4380156e},
      {768, 0x43bfa832},   {1000, 0x43f9fcf9},    {3072, 0x44bffd9e}, {4096, 0x450001cb},
      {70000, 0x4708b766}, {1 << 20, 0x48ffffe6},
  };
  for (const auto& [count, sum] : kSums) {
    std::vector<float> values(count * 3);
    for (size_t i = 0; i < count; ++i) {
      values[i] = values[count + i] = values[2 * count + i] =
          static_cast<float>((i * 2654435761u & 0xffffffffu) >> 8) * 0x1p-24f;
    }
    std::array<float, 3> sums;
    torch_sums({values.data(), count, sums.size()}, sums.data());
    for (const float s : sums) EXPECT_EQ(std::bit_cast<uint32_t>(s), sum) << count;
  }
}

// ---- the test vectors of the format documents: one group of 32

std::vector<float> vector_group() {
  std::vector<float> w(32);
  for (int i = 0; i < 32; ++i) {
    w[static_cast<size_t>(i)] = (static_cast<float>(37 * i % 32) - 15.5f) / 32.0f *
                                (1.0f + static_cast<float>(i % 5) / 8.0f);
  }
  return w;
}

std::vector<std::byte> hex(std::string_view text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 3) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

const char* const kLowFirstCodes = "43 86 ba 3d 75 b9 2d 73 a8 fd 64 a7 cc 53 96 ca";
const char* const kHighFirstCodes = "34 68 ab d3 57 9b d2 37 8a df 46 7a cc 35 69 ac";

TEST(Quantization, HqqOfOneGroup) {
  QuantizationScheme scheme{.bits = 4, .group = 32, .scale_dtype = DType::kBF16};
  scheme.method = ScaleMethod::kHqq;
  std::array<float, kMaxHqqRounds> changes{};
  add_hqq_changes(scheme, vector_group(), 32, changes);
  scheme.rounds = hqq_rounds(changes);
  EXPECT_EQ(scheme.rounds, 6);
  EXPECT_EQ(quantize(scheme, vector_group(), 32).scales, hex("c9 3d"));
  EXPECT_EQ(quantize(scheme, vector_group(), 32).codes, hex(kLowFirstCodes));
  scheme.scale_dtype = DType::kF32;
  scheme.order = NibbleOrder::kHighFirst;
  EXPECT_EQ(quantize(scheme, vector_group(), 32).scales, hex("fd 4c c9 3d"));
  EXPECT_EQ(quantize(scheme, vector_group(), 32).codes, hex(kHighFirstCodes));
}

TEST(Quantization, StoredBlocksAreSplitAsTheyAre) {
  const auto q8 =
      hex("dc 1d ab bf da fc 25 34 59 ab c8 ec 0e 2e 55 93 b2 e7 03 26 4f 7f c1 d8 f6 1a 46 4a ad "
          "c6 e6 "
          "0c 24 47");
  std::vector<std::byte> codes(32), scales(4);
  split_q8_0(q8, codes, scales);
  EXPECT_EQ(codes, std::vector(q8.begin() + 2, q8.end()));
  EXPECT_EQ(scales, hex("00 80 bb 3b"));  // 0x1ddc
}

// ---- random values against plain loops

std::vector<float> random_values(size_t n, uint32_t seed, float deviation = 0.02f) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> value(0, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = value(bits);
  return values;
}

int32_t fixed_point_product(int32_t a, int32_t b) { return (a * b + 0x4000) >> 15; }

float twin_search(const QuantizationScheme& scheme, std::span<const float> group) {
  const Candidates& set = candidates(scheme.bits, group.size());
  float most = 0, best_xq = 0, best_qq = 1;
  for (const float w : group) most = std::max(most, std::fabs(w));
  if (most == 0) return 0x1p-23f;
  for (const Steps& steps : set.steps) {
    for (const int16_t multiplier : steps.multipliers) {
      float xq = 0, qq = 0;
      for (size_t first = 0; first < group.size(); first += set.tile) {
        int32_t tile_xq = 0, tile_qq = 0;
        for (const float w : group.subspan(first, std::min(set.tile, group.size() - first))) {
          const auto x = static_cast<int32_t>(std::nearbyint(w * (32767.0f / most)));
          const int32_t part = fixed_point_product(x, steps.fraction);
          const int32_t q =
              std::clamp<int32_t>(fixed_point_product(part, multiplier), set.low, set.high);
          tile_xq += x * q;
          tile_qq += q * q;
        }
        xq += static_cast<float>(tile_xq);
        qq += static_cast<float>(tile_qq);
      }
      if (xq * xq * best_qq > best_xq * best_xq * qq) best_xq = xq, best_qq = qq;
    }
  }
  const float scale = best_xq / best_qq * (most / 32767.0f);
  return scheme.scale_dtype == DType::kBF16 ? bf16_to_f32(f32_to_bf16(scale)) : scale;
}

float twin_hqq(const QuantizationScheme& scheme, std::span<const float> group) {
  const float high = scheme.bits == 4 ? 7.0f : 127.0f;
  float scale = 0;
  for (const float w : group) scale = std::max(scale, std::fabs(w) / (high + 1));
  scale = std::max(scale, 0x1p-23f);
  for (int round = 0; round < scheme.rounds; ++round) {
    std::vector<float> wq, qq;
    for (const float w : group) {
      const float q = std::clamp(std::nearbyint(w / scale), -high - 1, high);
      wq.push_back(w * q);
      qq.push_back(q * q);
    }
    float a = 0, b = 0;
    torch_sums({wq.data(), wq.size(), 1}, &a);
    torch_sums({qq.data(), qq.size(), 1}, &b);
    if (b > 0) scale = std::max(a / b, 0x1p-23f);
  }
  return scale;
}

Quantized twin(const QuantizationScheme& scheme, std::span<const float> values, int64_t columns) {
  const auto size = static_cast<size_t>(scheme.group == 0 ? columns : scheme.group);
  Quantized q;
  std::vector<uint8_t> codes;
  for (size_t first = 0; first < values.size(); first += size) {
    const auto group = values.subspan(first, size);
    const bool hqq = scheme.method == ScaleMethod::kHqq;
    const float scale = hqq ? twin_hqq(scheme, group) : twin_search(scheme, group);
    const size_t at = q.scales.size();
    q.scales.resize(at + static_cast<size_t>(dtype_bytes(scheme.scale_dtype)));
    from_f32(scheme.scale_dtype, &scale, q.scales.data() + at, 1);
    for (const float w : group) {
      const float high = scheme.bits == 4 ? 7.0f : 127.0f;
      const float code = std::clamp(std::nearbyint(w / scale), -high - 1, high);
      codes.push_back(static_cast<uint8_t>(static_cast<int>(code) + (scheme.bits == 4 ? 8 : 0)));
    }
  }
  for (size_t i = 0; i < codes.size(); i += 2) {
    const bool low_first = scheme.order == NibbleOrder::kLowFirst;
    const uint8_t low = low_first ? codes[i] : codes[i + 1];
    const uint8_t high = low_first ? codes[i + 1] : codes[i];
    if (scheme.bits == 4) q.codes.push_back(static_cast<std::byte>(low | high << 4));
  }
  if (scheme.bits == 8) {
    for (const uint8_t code : codes) q.codes.push_back(static_cast<std::byte>(code));
  }
  return q;
}

// Calls body once for each compiled instruction set that this machine supports.
template <class Body>
void on_every_target(const Body& body) {
  const int64_t compiled = HWY_SCALAR | HWY_AVX2 | HWY_AVX3 | HWY_NEON;
  for (int64_t left = (hwy::SupportedTargets() & compiled) | HWY_SCALAR; left; left &= left - 1) {
    const int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    // SetSupportedTargetsForTest() has no effect here: cmake/quick_start replaces Highway's
    // library.
    hwy::GetChosenTarget().Update(target);
    body();
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

struct Case {
  QuantizationScheme scheme;
  int64_t rows, columns;
};

// The group sizes and numbers of groups are no multiples of vector lengths. Sums have several tiles
// and levels.
const Case kCases[] = {
    {{.bits = 4, .group = 32, .scale_dtype = DType::kBF16}, 5, 96},
    {{.bits = 4, .group = 32, .order = NibbleOrder::kHighFirst}, 3, 64},
    {{.bits = 4, .group = 9, .order = NibbleOrder::kHighFirst}, 3, 18},
    {{.bits = 4, .group = 14, .scale_dtype = DType::kBF16}, 9, 42},
    {{.bits = 4, .group = 128, .scale_dtype = DType::kBF16}, 2, 1280},
    {{.bits = 4, .group = 0}, 3, 9002},
    {{.bits = 8, .group = 0}, 11, 1000},
    {{.bits = 8, .group = 0}, 1, 33},
    {{.bits = 8, .group = 8}, 7, 24},
};

TEST(Quantization, EveryProcessorGivesTheBytesOfTheNaiveTwin) {
  for (const Case& c : kCases) {
    for (const ScaleMethod method : {ScaleMethod::kBf16First, ScaleMethod::kHqq}) {
      QuantizationScheme scheme = c.scheme;
      scheme.method = method;
      scheme.rounds = 4;
      std::vector<float> values = random_values(static_cast<size_t>(c.rows * c.columns), 3);
      std::fill_n(values.begin(), c.columns, 0.0f);
      const Quantized expected = twin(scheme, values, c.columns);
      on_every_target([&] {
        const Quantized q = quantize(scheme, values, c.columns);
        EXPECT_EQ(q.codes, expected.codes) << c.columns;
        EXPECT_EQ(q.scales, expected.scales) << c.columns;
      });
    }
  }
}

TEST(Quantization, RowsDoNotDependOnEachOther) {
  for (const Case& c : kCases) {
    const auto columns = static_cast<size_t>(c.columns);
    const std::vector<float> values = random_values(static_cast<size_t>(c.rows) * columns, 5);
    const Quantized all = quantize(c.scheme, values, c.columns);
    Quantized parts;
    for (size_t row = 0; row < static_cast<size_t>(c.rows); ++row) {
      const Quantized one =
          quantize(c.scheme, std::span(values).subspan(row * columns, columns), c.columns);
      parts.codes.insert(parts.codes.end(), one.codes.begin(), one.codes.end());
      parts.scales.insert(parts.scales.end(), one.scales.begin(), one.scales.end());
    }
    EXPECT_EQ(parts.codes, all.codes);
    EXPECT_EQ(parts.scales, all.scales);
  }
}

// ---- properties

std::vector<float> scales_of(const QuantizationScheme& scheme, const Quantized& q) {
  std::vector<float> scales(q.scales.size() / static_cast<size_t>(dtype_bytes(scheme.scale_dtype)));
  to_f32(scheme.scale_dtype, q.scales.data(), scales.data(), scales.size());
  return scales;
}

TEST(Quantization, ScalesArePositiveAndNormalWhateverTheWeights) {
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float extreme : {0.0f, -0.0f, 1e-45f, 1e-38f, 7e-31f, 9e-31f, 1e-20f, 3e38f, kMax,
                              -kMax, kInf, -kInf, kNan}) {
    std::vector<float> values(64, 0.0f);
    values[5] = extreme;
    values[40] = extreme / 3;
    for (const Case& c : kCases) {
      for (const ScaleMethod method : {ScaleMethod::kBf16First, ScaleMethod::kHqq}) {
        QuantizationScheme scheme = c.scheme;
        scheme.group = 32;
        scheme.method = method;
        on_every_target([&] {
          for (const float s : scales_of(scheme, quantize(scheme, values, 64))) {
            EXPECT_TRUE(s > 0 && std::isnormal(s)) << extreme << " gives " << s;
          }
        });
      }
    }
  }
}

TEST(Quantization, AValueThatIsNotFiniteCountsAsZero) {
  for (const Case& c : kCases) {
    std::vector<float> values = random_values(static_cast<size_t>(c.rows * c.columns), 8);
    values[3] = 0;
    const Quantized expected = quantize(c.scheme, values, c.columns);
    for (const float odd : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
      values[3] = odd;
      EXPECT_EQ(quantize(c.scheme, values, c.columns).codes, expected.codes);
      EXPECT_EQ(quantize(c.scheme, values, c.columns).scales, expected.scales);
    }
  }
}

double squared_error(const QuantizationScheme& scheme, std::span<const float> values,
                     int64_t columns) {
  const Quantized q = quantize(scheme, values, columns);
  std::vector<float> decoded(values.size());
  dequantize_rows(scheme, q.codes, q.scales, columns, decoded);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double off = static_cast<double>(values[i]) - static_cast<double>(decoded[i]);
    sum += off * off;
  }
  return sum;
}

// Returns the error if the value with the largest magnitude over 7.5 (or 127.5) is the scale,
// rounded to its type.
double affine_error(const QuantizationScheme& scheme, std::span<const float> values,
                    int64_t columns) {
  const auto size = static_cast<size_t>(scheme.group == 0 ? columns : scheme.group);
  const float high = scheme.bits == 4 ? 7.0f : 127.0f;
  double error = 0;
  for (size_t first = 0; first < values.size(); first += size) {
    float most = 0;
    for (const float w : values.subspan(first, size)) most = std::max(most, std::fabs(w));
    float scale = most / (high + 0.5f);
    if (scheme.scale_dtype == DType::kBF16) scale = bf16_to_f32(f32_to_bf16(scale));
    for (const float w : values.subspan(first, size)) {
      const double off = w - scale * std::clamp(std::nearbyint(w / scale), -high - 1, high);
      error += off * off;
    }
  }
  return error;
}

TEST(Quantization, TheSearchHasLessErrorThanHqqAndAffineScales) {
  for (const Case& c : kCases) {
    const std::vector<float> values =
        random_values(60 * static_cast<size_t>(c.columns), static_cast<uint32_t>(c.columns));
    const double searched = squared_error(c.scheme, values, c.columns);
    QuantizationScheme hqq = c.scheme;
    hqq.method = ScaleMethod::kHqq;
    EXPECT_LT(searched, affine_error(c.scheme, values, c.columns) * 0.97) << c.columns;
    EXPECT_LT(searched, squared_error(hqq, values, c.columns)) << c.columns;
  }
}

// Whole numbers are exact with a scale of 1. Groups of 7 begin inside of bytes.
TEST(Quantization, DecodesWhatWasEncoded) {
  std::mt19937 bits(4);
  for (const NibbleOrder order : {NibbleOrder::kLowFirst, NibbleOrder::kHighFirst}) {
    for (const int64_t group : {7, 14, 32}) {
      const QuantizationScheme scheme{.bits = 4, .group = group, .order = order};
      std::vector<float> values(static_cast<size_t>(6 * group)), scales(6, 1.0f), decoded(values);
      for (float& v : values) v = static_cast<float>(bits() % 16) - 8;
      std::vector<std::byte> codes(values.size() / 2);
      on_every_target([&] {
        const Groups groups{values.data(), static_cast<size_t>(group), 6};
        encode_groups(4, order, groups, scales.data(), codes.data());
        dequantize_rows(scheme, codes, std::as_bytes(std::span(scales)), 2 * group, decoded);
        EXPECT_EQ(decoded, values) << group;
      });
    }
  }
}

}  // namespace
}  // namespace ferry::graph::scheme_test
