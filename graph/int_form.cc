#include "graph/int_form.h"

namespace ferry::graph {

// Wraps around like the additions of the runtime; unsigned, because that is defined.
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
    const IntForm a = of(std::get<IntArg>(node.args[0]));
    const IntForm b = of(std::get<IntArg>(node.args[1]));
    return a.plus(b, node.op == Op::kIntAdd ? 1 : -1);
  }
  if (node.op == Op::kSymSize) {
    const Dims& shape = graph[std::get<ValueId>(node.args[0])].shape;
    const int64_t dim = std::get<IntArg>(node.args[1]).number;
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
