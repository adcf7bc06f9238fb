// Inference rules of operators that move elements, and of operators on integers.
#include <fmt/format.h>

#include <algorithm>

#include "graph/dims.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

Types shaped_like(const Value& like, Dims shape) {
  return {{Value::Kind::kTensor, like.dtype, std::move(shape)}};
}

// Returns a literal dimension index of a tensor of `rank` dimensions. Negative indices count from
// the end.
Result<size_t> dim_index(const IntArg& arg, size_t rank) {
  const int64_t n = static_cast<int64_t>(rank);
  if (arg.value.valid() || arg.number < -n || arg.number >= n) {
    return misfit(fmt::format("no dimension {} of {}", arg.number, n));
  }
  return static_cast<size_t>(arg.number < 0 ? arg.number + n : arg.number);
}

// Resolves a literal bound of a slice in a dimension of `size`, if it is the same for all values of
// the symbols.
Result<Dim> resolve_bound(const Graph& graph, const Dim& size, int64_t bound) {
  if (bound >= graph.max_of(size)) return size;
  if (bound < 0) {
    const std::optional<Dim> from_end = dim_add(size, bound);
    if (!from_end || dim_min(*from_end) < 0) return misfit("a bound may fall before the start");
    return *from_end;
  }
  if (bound > dim_min(size)) return misfit("a bound may or may not fall behind the end");
  return Dim(bound);
}

Result<IntForm> bound_form(const RuleInput& in, const Dim& size, const IntArg& arg) {
  if (arg.value.valid()) return in.forms.of(arg);
  const Dim bound = FERRY_TRY(resolve_bound(in.graph, size, arg.number));
  const std::optional<IntForm> form = in.forms.of(in.graph, bound);
  if (!form) return misfit("the value of a symbol is not known yet");
  return *form;
}

Result<Dim> distance(const RuleInput& in, const IntForm& start, const IntForm& end) {
  const std::optional<Dim> length = in.forms.to_dim(in.graph, end.plus(start, -1));
  if (!length) return misfit("the length is no dimension: declare a symbol for it");
  if (dim_min(*length) < 0) return misfit("the length may be negative");
  return *length;
}

Result<Dim> slice_length(const RuleInput& in, const Dim& size, const IntArg& start,
                         const IntArg& end) {
  if (!start.value.valid() && !end.value.valid()) {
    const Dim from = FERRY_TRY(resolve_bound(in.graph, size, start.number));
    const Dim to = FERRY_TRY(resolve_bound(in.graph, size, end.number));
    const std::optional<Dim> length = dim_sub(to, from);
    if (!length || dim_min(*length) < 0) return misfit("the length may be negative");
    return *length;
  }
  const IntForm from = FERRY_TRY(bound_form(in, size, start));
  const IntForm to = FERRY_TRY(bound_form(in, size, end));
  const Dim length = FERRY_TRY(distance(in, from, to));
  if (in.graph.max_of(length) > in.graph.max_of(size)) return misfit("longer than the dimension");
  return length;
}

// Returns the sizes of a list argument, with nullopt in place of -1.
Result<std::vector<std::optional<Dim>>> sizes_of(const RuleInput& in,
                                                 const std::vector<IntArg>& args) {
  std::vector<std::optional<Dim>> sizes;
  for (const IntArg& arg : args) {
    if (!arg.value.valid() && arg.number == -1) {
      sizes.emplace_back();
      continue;
    }
    const std::optional<Dim> dim = in.forms.to_dim(in.graph, in.forms.of(arg));
    if (!dim || dim_min(*dim) < 0) return misfit("a size is no dimension");
    sizes.emplace_back(*dim);
  }
  return sizes;
}

