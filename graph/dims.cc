// Symbolic dimensions: sums, products, broadcasting.
#include "graph/dims.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/checked.h"
#include "formats/pte/operator_args.h"

namespace ferry::graph {
namespace {

// A dimension whose symbol has the factor 0 becomes static.
Dim canonical(int64_t base, int32_t symbol, int64_t scale) {
  return scale == 0 ? Dim(base) : Dim::of(symbol, scale, base);
}

bool compatible(const Dim& a, const Dim& b) {
  return a.is_static() || b.is_static() || a.symbol == b.symbol;
}

auto order_of(const Dim& d) { return std::tuple(d.symbol, d.scale, d.base); }

// Applies `op`, an overflow-checked operation, to the bases and the scales of a and b.
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

// Wraps around like the additions of the runtime. The arithmetic is unsigned, where C++ defines
// wrapping.
IntForm IntForm::plus(const IntForm& other, int64_t factor) const {
  const auto add_scaled = [factor](int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) +
                                static_cast<uint64_t>(factor) * static_cast<uint64_t>(b));
  };
  IntForm out = *this;
  out.base = add_scaled(base, other.base);
  for (const auto& [value, count] : other.terms) {
    int64_t& sum = out.terms[value];
    sum = add_scaled(sum, count);
    if (sum == 0) out.terms.erase(value);
  }
  return out;
}

IntForm IntForms::of(const IntArg& arg) const {
  if (!arg.value.valid()) return {.base = arg.number};
  const auto found = forms_.find(arg.value);
  return found != forms_.end() ? found->second : IntForm{.terms = {{arg.value, 1}}};
}

std::optional<IntForm> IntForms::of(const Graph& graph, const Dim& dim) const {
  if (dim.is_static()) return IntForm{.base = dim.base};
  const auto found = forms_.find(graph.symbols[static_cast<size_t>(dim.symbol)].value);
  if (found == forms_.end()) return std::nullopt;
  return IntForm{.base = dim.base}.plus(found->second, dim.scale);
}

std::optional<Dim> IntForms::to_dim(const Graph& graph, const IntForm& form) const {
  if (form.terms.empty()) return Dim(form.base);
  for (size_t i = 0; i < graph.symbols.size(); ++i) {
    const auto found = forms_.find(graph.symbols[i].value);
    if (found == forms_.end() || found->second.terms.empty()) continue;
    const auto& [atom, count] = *found->second.terms.begin();
    const auto same = form.terms.find(atom);
    if (same == form.terms.end() || same->second % count != 0) continue;
    const int64_t scale = same->second / count;
    const IntForm rest = form.plus(found->second, -scale);
    if (rest.terms.empty()) return Dim::of(static_cast<int32_t>(i), scale, rest.base);
  }
  return std::nullopt;
}

IntForm IntForms::form_of(const Graph& graph, const Node& node) const {
  const IntForm unknown = {.terms = {{node.outs[0], 1}}};
  if (node.op == Op::kIntAdd || node.op == Op::kIntSub) {
    const IntForm a = of(std::get<IntArg>(node.args[pte::ops::IntBinary::kA]));
    const IntForm b = of(std::get<IntArg>(node.args[pte::ops::IntBinary::kB]));
    return a.plus(b, node.op == Op::kIntAdd ? 1 : -1);
  }
  if (node.op == Op::kSymSize) {
    const Dims& shape = graph[std::get<ValueId>(node.args[pte::ops::SymSize::kSelf])].shape;
    const int64_t dim = std::get<IntArg>(node.args[pte::ops::SymSize::kDim]).number;
    const int64_t rank = static_cast<int64_t>(shape.size());
    return of(graph, shape[static_cast<size_t>(dim < 0 ? dim + rank : dim)]).value_or(unknown);
  }
  return unknown;
}

void IntForms::define(const Graph& graph, const Node& node) {
  if (node.outs.empty() || graph[node.outs[0]].kind != Value::Kind::kInt) return;
  forms_[node.outs[0]] = form_of(graph, node);
}

}  // namespace ferry::graph
