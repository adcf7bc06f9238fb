#include "runner/delegate/node_shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/checked.h"
#include "kernels/kernel.h"

namespace ferry::runner {
namespace {

using kernels::Dims;
using xnnpack::Node;
using xnnpack::NodeKind;

std::string text(const Dims& sizes) { return fmt::format("[{}]", fmt::join(sizes.span(), ", ")); }

Failure mismatch(const Dims& a, const Dims& b) {
  return bad_input(fmt::format("shape mismatch: {} and {}", text(a), text(b)));
}

Result<Dims> linear(const Dims& input, const Dims& filter) {
  if (input.empty() || input.back() != filter[1]) return mismatch(input, filter);
  Dims out = input;
  out[out.rank() - 1] = filter[0];
  return out;
}

Result<Dims> batch_product(const Dims& a, const Dims& b) {
  const int rank = a.rank();
  if (rank < 2 || b.rank() != rank || a.back() != b[rank - 2]) return mismatch(a, b);
  for (int dim = 0; dim < rank - 2; ++dim) {
    if (a[dim] != b[dim]) return mismatch(a, b);
  }
  Dims out = a;
  out[rank - 1] = b.back();
  return out;
}

// A 0 among the sizes is inferred.
Result<Dims> reshaped(const Node& node, const Dims& input) {
  Dims out{std::span(node.numbers)};
  int inferred = -1;
  for (int dim = 0; dim < out.rank(); ++dim) {
    if (out[dim] != 0) continue;
    inferred = dim;
    out[dim] = 1;
  }
  const int64_t count = kernels::numel(input.span());
  const std::optional<int64_t> known = checked_numel(out.span());
  if (known && inferred >= 0) out[inferred] = count / *known;
  if (known && *known * (inferred >= 0 ? out[inferred] : 1) == count) return out;
  return bad_input(
      fmt::format("{} cannot have the shape [{}]", text(input), fmt::join(node.numbers, ", ")));
}

Result<Dims> transposed(const Node& node, const Dims& input) {
  if (node.numbers.size() != static_cast<size_t>(input.rank())) {
    return bad_input(fmt::format("{} has not {} dimensions", text(input), node.numbers.size()));
  }
  Dims out;
  for (int64_t dim : node.numbers) out.push_back(input[static_cast<int>(dim)]);
  return out;
}

// Offsets, then sizes, of which 0 is the whole dimension.
Result<Dims> sliced(const Node& node, const Dims& input) {
  const size_t rank = node.numbers.size() / 2;
  if (rank != static_cast<size_t>(input.rank())) {
    return bad_input(fmt::format("{} has not {} dimensions", text(input), rank));
  }
  Dims out;
  for (size_t dim = 0; dim < rank; ++dim) {
    const int64_t all = input[static_cast<int>(dim)];
    const int64_t offset = node.numbers[dim], size = node.numbers[rank + dim];
    out.push_back(size == 0 ? all : size);
    if (offset > all || out.back() > all - offset) {
      return bad_input(fmt::format("{} elements from {} are not inside of dimension {} of {}",
                                   out.back(), offset, dim, text(input)));
    }
  }
  return out;
}

Result<Dims> joined(const Node& node, std::span<const Dims* const> inputs) {
  Dims out = *inputs[0];
  const int dim = FERRY_TRY(kernels::wrap_dim(node.numbers[0], out.rank()));
  for (const Dims* input : inputs.subspan(1)) {
    Dims other = *input;
    if (out.empty() || other.rank() != out.rank()) return mismatch(out, other);
    const std::optional<int64_t> sum = checked_add(out[dim], other[dim]);
    other[dim] = out[dim];
    if (!sum || !(other == out)) return mismatch(*inputs[0], *input);
    out[dim] = *sum;
  }
  return out;
}

Result<Dims> shape_of(const Node& node, std::span<const Dims* const> inputs) {
  switch (node.kind) {
    case NodeKind::kFullyConnected:
      return linear(*inputs[0], *inputs[1]);
    case NodeKind::kBatchMatrixMultiply:
      return batch_product(*inputs[0], *inputs[1]);
    case NodeKind::kStaticReshape:
      return reshaped(node, *inputs[0]);
    case NodeKind::kStaticTranspose:
      return transposed(node, *inputs[0]);
    case NodeKind::kStaticSlice:
      return sliced(node, *inputs[0]);
    case NodeKind::kConcatenate2:
    case NodeKind::kConcatenate3:
    case NodeKind::kConcatenate4:
    case NodeKind::kConcatenate5:
      return joined(node, inputs);
    default:
      return inputs.size() == 1 ? *inputs[0] : kernels::broadcast(*inputs[0], *inputs[1]);
  }
}

}  // namespace

Result<Dims> result_shape(const Node& node, std::span<const Dims* const> inputs) {
  const Dims out = FERRY_TRY(shape_of(node, inputs));
  const std::optional<int64_t> count = checked_numel(out.span());
  if (count && checked_mul<int64_t>(*count, sizeof(double))) return out;
  return bad_input(fmt::format("the size of {} overflows", text(out)));
}

}  // namespace ferry::runner
