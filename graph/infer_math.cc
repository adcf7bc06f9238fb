// Inference rules of operators that compute.
#include <fmt/format.h>

#include <algorithm>

#include "graph/dims.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

Types tensor_of(DType dtype, Dims shape) {
  return {{Value::Kind::kTensor, dtype, std::move(shape)}};
}

// Orders dtypes: bool < integers by size < floats by size. Only the dtypes that graphs compute with
// are included.
int rank_of(DType dtype) {
  if (dtype == DType::kBool) return 0;
  return (is_floating(dtype) ? 100 : 1) + dtype_bits(dtype);
}

// Returns how many windows of `size`, `step` apart, fit into a dimension with `padding` on each
// side. The number for a dynamic one is a symbol if the step is not 1: no other dimension states a
// quotient.
Result<Dim> window_count(const RuleInput& in, const Dim& length, const Dim& size,
                         const IntArg& step, const IntArg& padding) {
  if (!size.is_static() || step.value.valid() || step.number < 1 || padding.value.valid() ||
      padding.number < 0 || padding.number > INT32_MAX) {
    return misfit("wants a static kernel, stride and padding");
  }
  if (!length.is_static() && step.number > 1) {
    const Windows windows = {length, size.base, step.number, padding.number};
    for (size_t i = 0; i < in.graph.symbols.size(); ++i) {
      if (in.graph.symbols[i].windows != windows) continue;
      return Dim::of(static_cast<int32_t>(i)).as(length.axis);
    }
    return misfit("the length is no dimension: declare a symbol for it");
  }
  const std::optional<Dim> padded = dim_add(length, 2 * padding.number);
  const std::optional<Dim> left = padded ? dim_sub(*padded, size) : std::nullopt;
  if (!left || dim_min(*left) < 0) return misfit("the kernel is longer than the input can be");
  if (left->is_static()) return Dim(left->base / step.number + 1).as(length.axis);
  return *dim_add(*left, 1);
}

}  // namespace

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (rank_of(a) == rank_of(b) && is_floating(a)) return DType::kF32;  // f16 with bf16
  return rank_of(a) >= rank_of(b) ? a : b;
}

Result<Types> infer_embedding(const RuleInput& in) {
  const Value& table = in.tensor(0);
  const Value& indices = in.tensor(1);
  if (table.shape.size() != 2) return misfit("the table has not two dimensions");
  if (indices.dtype != DType::kI64 && indices.dtype != DType::kI32) {
    return misfit("indices are no integers");
  }
  Dims shape = indices.shape;
  shape.push_back(table.shape[1]);
  return tensor_of(table.dtype, std::move(shape));
}

Result<Types> infer_linear(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const Value& weight = in.tensor(1);
  if (in.given(2)) return misfit("a bias is added by itself");
  if (weight.shape.size() != 2 || x.shape.size() < 2) return misfit("too few dimensions");
  if (x.shape.back() != weight.shape[1]) return misfit("inner dimensions differ");
  if (!join(x.shape.back().axis, weight.shape[1].axis)) return misfit("inner axes differ");
  if (x.dtype != weight.dtype || !is_floating(x.dtype)) return misfit("dtypes differ");
  Dims shape = x.shape;
  shape.back() = weight.shape[0];
  return tensor_of(x.dtype, std::move(shape));
}

// [B,m,k] x [B,k,n] -> [B,m,n]
Result<Types> infer_bmm(const RuleInput& in) {
  const Value& a = in.tensor(0);
  const Value& b = in.tensor(1);
  if (a.shape.size() != 3 || b.shape.size() != 3) return misfit("wants three dimensions");
  if (a.shape[0] != b.shape[0]) return misfit("batches differ");
  if (a.shape[2] != b.shape[1]) return misfit("inner dimensions differ");
  if (a.dtype != b.dtype || !is_floating(a.dtype)) return misfit("dtypes differ");
  const std::optional<Axis> batch = join(a.shape[0].axis, b.shape[0].axis);
  if (!batch || !join(a.shape[2].axis, b.shape[1].axis)) return misfit("axes differ");
  return tensor_of(a.dtype, {a.shape[0].as(*batch), a.shape[1], b.shape[2]});
}

