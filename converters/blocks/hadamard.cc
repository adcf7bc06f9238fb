#include "converters/blocks/hadamard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "converters/blocks/axes.h"

namespace ferry::converters {
namespace {

// Element (i, j) is negative where i and j have an odd number of ones in common.
graph::Literal hadamard_matrix(int64_t size) {
  const auto rows = static_cast<uint64_t>(size);
  const auto entry = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
  const auto fill = [rows, entry](uint64_t offset, std::span<std::byte> out) {
    while (!out.empty()) {
      const uint64_t element = offset / sizeof(float);
      const bool odd = std::popcount(element / rows & element % rows) % 2 != 0;
      const auto value = std::bit_cast<std::array<std::byte, sizeof(float)>>(odd ? -entry : entry);
      // A tile may begin and end inside a number.
      const uint64_t skipped = offset % sizeof(float);
      const size_t count = std::min<size_t>(sizeof(float) - skipped, out.size());
      std::ranges::copy(std::span(value).subspan(skipped, count), out.begin());
      out = out.subspan(count);
      offset += count;
    }
  };
  return {.key = fmt::format("hadamard:{}", size), .bytes = rows * rows * 4, .fill = fill};
}

}  // namespace

ValueId hadamard_rotation(GraphBuilder& b, ValueId x) {
  const Dim dim = b.graph()[x].shape.back();
  const ValueId matrix = b.literal(DType::kF32, {dim, dim}, hadamard_matrix(dim.base));
  return b.linear(x, matrix);
}

}  // namespace ferry::converters
