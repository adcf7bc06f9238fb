#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <vector>

#include "converters/quantized/weights.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr int64_t kRowsOfByte = 4;
constexpr float kLeastMean = 1e-5F;
constexpr int64_t kRowsAtOnce = 64;

class TernaryDerivation final : public FloatDerivation {
 public:
  explicit TernaryDerivation(const TernaryWeight& weight) : w_(weight) {}

  Status values(const TensorSource& source, int64_t first, std::span<float> out) const override {
    if (!w_.scale) return rounded(source, first, out);
    float scale = 1.0F;
    FERRY_RETURN_IF_ERROR(read_floats(source, *w_.scale, 0, {&scale, 1}));
    if (source.entries()[w_.weight].dtype == DType::kU8) {
      FERRY_RETURN_IF_ERROR(unpacked(source, first, out));
    } else {
      const auto at = static_cast<uint64_t>(first * w_.columns);
      FERRY_RETURN_IF_ERROR(read_floats(source, w_.weight, at, out));
    }
    for (float& value : out) value = w_.divides ? value / scale : value * scale;
    return {};
  }

 private:
  Status unpacked(const TensorSource& source, int64_t first, std::span<float> out) const {
    const auto columns = static_cast<size_t>(w_.columns);
    std::vector<uint8_t> stored(columns);
    for (size_t r = 0; r * columns < out.size(); ++r) {
      const int64_t packed = w_.rows / kRowsOfByte, row = first + static_cast<int64_t>(r);
      FERRY_RETURN_IF_ERROR(source.read(w_.weight, static_cast<uint64_t>(row % packed * w_.columns),
                                        std::as_writable_bytes(std::span(stored))));
      for (size_t i = 0; i < columns; ++i) {
        const int code = stored[i] >> 2 * (row / packed) & 3;
        if (code == 3) {
          return bad_input(fmt::format("{}: the code 3 is not ternary",
                                       quoted(source.entries()[w_.weight].name)));
        }
        out[r * columns + i] = static_cast<float>(code - 1);
      }
    }
    return {};
  }

  Status rounded(const TensorSource& source, int64_t first, std::span<float> out) const {
    const float scale = 1.0F / FERRY_TRY(mean(source));
    FERRY_RETURN_IF_ERROR(
        read_floats(source, w_.weight, static_cast<uint64_t>(first * w_.columns), out));
    for (float& value : out) {
      value = std::clamp(std::nearbyint(value * scale), -1.0F, 1.0F) / scale;
    }
    return {};
  }

  // Returns the mean of the absolute values of the matrix, which is read once.
  Result<float> mean(const TensorSource& source) const {
    const std::lock_guard lock(mutex_);
    if (mean_) return *mean_;
    double sum = 0;
    std::vector<float> rows(static_cast<size_t>(std::min(kRowsAtOnce, w_.rows) * w_.columns));
    for (int64_t row = 0; row < w_.rows; row += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, w_.rows - row);
      const auto part = std::span(rows).first(static_cast<size_t>(count * w_.columns));
      FERRY_RETURN_IF_ERROR(
          read_floats(source, w_.weight, static_cast<uint64_t>(row * w_.columns), part));
      for (const float value : part) sum += std::abs(value);
    }
    const double count = static_cast<double>(w_.rows) * static_cast<double>(w_.columns);
    mean_ = std::max(static_cast<float>(sum / count), kLeastMean);
    return *mean_;
  }

  TernaryWeight w_;
  mutable std::mutex mutex_;
  mutable std::optional<float> mean_;
};

}  // namespace

std::unique_ptr<Derivation> decode_ternary(const TernaryWeight& weight) {
  return std::make_unique<TernaryDerivation>(weight);
}

}  // namespace ferry::converters
