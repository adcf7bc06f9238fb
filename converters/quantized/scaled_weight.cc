#include "converters/quantized/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/text.h"

namespace ferry::converters {
namespace {

// Reads elements of i8 or of a float type.
Status read_elements(const TensorSource& source, size_t entry, uint64_t first,
                     std::span<float> out) {
  if (source.entries()[entry].dtype != DType::kI8) return read_floats(source, entry, first, out);
  std::vector<int8_t> stored(out.size());
  FERRY_RETURN_IF_ERROR(source.read(entry, first, std::as_writable_bytes(std::span(stored))));
  std::ranges::copy(stored, out.begin());
  return {};
}

class ScaledDerivation final : public FloatDerivation {
 public:
  explicit ScaledDerivation(const ScaledWeight& weight) : w_(weight) {}

  Status values(const TensorSource& source, int64_t first, std::span<float> out) const override {
    const int64_t count = static_cast<int64_t>(out.size()) / w_.columns;
    const int64_t across = (w_.columns + w_.block.columns - 1) / w_.block.columns;
    const int64_t begin = first / w_.block.rows;
    const int64_t end = (first + count + w_.block.rows - 1) / w_.block.rows;
    std::vector<float> scales(static_cast<size_t>((end - begin) * across)), zeros(scales.size());
    const auto at = static_cast<uint64_t>(begin * across);
    FERRY_RETURN_IF_ERROR(read_floats(source, w_.scales, at, scales));
    if (w_.zeros) FERRY_RETURN_IF_ERROR(read_elements(source, *w_.zeros, at, zeros));
    FERRY_RETURN_IF_ERROR(
        read_elements(source, w_.weight, static_cast<uint64_t>(first * w_.columns), out));
    for (int64_t r = 0; r < count; ++r) {
      const auto line = static_cast<size_t>(((first + r) / w_.block.rows - begin) * across);
      for (int64_t b = 0; b < across; ++b) {
        const size_t block = line + static_cast<size_t>(b);
        const int64_t from = b * w_.block.columns;
        const int64_t size = std::min(w_.block.columns, w_.columns - from);
        const auto part =
            out.subspan(static_cast<size_t>(r * w_.columns + from), static_cast<size_t>(size));
        for (float& value : part) value = (value - zeros[block]) * scales[block];
      }
    }
    return {};
  }

  Result<std::optional<StoredCodes>> codes(const TensorSource& source) const override {
    const bool fits = source.entries()[w_.weight].dtype == DType::kI8 && !w_.zeros &&
                      w_.block.rows == 1 && w_.columns % w_.block.columns == 0;
    return fits ? std::optional(StoredCodes{w_.bits, w_.block.columns}) : std::nullopt;
  }

  Status read_codes(const TensorSource& source, int64_t first, std::span<int8_t> codes,
                    std::span<float> scales) const override {
    const int64_t across = w_.columns / w_.block.columns;
    FERRY_RETURN_IF_ERROR(
        read_floats(source, w_.scales, static_cast<uint64_t>(first * across), scales));
    FERRY_RETURN_IF_ERROR(source.read(w_.weight, static_cast<uint64_t>(first * w_.columns),
                                      std::as_writable_bytes(codes)));
    return check_range(source, codes);
  }

 private:
  Status check_range(const TensorSource& source, std::span<const int8_t> codes) const {
    if (w_.bits == 8) return {};
    const int limit = 1 << (w_.bits - 1);
    const auto wrong =
        std::ranges::find_if(codes, [&](int8_t code) { return code < -limit || code >= limit; });
    if (wrong == codes.end()) return {};
    return bad_input(fmt::format("{}: the code {} does not have {} bits",
                                 quoted(source.entries()[w_.weight].name), int{*wrong}, w_.bits));
  }

  ScaledWeight w_;
};

}  // namespace

std::unique_ptr<Derivation> decode_scaled(const ScaledWeight& weight) {
  return std::make_unique<ScaledDerivation>(weight);
}

}  // namespace ferry::converters
