// Symbolic integers in normal form: base + sum(factor * unknown). They let the builder prove that
// the length of a slice from `pos` to `pos + T` is T.
#pragma once

#include <map>
#include <optional>

#include "graph/graph.h"

namespace ferry::graph {

// base + sum of factor * value; no factor is zero.
struct IntForm {
  int64_t base = 0;
  std::map<ValueId, int64_t> terms = {};
  bool operator==(const IntForm&) const = default;
  // this + factor * other
  IntForm plus(const IntForm& other, int64_t factor = 1) const;
};

class IntForms {
 public:
  // Learns the results of `node`, whose arguments are defined.
  void define(const Graph& graph, const Node& node);
  IntForm of(const IntArg& arg) const;
  // nullopt while the value of the symbol is not defined.
  std::optional<IntForm> of(const Graph& graph, const Dim& dim) const;
  // The dimension that is `form` large; nullopt if no symbol of the graph expresses it.
  std::optional<Dim> to_dim(const Graph& graph, const IntForm& form) const;

 private:
  IntForm form_of(const Graph& graph, const Node& node) const;
  std::map<ValueId, IntForm> forms_;
};

}  // namespace ferry::graph
