#include "runner/kernels/quantized_linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace ferry::kernels {

struct PackedMatrix::Impl {
  CodedMatrix matrix;
};

namespace {

int code(const CodedMatrix& w, int64_t row, int64_t column) {
  const int64_t at = row * w.columns + column;
  if (w.bits == 8) return static_cast<int8_t>(w.codes[at]);
  return static_cast<int>(w.codes[at / 2] >> (at % 2 * 4) & std::byte{15}) - 8;
}

int64_t group_size(const CodedMatrix& w) { return w.group == 0 ? w.columns : w.group; }

float scale(const CodedMatrix& w, int64_t row, int64_t group) {
  const int64_t at = row * (w.columns / group_size(w)) + group;
  if (w.scale_dtype == DType::kBF16) {
    uint16_t bits = 0;
    std::memcpy(&bits, w.scales + at * 2, sizeof bits);
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }
  float value = 0;
  std::memcpy(&value, w.scales + at * 4, sizeof value);
  return value;
}

float dynamic_product(const CodedMatrix& w, int64_t n, const QuantizedRow& row, const int8_t* q) {
  const int64_t size = group_size(w);
  float sum = 0;
  for (int64_t g = 0; g * size < w.columns; ++g) {
    int64_t products = 0;
    for (int64_t k = g * size; k < (g + 1) * size; ++k) {
      products += (q[k] - row.zero_point) * code(w, n, k);
    }
    sum += scale(w, n, g) * static_cast<float>(products);
  }
  return sum * row.inverse_scale;
}

float float_product(const CodedMatrix& w, int64_t n, const float* x) {
  const int64_t size = group_size(w);
  float sum = 0;
  for (int64_t g = 0; g * size < w.columns; ++g) {
    float products = 0;
    for (int64_t k = g * size; k < (g + 1) * size; ++k) {
      products += x[k] * static_cast<float>(code(w, n, k));
    }
    sum += scale(w, n, g) * products;
  }
  return sum;
}

template <class Product>
void for_each_output(int64_t m, const LinearTask& task, ThreadPool& pool, const Product& product) {
  const CodedMatrix& w = task.matrix->impl().matrix;
  pool.parallel_for(static_cast<size_t>(w.rows), [&](size_t n) {
    for (int64_t i = 0; i < m; ++i) {
      const float bias = task.bias != nullptr ? task.bias[n] : 0.0f;
      task.out[i * w.rows + static_cast<int64_t>(n)] = product(w, n, i) + bias;
    }
  });
}

}  // namespace

PackedMatrix::PackedMatrix(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept = default;
PackedMatrix::~PackedMatrix() = default;

PackedMatrix PackedMatrix::pack(const CodedMatrix& matrix, ThreadPool& /*pool*/) {
  return PackedMatrix(std::make_unique<const Impl>(Impl{matrix}));
}
int64_t PackedMatrix::rows() const { return impl_->matrix.rows; }
int64_t PackedMatrix::columns() const { return impl_->matrix.columns; }
uint64_t PackedMatrix::bytes() const { return 0; }

QuantizedRow quantize_row(std::span<const float> row, std::span<int8_t> codes) {
  float low = 0, high = 0;
  bool finite = true;
  for (const float x : row) {
    low = std::min(low, x), high = std::max(high, x);
    finite = finite && std::isfinite(x);
  }
  const float range = high - low;
  if (!finite || !std::isfinite(range)) {
    std::fill(codes.begin(), codes.end(), int8_t{0});
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  const float s = range < 0x1p-120f ? 1.0f : 255.0f / range;
  const float below = low * s, above = high * s;
  const float zero = (-128.0f + below) + (127.0f + above) > 0 ? -128.0f - below : 127.0f - above;
  const float zero_point = std::nearbyint(std::clamp(zero, -128.0f, 127.0f));
  for (size_t i = 0; i < row.size(); ++i) {
    const float value = std::nearbyint(row[i] * s) + zero_point;
    codes[i] = static_cast<int8_t>(std::clamp(value, -128.0f, 127.0f));
  }
  return {1.0f / s, static_cast<int32_t>(zero_point)};
}

uint64_t dynamic_linear_scratch(int64_t m, int64_t columns) {
  return static_cast<uint64_t>(m) * (static_cast<uint64_t>(columns) * 4 + 512);
}

void dynamic_linear(const float* x, int64_t m, int64_t columns, std::span<const LinearTask> tasks,
                    std::span<std::byte> scratch, ThreadPool& pool) {
  auto* codes = reinterpret_cast<int8_t*>(scratch.data());
  std::vector<QuantizedRow> rows(static_cast<size_t>(m));
  const auto length = static_cast<size_t>(columns);
  for (int64_t i = 0; i < m; ++i) {
    rows[static_cast<size_t>(i)] =
        quantize_row({x + i * columns, length}, {codes + i * columns, length});
  }
  for (const LinearTask& task : tasks) {
    for_each_output(m, task, pool, [&](const CodedMatrix& w, size_t n, int64_t i) {
      return dynamic_product(w, static_cast<int64_t>(n), rows[static_cast<size_t>(i)],
                             codes + i * columns);
    });
  }
}

void weight_only_linear(const float* x, int64_t m, int64_t columns,
                        std::span<const LinearTask> tasks, ThreadPool& pool) {
  for (const LinearTask& task : tasks) {
    for_each_output(m, task, pool, [&](const CodedMatrix& w, size_t n, int64_t i) {
      return float_product(w, static_cast<int64_t>(n), x + i * columns);
    });
  }
}

}  // namespace ferry::kernels
