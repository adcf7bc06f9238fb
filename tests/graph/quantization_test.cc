// Codes and scales: those of the official exporter to the bit, and properties that hold for all.

#include "graph/quantization/scheme.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "graph/quantization/groups.h"

namespace ferry::graph {
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

// Adds the changes in two parts, as a tensor that does not fit into memory is read.
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

// The sums of torch 1.13 (CPU) of ((i * 2654435761 mod 2^32) >> 8) / 2^24.
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

}  // namespace
}  // namespace ferry::graph
