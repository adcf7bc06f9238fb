// The steps of an RMS norm as one, row by row, so that its intermediate values stay in the cache.
#include <cmath>

#include "kernels/compute_scratch.h"
#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

namespace ferry::kernels {
namespace {

struct RmsNorm {
  const Tensor& x;
  float eps;
  const Tensor* weight;
  const float* scales;  // the weight as f32
  Tensor& out;
  int64_t columns;

  // `row` and `squares` have room for a row. Rounds wherever the stated steps store a tensor.
  void compute(int64_t at, float* row, float* squares) const {
    load(x.dtype, x.data + at * columns * x.element_bytes(), row, columns);
    for (int64_t i = 0; i < columns; ++i) squares[i] = row[i] * row[i];
    const auto mean =
        static_cast<float>(sum_of_row(squares, columns) / static_cast<double>(columns));
    const float inverse = 1 / std::sqrt(mean + eps);
    for (int64_t i = 0; i < columns; ++i) row[i] *= inverse;
    if (weight != nullptr) {
      if (is_half(weight->dtype)) {
        store(weight->dtype, row, squares, columns);
        load(weight->dtype, squares, row, columns);
      }
      for (int64_t i = 0; i < columns; ++i) row[i] *= scales[i];
    }
    store(out.dtype, row, out.data + at * columns * out.element_bytes(), columns);
  }
};

}  // namespace

Status rms_norm_steps(const Call& call) {
  const Tensor& x = tensor(call, 0);
  const Tensor* weight = optional_tensor(call, 2);
  Tensor& out = tensor(call, 3);
  if (x.rank() == 0) return bad_input(fmt::format("{} has no rows", describe(x)));
  const int64_t columns = x.sizes.back();
  if (weight != nullptr) FERRY_RETURN_IF_ERROR(require_sizes(*weight, {columns}));
  FERRY_RETURN_IF_ERROR(resize(out, x.sizes));
  if (x.numel == 0) return {};
  const auto width = static_cast<size_t>(columns);
  const Scratch scales(weight == nullptr ? 0 : width);
  if (weight != nullptr) load(weight->dtype, weight->data, scales.data(), columns);
  const RmsNorm norm{x, *tensor(call, 1).as<float>(), weight, scales.data(), out, columns};
  for_pieces(call.pool, x.numel / columns, rows_per_piece(columns),
             [&](int64_t begin, int64_t end) {
               const Scratch scratch(2 * width);
               for (int64_t row = begin; row < end; ++row) {
                 norm.compute(row, scratch.data(), scratch.data() + width);
               }
             });
  return {};
}

}  // namespace ferry::kernels