Result<Types> infer_binary(const RuleInput& in) {
  std::optional<Dims> shape = broadcast(in.tensor(0).shape, in.tensor(1).shape);
  if (!shape) return misfit("shapes or axes do not broadcast");
  return tensor_of(promote(in.tensor(0).dtype, in.tensor(1).dtype), *std::move(shape));
}

Result<Types> infer_logical(const RuleInput& in) {
  Types types = FERRY_TRY(infer_binary(in));
  types[0].dtype = DType::kBool;
  return types;
}

Result<Types> infer_float(const RuleInput& in) {
  if (!is_floating(in.tensor(0).dtype)) return misfit("wants floating-point numbers");
  return tensor_of(in.tensor(0).dtype, in.tensor(0).shape);
}

// Arguments: self, min, max.
Result<Types> infer_clamp_tensor(const RuleInput& in) {
  const Value& x = in.tensor(0);
  for (const size_t limit : {size_t{1}, size_t{2}}) {
    if (!in.given(limit)) return misfit("needs both limits");
    if (in.tensor(limit).dtype != x.dtype) return misfit("limits have another dtype");
    const std::optional<Dims> shape = broadcast(x.shape, in.tensor(limit).shape);
    if (!shape || *shape != x.shape) return misfit("limits do not broadcast to the values");
  }
  return infer_float(in);
}

// Arguments: self, dim, half_to_float.
Result<Types> infer_softmax(const RuleInput& in) {
  const int64_t rank = static_cast<int64_t>(in.tensor(0).shape.size());
  const IntArg& dim = in.integer(1);
  if (dim.value.valid() || dim.number < -rank || dim.number >= rank) return misfit("no dimension");
  if (in.node.args[2] != Arg(false)) return misfit("computes in its own dtype");
  return infer_float(in);
}

Result<Types> infer_compare(const RuleInput& in) {
  return tensor_of(DType::kBool, in.tensor(0).shape);
}

Result<Types> infer_remainder(const RuleInput& in) {
  if (in.tensor(0).dtype != DType::kI64) return misfit("wants i64");
  return tensor_of(DType::kI64, in.tensor(0).shape);
}

// Arguments: self, dims, keepdim and, for sums and means, dtype. Only the last dimension is
// supported.
Result<Types> infer_reduce(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const int64_t last = static_cast<int64_t>(x.shape.size()) - 1;
  const bool other_dtype = in.node.args.size() > 3 && in.given(3);
  if (last < 0 || !in.given(1) || in.integers(1).size() != 1 || other_dtype) {
    return misfit("reduces one dimension in its own dtype");
  }
  const IntArg& dim = in.integers(1)[0];
  if (dim.value.valid() || (dim.number != -1 && dim.number != last)) {
    return misfit("reduces the last dimension only");
  }
  if (!is_floating(x.dtype)) return misfit("wants floating-point numbers");
  Dims shape = x.shape;
  shape.pop_back();
  if (std::get<bool>(in.node.args[2])) shape.push_back(Dim(1).as(x.shape.back().axis));
  return tensor_of(x.dtype, std::move(shape));
}

// Arguments: self, dim, dtype. Only the last dimension and the dtype of self are supported.
Result<Types> infer_cumsum(const RuleInput& in) {
  if (in.tensor(0).shape.empty() || in.integer(1) != IntArg(-1) || in.given(2)) {
    return misfit("goes along the last dimension in its own dtype");
  }
  return infer_float(in);
}

// Arguments: self, k, dim, largest, sorted. Only the last dimension is supported.
Result<Types> infer_topk(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const IntArg& k = in.integer(1);
  if (in.integer(2) != IntArg(-1) || x.shape.empty() || !x.shape.back().is_static()) {
    return misfit("goes along the last dimension");
  }
  if (k.value.valid() || k.number < 1 || k.number > x.shape.back().base) {
    return misfit("more values than there are");
  }
  Dims shape = x.shape;
  shape.back() = Dim(k.number).as(x.shape.back().axis);
  return Types{{Value::Kind::kTensor, x.dtype, shape}, {Value::Kind::kTensor, DType::kI64, shape}};
}

