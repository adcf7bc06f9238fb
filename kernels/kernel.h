// Functions that kernels share: typed access to arguments, output sizes, and messages.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>

#include "core/checked.h"
#include "core/result.h"
#include "kernels/kernel_table.h"

namespace ferry::kernels {

// -- arguments, by position; kinds are those of the operator's schema
inline Tensor& tensor(const Call& call, size_t i) { return *call.args[i]->tensor; }
inline const Tensor* optional_tensor(const Call& call, size_t i) {
  return call.args[i]->kind == Value::Kind::kNone ? nullptr : call.args[i]->tensor;
}
inline std::span<Value* const> list(const Call& call, size_t i) { return call.args[i]->items; }
inline int64_t integer(const Call& call, size_t i) { return call.args[i]->integer; }
inline std::optional<int64_t> optional_int(const Call& call, size_t i) {
  if (call.args[i]->kind == Value::Kind::kNone) return std::nullopt;
  return call.args[i]->integer;
}
inline bool boolean(const Call& call, size_t i) { return call.args[i]->boolean; }
inline Number number(const Call& call, size_t i) { return call.args[i]->number(); }
inline std::optional<Number> optional_number(const Call& call, size_t i) {
  if (call.args[i]->kind == Value::Kind::kNone) return std::nullopt;
  return call.args[i]->number();
}
// kBadInput for more than kMaxRank entries.
Result<Dims> int_list(const Call& call, size_t i);

// Returns an element of an i64 or i32 tensor.
inline int64_t index_at(const Tensor& indices, int64_t i) {
  return indices.dtype == DType::kI32 ? indices.as<int32_t>()[i] : indices.as<int64_t>()[i];
}

// -- shapes

// Sets the run-time shape of `out`. kBadInput if `out` is static and differs, or if its planned
// memory is too small.
Status resize(Tensor& out, const Dims& sizes);
// Maps dim in [-rank, rank) to [0, rank). A tensor of rank 0 counts as rank 1.
Result<int> wrap_dim(int64_t dim, int rank);
// Returns the broadcast shape by NumPy's rules; kBadInput if there is none.
Result<Dims> broadcast(const Dims& a, const Dims& b);

// Elements start, start + step, ... of a dimension.
struct Range {
  int64_t start, count, step;
};
// Applies torch's rule: negative positions count from the end, and positions are clamped. kBadInput
// for a step below 1.
Result<Range> slice_range(int64_t size, std::optional<int64_t> start, std::optional<int64_t> end,
                          int64_t step);

// -- checks
// Describes a tensor in a message, such as "value 17 (f32[1, 64])".
std::string describe(const Tensor& tensor);
Status require_dtype(const Tensor& tensor, DType dtype);
Status require_same_dtype(const Tensor& a, const Tensor& b);
Status require_rank(const Tensor& tensor, int rank);
Status require_sizes(const Tensor& tensor, const Dims& sizes);
// Requires i64 or i32 numbers in [0, rows).
Status require_indices(const Tensor& indices, int64_t rows);

// -- results that are scalars

// kBadInput when the value's declared kind cannot hold `number`.
Status set_number(Value& out, Number number);

// Sets every element of `out`. Defined in fill.cc.
void fill(Tensor& out, const Number& value);

// -- parallel loops

// Calls body(begin, end) over [0, count) in pieces of `piece` items, on the pool if there are
// several pieces.
template <class Body>
void for_pieces(ThreadPool& pool, int64_t count, int64_t piece, const Body& body) {
  const int64_t pieces = (count + piece - 1) / piece;
  const auto run = [&](size_t i) {
    const int64_t begin = static_cast<int64_t>(i) * piece;
    body(begin, std::min(count, begin + piece));
  };
  if (pieces <= 1) {
    if (count > 0) run(0);
  } else {
    // std::ref avoids a copy of `run`, which would allocate.
    pool.parallel_for(static_cast<size_t>(pieces), std::ref(run));
  }
}

}  // namespace ferry::kernels
