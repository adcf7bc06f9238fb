// Operators that keep the order of all elements: views and copies with another shape.
#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/strided_copy.h"

namespace ferry::kernels {
namespace {

// Returns `sizes` with at most one -1 replaced, so that there are as many elements as in `self`.
Result<Dims> infer_sizes(const Tensor& self, Dims sizes) {
  int inferred = -1;
  for (int dim = 0; dim < sizes.rank(); ++dim) {
    if (sizes[dim] != -1) continue;
    if (inferred >= 0) return bad_input("more than one size is -1");
    inferred = dim;
    sizes[dim] = 1;
  }
  const std::optional<int64_t> known = checked_numel(sizes.span());
  if (known && inferred >= 0 && *known > 0) sizes[inferred] = self.numel / *known;
  const std::optional<int64_t> count = checked_numel(sizes.span());
  if (!known || !count || *count != self.numel) {
    return bad_input(fmt::format("{} cannot be viewed in the requested shape", describe(self)));
  }
  return sizes;
}

Status copy_as(const Tensor& self, const Dims& sizes, Tensor& out) {
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  copy_bytes(self, out);
  return {};
}

}  // namespace

Status et_view(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  const Dims wanted = FERRY_TRY(int_list(call, 1));
  const Dims sizes = FERRY_TRY(infer_sizes(self, wanted));
  out.capacity = self.capacity;
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  out.data = self.data;
  out.writable = self.writable;
  return {};
}

Status view_copy(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Dims wanted = FERRY_TRY(int_list(call, 1));
  return copy_as(self, FERRY_TRY(infer_sizes(self, wanted)), tensor(call, 2));
}

Status same_copy(const Call& call) {
  const Tensor& self = tensor(call, 0);
  return copy_as(self, self.sizes, tensor(call, static_cast<size_t>(call.variant)));
}

Status require_dim_order(const Call& call, size_t argument) {
  if (call.args[argument]->kind == Value::Kind::kNone) return {};
  const Dims order = FERRY_TRY(int_list(call, argument));
  const int rank = tensor(call, 0).rank();
  uint32_t seen = 0;
  for (const int64_t dim : order) seen |= dim >= 0 && dim < rank ? 1U << dim : 0;
  if (order.rank() == rank && seen == (1U << rank) - 1) return {};
  return bad_input("the order of dimensions is no permutation");
}

Status dim_order_copy(const Call& call) {
  const Tensor& self = tensor(call, 0);
  FERRY_RETURN_IF_ERROR(require_dim_order(call, 2));
  return copy_as(self, self.sizes, tensor(call, 3));
}

Status unsqueeze(const Call& call) {
  const Tensor& self = tensor(call, 0);
  if (self.rank() == kMaxRank) return bad_input("the result has too many dimensions");
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank() + 1));
  Dims sizes = self.sizes;
  sizes.insert(dim, 1);
  return copy_as(self, sizes, tensor(call, 2));
}

Status squeeze_dim(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  Dims sizes = self.sizes;
  if (dim < sizes.rank() && sizes[dim] == 1) sizes.erase(dim);
  return copy_as(self, sizes, tensor(call, 2));
}

Status squeeze_dims(const Call& call) {
  const Tensor& self = tensor(call, 0);
  uint32_t drop = 0;
  for (int64_t dim : FERRY_TRY(int_list(call, 1))) {
    drop |= 1U << FERRY_TRY(wrap_dim(dim, self.rank()));
  }
  Dims sizes;
  for (int dim = 0; dim < self.rank(); ++dim) {
    if (((drop >> dim) & 1U) == 0 || self.size(dim) != 1) sizes.push_back(self.size(dim));
  }
  return copy_as(self, sizes, tensor(call, 2));
}

}  // namespace ferry::kernels
