#include "graph/quantization/scheme.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "graph/quantization/cascade_sum.h"

namespace ferry::graph {
namespace {

constexpr float kHqqSmallest = 0x1p-23f;  // torch.finfo(torch.float32).eps
constexpr float kHqqTolerance = 1e-5f;
constexpr float kSmallestNormal = 0x1p-126f;

float lowest(const QuantizationScheme& scheme) { return scheme.bits == 4 ? -8.0f : -128.0f; }
float highest(const QuantizationScheme& scheme) { return scheme.bits == 4 ? 7.0f : 127.0f; }

// A value that is not finite counts as 0.
float finite(float value) { return std::isfinite(value) ? value : 0.0f; }

float magnitude(std::span<const float> group) {
  float most = 0;
  for (const float w : group) most = std::max(most, std::fabs(finite(w)));
  return most;
}

float code(const QuantizationScheme& scheme, float w, float scale) {
  return std::clamp(std::nearbyint(finite(w) / scale), lowest(scheme), highest(scheme));
}

float stored(const QuantizationScheme& scheme, float scale) {
  if (scheme.scale_dtype == DType::kBF16) scale = bf16_to_f32(f32_to_bf16(scale));
  return std::max(scale, kSmallestNormal);
}

// ---- half-quadratic, scale only

struct Hqq {
  const QuantizationScheme& scheme;
  std::span<const float> group;
  float scale = 0;

  void start() { scale = std::max(magnitude(group) / -lowest(scheme), kHqqSmallest); }

  // The relative change of the scale.
  float round() {
    std::vector<float> wq(group.size()), qq(group.size());
    for (size_t i = 0; i < group.size(); ++i) {
      const float q = code(scheme, group[i], scale);
      wq[i] = finite(group[i]) * q;
      qq[i] = q * q;
    }
    const float square = cascade_sum(qq);
    float next = square > 0 ? cascade_sum(wq) / square : scale;
    next = std::max(next, kHqqSmallest);
    const float change = std::fabs(next - scale) / scale;
    scale = next;
    return change;
  }
};

float hqq_scale(const QuantizationScheme& scheme, std::span<const float> group) {
  Hqq hqq{scheme, group};
  hqq.start();
  for (int i = 0; i < scheme.rounds && hqq.round() != 0; ++i) {
  }
  return hqq.scale;
}

// ---- the least squared error

float squared_error(const QuantizationScheme& scheme, std::span<const float> group, float scale) {
  float sum = 0;
  for (const float w : group) {
    const float e = finite(w) - code(scheme, w, scale) * scale;
    sum += e * e;
  }
  return sum;
}

float searched_scale(const QuantizationScheme& scheme, std::span<const float> group) {
  const float most = magnitude(group);
  if (most == 0) return 1.0f;
  float best = 0, least = INFINITY;
  for (int i = 0; i < 12; ++i) {
    const float steps = -lowest(scheme) * (1.0f + 0.025f * static_cast<float>(i - 6));
    const float scale = stored(scheme, most / steps);
    const float error = squared_error(scheme, group, scale);
    if (error < least) least = error, best = scale;
  }
  return best == 0 ? stored(scheme, most / -lowest(scheme)) : best;
}

void store_scale(const QuantizationScheme& scheme, float scale, std::byte* out) {
  if (scheme.scale_dtype == DType::kBF16) {
    const uint16_t bits = f32_to_bf16(scale);
    std::memcpy(out, &bits, sizeof(bits));
  } else {
    std::memcpy(out, &scale, sizeof(scale));
  }
}

float load_scale(const QuantizationScheme& scheme, const std::byte* stored_scale) {
  float scale = 0;
  to_f32(scheme.scale_dtype, stored_scale, &scale, 1);
  return scale;
}

void store_code(const QuantizationScheme& scheme, float q, size_t index, std::byte* codes) {
  const int value = static_cast<int>(q);
  if (scheme.bits == 8) {
    codes[index] = static_cast<std::byte>(value);
    return;
  }
  const bool high = (index % 2 == 0) == (scheme.order == NibbleOrder::kHighFirst);
  const auto nibble = static_cast<std::byte>(value + 8);
  std::byte& both = codes[index / 2];
  both = index % 2 == 0 ? std::byte{0} : both;
  both |= high ? nibble << 4 : nibble;
}

int load_code(const QuantizationScheme& scheme, const std::byte* codes, size_t index) {
  if (scheme.bits == 8) return static_cast<int8_t>(codes[index]);
  const bool high = (index % 2 == 0) == (scheme.order == NibbleOrder::kHighFirst);
  const int both = std::to_integer<int>(codes[index / 2]);
  return (high ? both >> 4 : both & 15) - 8;
}

size_t group_size(const QuantizationScheme& scheme, int64_t columns) {
  return static_cast<size_t>(scheme.group == 0 ? columns : scheme.group);
}

}  // namespace

void quantize_rows(const QuantizationScheme& scheme, std::span<const float> values, int64_t columns,
                   std::span<std::byte> codes, std::span<std::byte> scales) {
  const size_t size = group_size(scheme, columns);
  const auto scale_bytes = static_cast<size_t>(dtype_bytes(scheme.scale_dtype));
  for (size_t g = 0; g * size < values.size(); ++g) {
    const auto group = values.subspan(g * size, size);
    const bool hqq = scheme.method == ScaleMethod::kHqq;
    const float scale = hqq ? hqq_scale(scheme, group) : searched_scale(scheme, group);
    store_scale(scheme, scale, scales.data() + g * scale_bytes);
    for (size_t i = 0; i < size; ++i) {
      store_code(scheme, code(scheme, group[i], scale), g * size + i, codes.data());
    }
  }
}

void dequantize_rows(const QuantizationScheme& scheme, std::span<const std::byte> codes,
                     std::span<const std::byte> scales, int64_t columns, std::span<float> values) {
  const size_t size = group_size(scheme, columns);
  const auto scale_bytes = static_cast<size_t>(dtype_bytes(scheme.scale_dtype));
  for (size_t g = 0; g * size < values.size(); ++g) {
    const float scale = load_scale(scheme, scales.data() + g * scale_bytes);
    for (size_t i = g * size; i < (g + 1) * size; ++i) {
      values[i] = static_cast<float>(load_code(scheme, codes.data(), i)) * scale;
    }
  }
}

void add_hqq_changes(const QuantizationScheme& scheme, std::span<const float> values,
                     int64_t columns, std::span<float, kMaxHqqRounds> changes) {
  const size_t size = group_size(scheme, columns);
  for (size_t g = 0; g * size < values.size(); ++g) {
    Hqq hqq{scheme, values.subspan(g * size, size)};
    hqq.start();
    for (float& change : changes) {
      const float now = hqq.round();
      if (now == 0) break;  // and so in every later round
      change = std::max(change, now);
    }
  }
}

int hqq_rounds(std::span<const float, kMaxHqqRounds> changes) {
  for (int i = 0; i < kMaxHqqRounds; ++i) {
    if (changes[static_cast<size_t>(i)] < kHqqTolerance) return i + 1;
  }
  return kMaxHqqRounds;
}

}  // namespace ferry::graph
