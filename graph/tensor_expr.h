// TensorExpr: a weight of the model as an expression over tensors of the checkpoint. Metadata until
// it is materialised, and then in tiles, so that converting a model never holds a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/shape.h"
#include "core/tensor_source.h"

namespace ferry::graph {

// Rows [begin, begin + count) of source entry `entry`, a row being one slice of its outermost
// dimension, or of the TensorExpr::row_rank outermost ones. A rank-0 entry has one row.
struct RowRun {
  size_t entry = 0;  // index into TensorSource::entries()
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const RowRun&) const = default;
};

// Element-wise adjustment, computed in f32 before the final cast.
struct ElementStep {
  enum class Kind {
    kAdd,     // x + value        (norms stored as w - 1)
    kMul,     // x * value
    kNegExp,  // -exp(x)          (A_log)
  } kind;
  double value = 0;
  bool operator==(const ElementStep&) const = default;
};

// The rows of the result are `rows` one after the other; elements then pass through `steps`, and
// are cast from `source_dtype` to `dtype`. With no step and equal dtypes bytes are copied as they
// are. All entries share one dtype and one row size.
struct TensorExpr {
  DType source_dtype = DType::kF32;
  DType dtype = DType::kF32;
  Shape shape = {};  // of the result
  std::vector<RowRun> rows = {};
  std::vector<ElementStep> steps = {};
  size_t row_rank = 1;

  uint64_t bytes() const;
  bool is_copy() const { return steps.empty() && source_dtype == dtype; }
  // Two expressions with equal values produce identical bytes.
  bool operator==(const TensorExpr&) const = default;
};

// The whole entry as it is.
TensorExpr expr_of_entry(const TensorSource& source, size_t entry);

// Fills `out` with bytes [offset, offset + out.size()) of the result; both must be multiples of the
// element size of `expr.dtype`. Thread-safe. Uses memory proportional to out.size(). kInterrupted
// once something has asked to stop.
Status materialize(const TensorExpr& expr, const TensorSource& source, uint64_t offset,
                   std::span<std::byte> out);

// One weight of the model.
struct Weight {
  std::string name;  // runtime name, "layers.0.attention.wq.weight"
  TensorExpr expr;
  std::string rule;  // name of the key rule that produced it
};

// Ordered runtime name -> expression; names are unique.
class StateDict {
 public:
  // kBadInput if the name is taken.
  Status add(Weight weight);
  const Weight* find(const std::string& name) const;
  Weight* find(const std::string& name);
  const std::vector<Weight>& weights() const { return weights_; }

 private:
  std::vector<Weight> weights_;
  std::unordered_map<std::string, size_t> index_;  // by name
};

}  // namespace ferry::graph