// Arguments: self, dim, index, sparse_grad. Only the last dimension is supported.
Result<Types> infer_gather(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const Value& index = in.tensor(2);
  const auto last = static_cast<int64_t>(x.shape.size()) - 1;
  if (last < 0 || index.shape.size() != x.shape.size() || index.dtype != DType::kI64) {
    return misfit("wants an index of i64 with as many dimensions");
  }
  if (in.integer(1) != IntArg(-1) || in.node.args[3] != Arg(false)) {
    return misfit("goes along the last dimension");
  }
  const bool same = std::equal(x.shape.begin(), x.shape.end() - 1, index.shape.begin());
  if (!same || !axes_agree(x.shape, index.shape)) return misfit("other dimensions or axes differ");
  Dims shape = index.shape;
  for (size_t i = 0; i < shape.size(); ++i) shape[i].axis = *join(x.shape[i].axis, shape[i].axis);
  return tensor_of(x.dtype, std::move(shape));
}

Result<Types> infer_where(const RuleInput& in) {
  if (in.tensor(0).dtype != DType::kBool) return misfit("the condition is not bool");
  const std::optional<Dims> both = broadcast(in.tensor(1).shape, in.tensor(2).shape);
  std::optional<Dims> shape = both ? broadcast(in.tensor(0).shape, *both) : std::nullopt;
  if (!shape) return misfit("shapes or axes do not broadcast");
  return tensor_of(promote(in.tensor(1).dtype, in.tensor(2).dtype), *std::move(shape));
}

// Supports one and two spatial dimensions with dilation 1: x [N,C,L], w (O,C/groups,K), bias [O] ->
// [N,O,(L+2 padding-K)/stride+1].
Result<Types> infer_convolution(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const Value& weight = in.tensor(1);
  const size_t spatial = x.shape.size() == 4 ? 2 : 1;
  const auto is = [&](size_t arg, int64_t number) {
    const std::vector<IntArg>& all = in.integers(arg);
    return all == std::vector<IntArg>{number} ||
           all == std::vector<IntArg>(spatial, IntArg(number));
  };
  const bool plain = is(5, 1) && is(7, 0) && in.node.args[6] == Arg(false);
  if (!plain) return misfit("only without dilation");
  if (x.shape.size() != spatial + 2 || weight.shape.size() != spatial + 2 ||
      in.integers(3).size() != spatial || in.integers(4).size() != spatial) {
    return misfit("wants one or two dimensions beside batch and channels");
  }
  const IntArg& groups = in.integer(8);
  const Dim& channels = x.shape[1];
  const bool divides = !groups.value.valid() && groups.number > 0 && channels.is_static() &&
                       weight.shape[1].is_static() && channels.base % groups.number == 0 &&
                       channels.base / groups.number == weight.shape[1].base;
  if (!divides) return misfit("channels and groups differ");
  if (x.dtype != weight.dtype || !is_floating(x.dtype)) return misfit("dtypes differ");
  if (in.given(2)) {
    const Value& bias = in.tensor(2);
    if (bias.shape != Dims{weight.shape[0]} || bias.dtype != x.dtype) {
      return misfit("the bias is not one number for each output channel");
    }
  }
  Dims shape = {x.shape[0], weight.shape[0]};
  for (size_t i = 0; i < spatial; ++i) {
    shape.push_back(FERRY_TRY(window_count(in, x.shape[2 + i], weight.shape[2 + i],
                                           in.integers(3)[i], in.integers(4)[i])));
  }
  return tensor_of(x.dtype, std::move(shape));
}

Result<Types> infer_to_copy(const RuleInput& in) {
  const auto* dtype = std::get_if<DType>(&in.node.args[3]);
  if (dtype == nullptr) return misfit("the target dtype is absent");
  return tensor_of(*dtype, in.tensor(0).shape);
}

Result<Types> infer_copy(const RuleInput& in) {
  const Value& self = in.tensor(0);
  if (self.shape != in.tensor(1).shape || !axes_agree(self.shape, in.tensor(1).shape) ||
      self.dtype != in.tensor(1).dtype) {
    return misfit("source and destination differ");
  }
  return tensor_of(self.dtype, self.shape);
}

Result<Types> infer_update_cache(const RuleInput& in) {
  const Value& value = in.tensor(0);
  const Value& cache = in.tensor(1);
  if (value.shape.size() != 4 || cache.shape.size() != 4 || value.dtype != cache.dtype ||
      value.shape[0] != cache.shape[0] || value.shape[2] != cache.shape[2] ||
      value.shape[3] != cache.shape[3]) {
    return misfit("value and cache differ in more than their length");
  }
  if (!axes_agree(value.shape, cache.shape)) return misfit("axes of value and cache differ");
  if (in.graph.max_of(value.shape[1]) > in.graph.max_of(cache.shape[1])) {
    return misfit("more positions than the cache has");
  }
  return tensor_of(DType::kF32, {1});  // a dummy that the operator requires
}