// Copies axes to leading dimensions of a reshaped tensor. An index of a leading dimension means the
// same element in both shapes if the dimensions up to it are equal. The last dimension of either
// shape is split, merged or both, even if its size equals that of another dimension (one head,
// heads of one element), so its axis is unknown. The axis of a dimension of size 1 is also unknown,
// because it may have been removed and another one added.
void keep_leading_axes(const Dims& from, Dims& to) {
  // Two dimensions of size 1 may have changed places.
  if (from == to && std::ranges::count(from, Dim(1)) < 2) to = from;
  for (size_t i = 0; i + 1 < std::min(from.size(), to.size()) && from[i] == to[i]; ++i) {
    if (from[i] != Dim(1)) to[i].axis = from[i].axis;
  }
}

}  // namespace

// The input has any dtype and shape, and the result has the same.
Result<Types> infer_same(const RuleInput& in) {
  return shaped_like(in.tensor(0), in.tensor(0).shape);
}

// Arguments: start, end, step.
Result<Types> infer_arange(const RuleInput& in) {
  for (size_t i = 0; i < 3; ++i) {
    if (!std::holds_alternative<IntArg>(in.node.args[i])) return misfit("wants integers");
  }
  if (in.integer(2) != IntArg(1)) return misfit("wants step 1");
  const Dim length =
      FERRY_TRY(distance(in, in.forms.of(in.integer(0)), in.forms.of(in.integer(1))));
  return Types{{Value::Kind::kTensor, DType::kI64, {length}}};
}

// Arguments: tensors, dim.
Result<Types> infer_cat(const RuleInput& in) {
  if (in.tensors(0).empty()) return misfit("nothing to concatenate");
  const Value& first = in.graph[in.tensors(0)[0]];
  const size_t dim = FERRY_TRY(dim_index(in.integer(1), first.shape.size()));
  Dims shape = first.shape;
  shape[dim] = Dim(0).as(first.shape[dim].axis);
  for (ValueId id : in.tensors(0)) {
    const Value& part = in.graph[id];
    if (part.dtype != first.dtype) return misfit("dtypes differ");
    if (part.shape.size() != shape.size()) return misfit("ranks differ");
    for (size_t i = 0; i < shape.size(); ++i) {
      if (i != dim && part.shape[i] != shape[i]) return misfit("other dimensions differ");
    }
    const std::optional<Dim> sum = dim_add(shape[dim], part.shape[dim]);
    if (!sum) return misfit("a sum of different symbols is no dimension");
    if (!axes_agree(shape, part.shape)) return misfit("axes differ");
    shape[dim] = *sum;
    for (size_t i = 0; i < shape.size(); ++i) {
      shape[i].axis = *join(shape[i].axis, part.shape[i].axis);
    }
  }
  return shaped_like(first, std::move(shape));
}

// Arguments: self, dim, start, end, step.
Result<Types> infer_slice(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const size_t dim = FERRY_TRY(dim_index(in.integer(1), x.shape.size()));
  if (!in.given(2) || !in.given(3)) return misfit("wants explicit bounds");
  if (in.integer(4) != IntArg(1)) return misfit("wants step 1");
  Dims shape = x.shape;
  const Dim length = FERRY_TRY(slice_length(in, x.shape[dim], in.integer(2), in.integer(3)));
  shape[dim] = length.as(x.shape[dim].axis);
  return shaped_like(x, std::move(shape));
}

// Arguments: self, dim, index.
Result<Types> infer_select(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const size_t dim = FERRY_TRY(dim_index(in.integer(1), x.shape.size()));
  const IntArg& index = in.integer(2);
  const int64_t least = dim_min(x.shape[dim]);
  if (!index.value.valid() && (index.number < -least || index.number >= least)) {
    return misfit(fmt::format("index {} may be out of range", index.number));
  }
  Dims shape = x.shape;
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
  return shaped_like(x, std::move(shape));
}

