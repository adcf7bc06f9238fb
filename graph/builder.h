// GraphBuilder: appends nodes with inferred shapes. Family files are written against it. A misuse
// (shape that cannot be) is a defect of ours or a config that the checks of ModelConfig let through;
// it is remembered and returned by finish(), so that building code stays free of error handling.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace ferry {

class GraphBuilder {
 public:
  explicit GraphBuilder(int32_t num_layers);

  // -- values ------------------------------------------------------------------------------------
  int32_t symbol(std::string name, int64_t max, ValueId int_value);
  ValueId input(std::string name, DType dtype, Dims shape);
  // f32 as far as the graph is concerned; the cast pass settles the stored dtype.
  ValueId weight(std::string name, Dims shape);
  ValueId buffer(std::string name, DType dtype, Dims shape);  // initially zero
  ValueId literal(DType dtype, Shape shape, Literal literal);
  ValueId scalar(float value);     // rank-0 f32 literal, one per distinct value
  ValueId int_range(int64_t n);    // i64 literal [n] = 0, 1, ..., n-1
  void output(ValueId value, std::string name);
  void probe(std::string name, ValueId value);
  // Nodes appended from here on belong to decoder layer `layer`.
  void set_layer(int32_t layer);

  // -- any operator --------------------------------------------------------------------------------
  // Fresh outs, inferred. The named methods below are all written with these two.
  std::vector<ValueId> emit(Op op, std::vector<Arg> args);
  // The same writing into an existing value (a buffer) of the inferred shape and dtype.
  void emit_into(Op op, std::vector<Arg> args, std::vector<ValueId> outs);

  // -- the usual ones ------------------------------------------------------------------------------
  ValueId embedding(ValueId table, ValueId ids);   // (vocab, dim), i64 [1,T] -> [1,T,dim]
  ValueId linear(ValueId x, ValueId w);            // [..,in], (out, in) -> [..,out]
  ValueId add(ValueId a, ValueId b);
  ValueId sub(ValueId a, ValueId b);
  ValueId mul(ValueId a, ValueId b);
  ValueId mul(ValueId a, double b);
  ValueId mean_last(ValueId x);                    // over the last dim, kept
  ValueId sum_last(ValueId x);
  ValueId rsqrt(ValueId x);
  ValueId sigmoid(ValueId x);
  ValueId exp(ValueId x);
  ValueId log1p(ValueId x);
  ValueId where(ValueId condition, ValueId a, ValueId b);
  ValueId cat(std::vector<ValueId> parts, int64_t dim);
  ValueId slice(ValueId x, int64_t dim, IntArg start, IntArg end);
  ValueId select(ValueId x, int64_t dim, int64_t index);
  ValueId permute(ValueId x, std::vector<int64_t> dims);
  ValueId unsqueeze(ValueId x, int64_t dim);
  ValueId expand(ValueId x, Dims shape);
  ValueId view(ValueId x, Dims shape);
  std::vector<ValueId> split(ValueId x, std::vector<int64_t> sizes, int64_t dim);
  ValueId to(ValueId x, DType dtype);
  ValueId sym_size(ValueId x, int64_t dim);
  ValueId item(ValueId x);                         // rank-0 or one-element i64 -> Int
  ValueId int_add(IntArg a, IntArg b);
  ValueId int_sub(IntArg a, IntArg b);
  ValueId int_max(IntArg a, IntArg b);

  const Graph& graph() const { return graph_; }
  // The graph, validated; or the first misuse.
  Result<Graph> finish();

 private:
  Graph graph_;
  int32_t layer_ = -1;
  std::string error_;
};

}  // namespace ferry
