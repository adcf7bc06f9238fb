// Arithmetic of dimensions, shapes and symbolic integers, as far as symbols allow it. Not a public
// header.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "graph/graph.h"

namespace ferry::graph {

// nullopt where the result is no Dim (two different symbols) or does not fit. The axis is that of
// `a`.
std::optional<Dim> dim_add(const Dim& a, const Dim& b);
std::optional<Dim> dim_sub(const Dim& a, const Dim& b);
// Whether no dimension has a symbol.
bool is_static(const Dims& dims);
// Smallest value; a symbol is at least 1.
int64_t dim_min(const Dim& dim);

// The axis that two dimensions have in common, where one of them may not be named; nullopt if they
// have different names.
std::optional<Axis> join(Axis a, Axis b);
// Whether each pair of dimensions has a common axis. The shapes have the same rank.
bool axes_agree(const Dims& a, const Dims& b);
// Whether `dims` has every axis that is named in `inferred`. The shapes have the same rank.
bool carries_axes(const Dims& dims, const Dims& inferred);

// The shape that torch broadcasts `a` and `b` to, with their common axes; nullopt if there is none.
std::optional<Dims> broadcast(const Dims& a, const Dims& b);

// A product of dimensions in normal form: equal counts compare equal, [T, 8] like [2*T, 4].
struct ElementCount {
  int64_t constant = 1;
  Dims factors = {};  // symbolic ones without a common divisor, ordered
  bool operator==(const ElementCount&) const = default;
};
// nullopt on overflow.
std::optional<ElementCount> element_count(std::span<const Dim> dims);
// The dimension d with d * divisor = dividend; nullopt if there is none.
std::optional<Dim> quotient(const ElementCount& dividend, const ElementCount& divisor);

// "7", "T", "2*T+4"
std::string to_text(const Graph& graph, const Dim& dim);
// "f32[1,T,64]"; "f32[1:batch,T:sequence,64:feature]" where axes are named.
std::string to_text(const Graph& graph, DType dtype, const Dims& shape);

// A symbolic integer in normal form, which lets the builder prove that the length of a slice from
// `pos` to `pos + T` is T: base + sum of factor * value; no factor is zero.
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
