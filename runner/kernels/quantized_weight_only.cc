#include <functional>

#include "runner/kernels/quantized_kernels.h"

namespace ferry::kernels {
namespace {

float value_at(const CodedMatrix& m, const uint8_t* row, size_t k) {
  if (m.bits == 8) return static_cast<int8_t>(row[k]);
  return static_cast<float>((row[k / 2] >> (k % 2 * 4) & 15) - 8);
}

float product(const CodedMatrix& m, size_t n, const float* x) {
  const Groups groups(m);
  const uint8_t* row = row_codes(m, n);
  float sum = 0;
  for (size_t g = 0; g < groups.count; ++g) {
    float products = 0;
    for (size_t k = g * groups.columns; k < (g + 1) * groups.columns; ++k) {
      products += x[k] * value_at(m, row, k);
    }
    sum += scale_at(m, n * groups.count + g) * products;
  }
  return sum;
}

}  // namespace

void weight_only_linear(const float* x, int64_t m, int64_t columns,
                        std::span<const LinearTask> tasks, ThreadPool& pool) {
  for (const LinearTask& task : tasks) {
    const CodedMatrix& w = task.matrix->matrix();
    const auto column = [&](size_t n) {
      for (int64_t i = 0; i < m; ++i) {
        const float sum = product(w, n, x + i * columns);
        task.out[i * w.rows + static_cast<int64_t>(n)] =
            task.bias != nullptr ? sum + task.bias[n] : sum;
      }
    };
    pool.parallel_for(static_cast<size_t>(w.rows), std::ref(column));
  }
}

}  // namespace ferry::kernels