// Arguments: those of update_cache, then the position in the cache of each row of value, i64 [B,T].
Result<Types> infer_update_cache_rows(const RuleInput& in) {
  Types types = FERRY_TRY(infer_update_cache(in));
  const Value& indices = in.tensor(3);
  const Dims& rows = in.tensor(0).shape;
  if (indices.dtype != DType::kI64 || indices.shape != Dims{rows[0], rows[1]}) {
    return misfit("wants an i64 position for each row");
  }
  return types;
}

Result<Types> infer_sdpa(const RuleInput& in) {
  const Dims& q = in.tensor(0).shape;
  const Dims& k = in.tensor(1).shape;
  if (q.size() != 4 || k.size() != 4 || in.tensor(2).shape != k)
    return misfit("wants 4 dimensions");
  if (in.tensor(0).dtype != in.tensor(1).dtype || in.tensor(0).dtype != in.tensor(2).dtype) {
    return misfit("dtypes differ");
  }
  const bool grouped = q[2].is_static() && k[2].is_static() && k[2].base > 0 &&
                       q[2].base % k[2].base == 0 && q[3] == k[3] && q[0] == k[0];
  if (!grouped) return misfit("heads of query and keys do not match");
  if (!axes_agree(q, k) || !axes_agree(k, in.tensor(2).shape)) return misfit("axes differ");
  if (in.given(4)) {
    if (in.node.args[6] == Arg(true)) return misfit("either a mask or causal");
    const Value& mask = in.tensor(4);
    if (mask.dtype != in.tensor(0).dtype || mask.shape != Dims{q[1], k[1]}) {
      return misfit("the mask is not [queries, keys]");
    }
  }
  return tensor_of(in.tensor(0).dtype, q);
}

// q, k [B,H,T,K], v [B,H,T,V], decay [B,H,T] or [B,H,T,K], beta [B,H,T], state [B,H,K,V].
Result<Types> infer_gated_delta_rule(const RuleInput& in) {
  for (size_t i = 0; i < 6; ++i) {
    if (in.tensor(i).dtype != DType::kF32) return misfit("wants f32");
  }
  const Dims& q = in.tensor(0).shape;
  const Dims& v = in.tensor(2).shape;
  if (q.size() != 4 || v.size() != 4) return misfit("wants four dimensions");
  const Dims steps(q.begin(), q.begin() + 3);
  const Dims& decay = in.tensor(3).shape;
  const Dims& state = in.tensor(5).shape;
  const bool fit = in.tensor(1).shape == q && std::equal(steps.begin(), steps.end(), v.begin()) &&
                   (decay == steps || decay == q) && in.tensor(4).shape == steps &&
                   state == Dims{q[0], q[1], q[3], v[3]};
  if (!fit) return misfit("shapes do not match");
  return Types{{Value::Kind::kTensor, DType::kF32, v}, {Value::Kind::kTensor, DType::kF32, state}};
}

// x, [width], weight?, bias?, eps -> the normed x, and mean and reciprocal deviation of each row.
Result<Types> infer_layer_norm(const RuleInput& in) {
  const Value& x = in.tensor(0);
  if (x.shape.empty() || !is_floating(x.dtype)) return misfit("wants floating-point numbers");
  const Dim& width = x.shape.back();
  if (!width.is_static() || in.integers(1) != std::vector<IntArg>{width.base}) {
    return misfit("norms the last dimension only");
  }
  for (size_t parameter : {2, 3}) {
    if (!in.given(parameter)) continue;
    if (in.tensor(parameter).shape != Dims{width} || in.tensor(parameter).dtype != x.dtype) {
      return misfit("weight and bias are not of the last dimension");
    }
  }
  Dims rows = x.shape;
  rows.back() = Dim(1).as(width.axis);
  return Types{{Value::Kind::kTensor, x.dtype, x.shape},
               {Value::Kind::kTensor, x.dtype, rows},
               {Value::Kind::kTensor, x.dtype, rows}};
}

}  // namespace ferry::graph
