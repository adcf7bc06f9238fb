// Symbolic dimensions: sums, products, broadcasting.
#include "graph/dims.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/checked.h"

namespace ferry::graph {
namespace {

// Canonical: a symbol that drops out leaves a static dimension.
Dim canonical(int64_t base, int32_t symbol, int64_t scale) {
  return scale == 0 ? Dim(base) : Dim::of(symbol, scale, base);
}

bool compatible(const Dim& a, const Dim& b) {
  return a.is_static() || b.is_static() || a.symbol == b.symbol;
}

auto order_of(const Dim& d) { return std::tuple(d.symbol, d.scale, d.base); }

// a op b of bases and scales, with `op` an overflow-checked operation.
template <class Op>
std::optional<Dim> combine(const Dim& a, const Dim& b, Op op) {
  if (!compatible(a, b)) return std::nullopt;
  int64_t base = 0;
  int64_t scale = 0;
  if (op(a.base, b.base, &base) || op(a.scale, b.scale, &scale)) return std::nullopt;
  return canonical(base, a.is_static() ? b.symbol : a.symbol, scale).as(a.axis);
}

std::optional<Dim> broadcast_dim(const Dim& a, const Dim& b) {
  const std::optional<Axis> axis = join(a.axis, b.axis);
  if (!axis) return std::nullopt;
  if (a == b || b == Dim(1)) return a.as(*axis);
  if (a == Dim(1)) return b.as(*axis);
  return std::nullopt;
}

}  // namespace

std::optional<Dim> dim_add(const Dim& a, const Dim& b) {
  return combine(
      a, b, [](int64_t x, int64_t y, int64_t* out) { return __builtin_add_overflow(x, y, out); });
}

std::optional<Dim> dim_sub(const Dim& a, const Dim& b) {
  return combine(
      a, b, [](int64_t x, int64_t y, int64_t* out) { return __builtin_sub_overflow(x, y, out); });
}

std::optional<Axis> join(Axis a, Axis b) {
  if (a == b || b == Axis::kNone) return a;
  return a == Axis::kNone ? std::optional(b) : std::nullopt;
}

bool axes_agree(const Dims& a, const Dims& b) {
  return std::ranges::equal(
      a, b, [](const Dim& x, const Dim& y) { return join(x.axis, y.axis).has_value(); });
}

bool carries_axes(const Dims& dims, const Dims& inferred) {
  return std::ranges::equal(dims, inferred, [](const Dim& has, const Dim& wanted) {
    return wanted.axis == Axis::kNone || wanted.axis == has.axis;
  });
}

bool is_static(const Dims& dims) {
  return std::ranges::all_of(dims, [](const Dim& dim) { return dim.is_static(); });
}

int64_t dim_min(const Dim& dim) { return dim.base + dim.scale; }

std::optional<Dims> broadcast(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims out = longer;
  const size_t skip = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const std::optional<Dim> dim = broadcast_dim(longer[skip + i], shorter[i]);
    if (!dim) return std::nullopt;
    out[skip + i] = *dim;
  }
  return out;
}

std::optional<ElementCount> element_count(std::span<const Dim> dims) {
  ElementCount count;
  for (Dim dim : dims) {
    int64_t constant = dim.base;
    if (!dim.is_static()) {
      constant = std::gcd(dim.base, dim.scale);
      count.factors.push_back(Dim::of(dim.symbol, dim.scale / constant, dim.base / constant));
    }
    const std::optional<int64_t> product = checked_mul(count.constant, constant);
    if (!product) return std::nullopt;
    count.constant = *product;
  }
  std::ranges::sort(count.factors, {}, order_of);
  return count;
}

std::optional<Dim> quotient(const ElementCount& dividend, const ElementCount& divisor) {
  if (divisor.constant == 0 || dividend.constant % divisor.constant != 0) return std::nullopt;
  Dims left;
  std::ranges::set_difference(dividend.factors, divisor.factors, std::back_inserter(left), {},
                              order_of, order_of);
  if (left.size() > 1 || left.size() + divisor.factors.size() != dividend.factors.size()) {
    return std::nullopt;
  }
  const int64_t constant = dividend.constant / divisor.constant;
  if (left.empty()) return Dim(constant);
  const std::optional<int64_t> scale = checked_mul(constant, left[0].scale);
  const std::optional<int64_t> base = checked_mul(constant, left[0].base);
  if (!scale || !base) return std::nullopt;
  return canonical(*base, left[0].symbol, *scale);
}

std::string to_text(const Graph& graph, const Dim& dim) {
  if (dim.is_static()) return fmt::format("{}", dim.base);
  const size_t index = static_cast<size_t>(dim.symbol);
  std::string text = index < graph.symbols.size() ? graph.symbols[index].name : "?";
  if (dim.scale != 1) text = fmt::format("{}*{}", dim.scale, text);
  return dim.base == 0 ? text : fmt::format("{}{:+}", text, dim.base);
}

std::string to_text(const Graph& graph, DType dtype, const Dims& shape) {
  std::string text;
  for (const Dim& dim : shape) {
    text += (text.empty() ? "" : ",") + to_text(graph, dim);
    if (dim.axis != Axis::kNone) text += fmt::format(":{}", axis_name(dim.axis));
  }
  return fmt::format("{}[{}]", dtype_name(dtype), text);
}

}  // namespace ferry::graph
