#include "runner/delegate/node_kernels.h"

#include <cmath>

#include "kernels/compute.h"
#include "kernels/elementwise.h"
#include "kernels/kernel.h"
#include "kernels/strided_copy.h"

namespace ferry::runner {
namespace {

using kernels::Dims;
using kernels::RowInput;
using kernels::RowParams;
using kernels::Tensor;

struct Hardswish {
  float operator()(float x, float) const { return x * std::clamp(x / 6 + 0.5F, 0.0F, 1.0F); }
};
struct LeakyRelu {
  float operator()(float x, float slope) const { return x < 0 ? x * slope : x; }
};
struct Elu {
  float operator()(float x, float alpha) const { return x < 0 ? alpha * std::expm1(x) : x; }
};

template <class F>
void row(const RowInput* in, void* out, int64_t n, const RowParams& params) {
  const float* x = static_cast<const float*>(in[0].values);
  const float factor = static_cast<float>(params.a.real);
  for (int64_t i = 0; i < n; ++i) {
    static_cast<float*>(out)[i] = F()(x[in[0].many ? i : 0], factor);
  }
}

template <class F>
Status each(const kernels::Call& call, const kernels::Number& factor, Tensor& out) {
  const kernels::Operand operands[] = {kernels::Operand(kernels::tensor(call, 0))};
  return kernels::elementwise(call, operands, out, kernels::Compute::kF32,
                              kernels::RowResult::kSame, row<F>, {factor});
}

}  // namespace

Status hardswish(const kernels::Call& call) {
  return each<Hardswish>(call, {}, kernels::tensor(call, 1));
}

Status leaky_relu(const kernels::Call& call) {
  return each<LeakyRelu>(call, kernels::number(call, 1), kernels::tensor(call, 2));
}

Status elu(const kernels::Call& call) {
  return each<Elu>(call, kernels::number(call, 1), kernels::tensor(call, 2));
}

Status slice_all(const kernels::Call& call) {
  const Tensor& self = kernels::tensor(call, 0);
  const Dims offsets = FERRY_TRY(kernels::int_list(call, 1));
  Dims sizes = FERRY_TRY(kernels::int_list(call, 2));
  Tensor& out = kernels::tensor(call, 3);
  const Dims strides = kernels::contiguous_strides(self.sizes);
  int64_t skip = 0;
  for (int dim = 0; dim < self.rank(); ++dim) {
    if (sizes[dim] == 0) sizes[dim] = self.size(dim);
    skip += offsets[dim] * strides[dim];
  }
  FERRY_RETURN_IF_ERROR(kernels::resize(out, sizes));
  kernels::strided_copy(call.pool, sizes, self.element_bytes(),
                        kernels::strided(self, skip, strides), kernels::strided(out));
  return {};
}

Status batch_product(const kernels::Call& call) {
  const Tensor& a = kernels::tensor(call, 0);
  const Tensor& b = kernels::tensor(call, 1);
  Tensor& out = kernels::tensor(call, 2);
  const int rank = a.rank();
  const int64_t m = a.size(rank - 2), k = a.size(rank - 1), n = b.size(rank - 1);
  Dims sizes = a.sizes;
  sizes[rank - 1] = n;
  FERRY_RETURN_IF_ERROR(kernels::resize(out, sizes));
  if (out.numel == 0) return {};
  kernels::bmm_f32(a.as<float>(), b.as<float>(), out.as<float>(), out.numel / (m * n), m, n, k,
                   call.pool);
  return {};
}

}  // namespace ferry::runner
