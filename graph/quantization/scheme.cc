#include "graph/quantization/scheme.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/dtype.h"
#include "graph/quantization/groups.h"

namespace ferry::graph {
namespace {

constexpr float kHqqTolerance = 1e-5f;
// XNNPACK requires groups of 4-bit weights to be a multiple of this.
constexpr int64_t kDelegatedGroup = 32;
// The scales and codes of this many values are computed together, so that the values stay in the
// cache.
constexpr size_t kBlockValues = 16384;
// A multiple of the number of groups that the kernels take at a time.
constexpr size_t kLeastGroups = 16;

size_t group_size(const QuantizationScheme& scheme, int64_t columns) {
  return static_cast<size_t>(scheme.group == 0 ? columns : scheme.group);
}

size_t groups_in_block(size_t group) {
  return std::max(kLeastGroups, kBlockValues / group / kLeastGroups * kLeastGroups);
}

// Copies the groups and replaces values that are not finite by 0.
Groups finite(const Groups& groups, std::vector<float>& copy) {
  const std::span values(groups.values, groups.size * groups.count);
  copy.assign(values.begin(), values.end());
  for (float& v : copy) v = std::isfinite(v) ? v : 0.0f;
  return {copy.data(), groups.size, groups.count};
}
uint64_t non_finite_in(const Groups& groups) {
  if (all_finite(groups.values, groups.size * groups.count)) return 0;
  const std::span values(groups.values, groups.size * groups.count);
  return count_non_finite(DType::kF32, std::as_bytes(values));
}

void choose_scales(const QuantizationScheme& scheme, const Groups& groups, float* scales) {
  if (scheme.method == ScaleMethod::kHqq) {
    hqq_scales({scheme.bits, scheme.rounds}, groups, scales);
  } else {
    search_scales(scheme.bits, scheme.scale_dtype, groups, scales);
  }
}

}  // namespace

std::string QuantizationScheme::misfit(int64_t columns) const {
  if (bits != 4 && bits != 8) return fmt::format("codes of {} bits", bits);
  if (scale_dtype != DType::kF32 && scale_dtype != DType::kBF16) {
    return fmt::format("scales in {}", dtype_name(scale_dtype));
  }
  const int64_t size = group == 0 ? columns : group;
  if (size < 0 || columns % size != 0) {
    return fmt::format("groups of {}, which do not divide rows of {} elements", size, columns);
  }
  if (bits == 8) return {};
  if (columns % 2 != 0) return fmt::format("4-bit rows of {} elements, which is odd", columns);
  const bool delegated =
      order == NibbleOrder::kLowFirst && (group != 0 || scale_dtype == DType::kBF16);
  if (!delegated || size % kDelegatedGroup == 0) return {};
  return fmt::format("groups of {}, which are not a multiple of {}", size, kDelegatedGroup);
}

uint64_t quantize_rows(const QuantizationScheme& scheme, std::span<const float> values,
                       int64_t columns, std::span<std::byte> codes, std::span<std::byte> scales) {
  const size_t size = group_size(scheme, columns), count = values.size() / size;
  const size_t block = groups_in_block(size);
  const size_t code_bits = size * static_cast<size_t>(scheme.bits);
  const auto scale_bytes = static_cast<size_t>(dtype_bytes(scheme.scale_dtype));
  std::vector<float> copy, chosen(std::min(block, count));
  uint64_t non_finite = 0;
  for (size_t g = 0; g < count; g += block) {
    Groups groups{values.data() + g * size, size, std::min(block, count - g)};
    if (const uint64_t found = non_finite_in(groups); found > 0) {
      non_finite += found;
      groups = finite(groups, copy);
    }
    choose_scales(scheme, groups, chosen.data());
    from_f32(scheme.scale_dtype, chosen.data(), scales.data() + g * scale_bytes, groups.count);
    encode_groups(scheme.bits, scheme.order, groups, chosen.data(),
                  codes.data() + g * code_bits / 8);
  }
  return non_finite;
}

void store_codes(const QuantizationScheme& scheme, std::span<const int8_t> codes,
                 std::span<const float> scales, std::span<std::byte> stored_codes,
                 std::span<std::byte> stored_scales) {
  from_f32(scheme.scale_dtype, scales.data(), stored_scales.data(), scales.size());
  if (scheme.bits == 8) {
    std::ranges::copy(std::as_bytes(codes), stored_codes.begin());
    return;
  }
  const bool low_first = scheme.order == NibbleOrder::kLowFirst;
  for (size_t i = 0; i < codes.size(); i += 2) {
    const auto first = static_cast<unsigned>(codes[i] + 8);
    const auto second = static_cast<unsigned>(codes[i + 1] + 8);
    const unsigned pair = low_first ? first | second << 4 : first << 4 | second;
    stored_codes[i / 2] = static_cast<std::byte>(pair);
  }
}

void dequantize_rows(const QuantizationScheme& scheme, std::span<const std::byte> codes,
                     std::span<const std::byte> scales, int64_t columns, std::span<float> values) {
  const size_t size = group_size(scheme, columns), count = values.size() / size;
  std::vector<float> decoded(count);
  to_f32(scheme.scale_dtype, scales.data(), decoded.data(), count);
  decode_groups(scheme.bits, scheme.order, codes.data(), decoded.data(), size, count,
                values.data());
}

void add_hqq_changes(const QuantizationScheme& scheme, std::span<const float> values,
                     int64_t columns, std::span<float, kMaxHqqRounds> changes) {
  const size_t size = group_size(scheme, columns), count = values.size() / size;
  const size_t block = groups_in_block(size);
  std::vector<float> copy, unused(std::min(block, count));
  for (size_t g = 0; g < count; g += block) {
    Groups groups{values.data() + g * size, size, std::min(block, count - g)};
    if (non_finite_in(groups) > 0) groups = finite(groups, copy);
    hqq_scales({scheme.bits, kMaxHqqRounds, changes.data()}, groups, unused.data());
  }
}

int hqq_rounds(std::span<const float, kMaxHqqRounds> changes) {
  for (int i = 0; i < kMaxHqqRounds; ++i) {
    if (changes[static_cast<size_t>(i)] < kHqqTolerance) return i + 1;
  }
  return kMaxHqqRounds;
}

}  // namespace ferry::graph
