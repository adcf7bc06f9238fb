// Arithmetic of dimensions, shapes and symbolic integers, as far as symbols allow it. This is not a
// public header.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "graph/graph.h"

namespace ferry::graph {

// Returns nullopt if the result is no Dim (two different symbols) or does not fit. The result has
// the axis of `a`.
std::optional<Dim> dim_add(const Dim& a, const Dim& b);
std::optional<Dim> dim_sub(const Dim& a, const Dim& b);
// Returns whether no dimension has a symbol.
bool is_static(const Dims& dims);
// Returns the smallest value of `dim`; a symbol is at least 1.
int64_t dim_min(const Dim& dim);

// Returns the common axis of two dimensions, of which either may be unnamed, or nullopt if they
// have different names.
std::optional<Axis> join(Axis a, Axis b);
// Returns whether each pair of dimensions has a common axis. The shapes have the same rank.
bool axes_agree(const Dims& a, const Dims& b);
// Returns whether `dims` has every axis that is named in `inferred`. The shapes have the same rank.
bool carries_axes(const Dims& dims, const Dims& inferred);

// Returns the shape to which torch broadcasts `a` and `b`, with their common axes, or nullopt if
// there is none.
std::optional<Dims> broadcast(const Dims& a, const Dims& b);

// A product of dimensions in normal form, so that equal counts compare equal: [T, 8] equals [2*T,
// 4].
struct ElementCount {
  int64_t constant = 1;
  Dims factors = {};  // the symbolic dimensions without a common divisor, ordered
  bool operator==(const ElementCount&) const = default;
};
// Returns nullopt on overflow.
std::optional<ElementCount> element_count(std::span<const Dim> dims);
// Returns the dimension d with d * divisor = dividend, or nullopt if there is none.
std::optional<Dim> quotient(const ElementCount& dividend, const ElementCount& divisor);

// Writes a dimension as "7", "T" or "2*T+4".
std::string to_text(const Graph& graph, const Dim& dim);
// Writes "f32[1,T,64]", or "f32[1:batch,T:sequence,64:feature]" if axes are named.
std::string to_text(const Graph& graph, DType dtype, const Dims& shape);

// A symbolic integer in normal form: base + sum of factor * value, where no factor is zero. With
// this form the builder proves that the length of a slice from `pos` to `pos + T` is T.
struct IntForm {
  int64_t base = 0;
  std::map<ValueId, int64_t> terms = {};
  bool operator==(const IntForm&) const = default;
  // Returns this + factor * other.
  IntForm plus(const IntForm& other, int64_t factor = 1) const;
};

class IntForms {
 public:
  // Records the results of `node`, whose arguments are defined.
  void define(const Graph& graph, const Node& node);
  IntForm of(const IntArg& arg) const;
  // Returns nullopt while the value of the symbol is not defined.
  std::optional<IntForm> of(const Graph& graph, const Dim& dim) const;
  // Returns the dimension of the size `form`, or nullopt if no symbol of the graph expresses it.
  std::optional<Dim> to_dim(const Graph& graph, const IntForm& form) const;

 private:
  IntForm form_of(const Graph& graph, const Node& node) const;
  std::map<ValueId, IntForm> forms_;
};

}  // namespace ferry::graph