// Arguments: self, dims.
Result<Types> infer_permute(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const size_t rank = x.shape.size();
  if (in.integers(1).size() != rank) return misfit("not one entry per dimension");
  std::vector<bool> seen(rank, false);
  Dims shape;
  for (const IntArg& arg : in.integers(1)) {
    const size_t dim = FERRY_TRY(dim_index(arg, rank));
    if (seen[dim]) return misfit("a dimension comes twice");
    seen[dim] = true;
    shape.push_back(x.shape[dim]);
  }
  return shaped_like(x, std::move(shape));
}

// Arguments: self, dim.
Result<Types> infer_unsqueeze(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const size_t dim = FERRY_TRY(dim_index(in.integer(1), x.shape.size() + 1));
  Dims shape = x.shape;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), Dim(1));
  return shaped_like(x, std::move(shape));
}

// Arguments: self, size (-1 keeps a dimension), implicit.
Result<Types> infer_expand(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const auto sizes = FERRY_TRY(sizes_of(in, in.integers(1)));
  if (sizes.size() < x.shape.size()) return misfit("fewer sizes than dimensions");
  const size_t added = sizes.size() - x.shape.size();
  Dims shape;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool fresh = i < added;
    if (fresh && !sizes[i]) return misfit("the size of a new dimension is absent");
    const Dim from = fresh ? Dim(1) : x.shape[i - added];
    const Dim to = sizes[i].value_or(from);
    if (from != to && from != Dim(1)) return misfit("only dimensions of size 1 expand");
    shape.push_back(to.as(from.axis));
  }
  return shaped_like(x, std::move(shape));
}

// Arguments: self, sizes, dim.
Result<Types> infer_split(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const size_t dim = FERRY_TRY(dim_index(in.integer(2), x.shape.size()));
  std::optional<Dim> left = x.shape[dim];
  Types types;
  for (const auto& size : FERRY_TRY(sizes_of(in, in.integers(1)))) {
    if (!size) return misfit("a size is absent");
    left = dim_sub(*left, *size);
    if (!left) return misfit("a size of another symbol");
    types.push_back({Value::Kind::kTensor, x.dtype, x.shape});
    types.back().shape[dim] = size->as(x.shape[dim].axis);
  }
  if (types.empty() || *left != Dim(0)) return misfit("sizes do not add up to the dimension");
  return types;
}

// Arguments: self, size; one size may be -1. The builder names the axes that are not kept.
Result<Types> infer_view(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const auto sizes = FERRY_TRY(sizes_of(in, in.integers(1)));
  Dims given;
  for (const auto& size : sizes) {
    if (size) given.push_back(*size);
  }
  const std::optional<ElementCount> from = element_count(x.shape);
  const std::optional<ElementCount> to = element_count(given);
  if (!from || !to) return misfit("too many elements");
  if (given.size() + 1 < sizes.size()) return misfit("more than one size is absent");
  const std::optional<Dim> rest = quotient(*from, *to);
  if (given.size() == sizes.size() ? *from != *to : !rest) return misfit("element counts differ");
  Dims shape;
  for (const auto& size : sizes) shape.push_back(size ? *size : *rest);
  keep_leading_axes(x.shape, shape);
  return shaped_like(x, std::move(shape));
}

Result<Types> infer_sym_size(const RuleInput& in) {
  FERRY_TRY(dim_index(in.integer(1), in.tensor(0).shape.size()));
  return Types{{Value::Kind::kInt, DType::kI64, {}}};
}

Result<Types> infer_item(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const bool one = std::ranges::all_of(x.shape, [](const Dim& d) { return d == Dim(1); });
  if (x.dtype != DType::kI64 || !one) return misfit("wants one i64");
  return Types{{Value::Kind::kInt, DType::kI64, {}}};
}

Result<Types> infer_int(const RuleInput& in) {
  for (size_t i = 0; i < 2; ++i) {
    if (!std::holds_alternative<IntArg>(in.node.args[i])) return misfit("wants integers");
  }
  return Types{{Value::Kind::kInt, DType::kI64, {}}};
}

}  // namespace ferry::graph
