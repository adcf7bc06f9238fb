// GraphBuilder appends nodes with inferred shapes. Family files are written against it. A misuse
// (an impossible shape) is a defect of Ferry or a config that the checks of ModelConfig accepted.
// The first misuse is stored and returned by finish(), so that building code needs no error
// handling.
//
// The order of nodes determines the bytes of a program, and compilers differ in which argument of a
// call they evaluate first. So at most one argument of a call may append nodes; others must be
// variables that were set before. A braced list is evaluated in order, even if its items append
// nodes: the arguments of emit() and the parts of cat() are such lists. The test ProgramBytes
// compares programs with recorded bytes.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/dims.h"
#include "graph/graph.h"

namespace ferry::graph {

// Rows of codes: real = (code - zero_point) * scale.
struct CodedRows {
  ValueId codes;        // i8 [...,D]
  ValueId scales;       // f32 [...,1]
  ValueId zero_points;  // i8 [...,1]
};

class GraphBuilder {
 public:
  explicit GraphBuilder(int32_t num_layers);

  // -- values
  int32_t symbol(std::string name, int64_t max, ValueId int_value);
  // Declares the number of windows of `size` elements, `step` apart, in a dynamic dimension with
  // `padding` elements on each side. conv() needs it where its step is not 1.
  int32_t windows(std::string name, const Dim& of, int64_t size, int64_t step, int64_t padding = 0);
  // Binds a symbol that was declared before its value existed, such as the size of an input.
  void bind_symbol(int32_t symbol, ValueId int_value);
  ValueId input(std::string name, DType dtype, Dims shape);
  // Shapes given to the functions below name the axes of their dimensions (Dim::as).
  //
  // Weights are f32 in the graph; the cast pass decides the stored dtype. A name has one value, so
  // a second call with the name must have the same shape.
  ValueId weight(std::string name, Dims shape);
  // Declares a weight that stays f32 whatever the dtype of the others is.
  ValueId weight_f32(std::string name, Dims shape);
  // Names that are given to weight() and weight_f32() after this call follow `prefix`.
  void set_weight_prefix(std::string prefix) { weight_prefix_ = std::move(prefix); }
  ValueId buffer(std::string name, DType dtype, Dims shape);  // initially zero
  ValueId literal(DType dtype, Dims shape, Literal literal);
  ValueId scalar(float value);  // rank-0 f32 literal, one per distinct value
  void output(ValueId value, std::string name);
  // Sets the meaning of the codes of an input or output of u8 or u16.
  void set_encoding(ValueId value, Encoding encoding);
  void probe(std::string name, ValueId value);
  // Names a value that must be an input or output of a part of the model.
  void name(ValueId value, std::string name);
  // Nodes appended after this call belong to decoder layer `layer`.
  void set_layer(int32_t layer);

  // -- any operator

  // Appends a node with fresh outs of inferred types. All named methods below use emit() or
  // emit_into().
  std::vector<ValueId> emit(Op op, std::vector<Arg> args);
  // Writes into existing values (buffers) of the inferred shapes and dtypes. An invalid id asks for
  // a fresh out. Returns all outs.
  std::vector<ValueId> emit_into(Op op, std::vector<Arg> args, std::vector<ValueId> outs);

  // -- common operators
  ValueId embedding(ValueId table, ValueId ids);  // (vocab, dim), i64 [1,T] -> [1,T,dim]
  ValueId linear(ValueId x, ValueId w);           // [..,in], (out, in) -> [..,out]
  ValueId bmm(ValueId a, ValueId b);              // [B,m,k], [B,k,n] -> [B,m,n]
  ValueId add(ValueId a, ValueId b);
  ValueId sub(ValueId a, ValueId b);
  ValueId mul(ValueId a, ValueId b);
  ValueId mul(ValueId a, double b);
  ValueId div(ValueId a, ValueId b);
  ValueId mean_last(ValueId x);  // over the last dimension, which is kept
  ValueId sum_last(ValueId x);
  ValueId amin_last(ValueId x);
  ValueId cumsum_last(ValueId x);
  ValueId rsqrt(ValueId x);
  ValueId cos(ValueId x);
  ValueId sin(ValueId x);
  ValueId sigmoid(ValueId x);
  ValueId exp(ValueId x);
  ValueId log1p(ValueId x);
  ValueId tanh(ValueId x);
  ValueId gelu(ValueId x, std::string approximate);  // "none" or "tanh"
  ValueId relu(ValueId x);
  ValueId clamp(ValueId x, double low, double high);
  ValueId clamp(ValueId x, ValueId low, ValueId high);  // by tensors that broadcast to x
  ValueId softmax_last(ValueId x);
  // Returns the k largest values of the last dimension in descending order, and their indices
  // (i64).
  std::pair<ValueId, ValueId> topk_last(ValueId x, int64_t k);
  // Computes out[.., i] = x[.., index[.., i]]. `index` is i64 in the range of the last dimension of
  // x.
  ValueId gather_last(ValueId x, ValueId index);
  // Routed experts (experts.h). If the biases are valid, they are added, and the gate is that of
  // GPT-OSS; else `activation` is that of the gate: silu, gelu, gelu_tanh or relu.
  struct ExpertBiases {
    ValueId b1, b3, b2;
    double steepness, limit;
  };
  ValueId experts(ValueId x, ValueId ids, ValueId scores, ValueId w1, ValueId w3, ValueId w2,
                  const ExpertBiases& biases = {}, std::string activation = "silu");
  ValueId where(ValueId condition, ValueId a, ValueId b);
  ValueId cat(std::vector<ValueId> parts, int64_t dim);
  ValueId slice(ValueId x, int64_t dim, IntArg start, IntArg end);
  ValueId select(ValueId x, int64_t dim, int64_t index);
  ValueId permute(ValueId x, const std::vector<int64_t>& dims);
  ValueId unsqueeze(ValueId x, int64_t dim);
  ValueId expand(ValueId x, const Dims& shape);
  ValueId expand_to(ValueId x, const std::vector<IntArg>& sizes);
  // The result has the axes that `shape` names. Leading dimensions that x also has keep their axes.
  ValueId view(ValueId x, const Dims& shape);
  std::vector<ValueId> split(ValueId x, const std::vector<int64_t>& sizes, int64_t dim);
  ValueId to(ValueId x, DType dtype);
  ValueId sym_size(ValueId x, int64_t dim);
  ValueId item(ValueId x);  // rank-0 or one-element i64 -> Int
  ValueId int_add(IntArg a, IntArg b);
  ValueId int_sub(IntArg a, IntArg b);
  ValueId int_max(IntArg a, IntArg b);
  ValueId eq(ValueId x, int64_t number);  // bool
  ValueId gt(ValueId x, double number);
  ValueId ge(ValueId x, int64_t number);
  ValueId lt(ValueId x, int64_t number);
  ValueId logical_and(ValueId a, ValueId b);
  ValueId logical_or(ValueId a, ValueId b);
  // Returns the remainder of i64 x that has the sign of `divisor`.
  ValueId remainder(ValueId x, int64_t divisor);
  // Returns i64 [length] = start, start + 1, ..., end - 1. `length` is end - start in the caller's
  // terms.
  ValueId arange(IntArg start, IntArg end, Dim length);
  // Slices with symbolic bounds. `length` is end - start in the caller's terms.
  ValueId slice(ValueId x, int64_t dim, IntArg start, IntArg end, Dim length);
  // Writes slice(x, dim, start, end) into a buffer, or into a fresh value if `buffer` is invalid.
  // Returns the written value.
  ValueId slice_into(ValueId buffer, ValueId x, int64_t dim, int64_t start, int64_t end);
  void copy_into(ValueId buffer, ValueId source);
  // Normalises over the last dimension. Both weight and bias are [width], or both are invalid.
  ValueId layer_norm(ValueId x, ValueId weight, ValueId bias, double eps);
  // x [1,C,L], w (C,1,K) -> [1,C,L-K+1]
  ValueId depthwise_conv1d(ValueId x, ValueId w);
  // x [1,C,L], w (N,C/groups,K), bias [N] or invalid -> [1,N,(L+2 padding-K)/step+1]; likewise over
  // two dimensions, x [1,C,H,W] and w (N,C/groups,K,K'). Padding is of zeros. The step and the
  // padding of the last of two dimensions are those of the first unless they are stated.
  struct Steps {
    int64_t step = 1, padding = 0, groups = 1;
    std::optional<int64_t> last_step = {}, last_padding = {};
  };
  ValueId conv(ValueId x, ValueId w, ValueId bias, const Steps& steps);

  // -- codes of 8 or 16 bits
  // Computes code = clamp(round(x / scale) + zero_point) over the range of the dtype, halves to
  // even. One scale serves the whole tensor. The dtype is kU8, kI8, kU16 or kI16.
  ValueId quantize(ValueId x, double scale, int64_t zero_point, DType dtype);
  // Computes (code - zero_point) * scale in f32.
  ValueId dequantize(ValueId x, double scale, int64_t zero_point);

  // Quantises the rows of f32 x [...,D] to i8, each with its own scale and zero point, which hold
  // the greatest and the least value of the row, and 0.
  CodedRows quantize_rows(ValueId x);
  ValueId dequantize_rows(const CodedRows& rows);
  ValueId to_dtype(ValueId x, DType dtype);

  // -- llama:: operators (sequence in dim 1)

  ValueId fallback(ValueId x);  // a copy

  // Writes value [1,T,KV,D] into cache [1,ctx,KV,D] at start_pos.
  void update_cache(ValueId value, ValueId cache, IntArg start_pos);
  // Writes row t of value to position indices[0,t] of the cache; `indices` is i64 [1,T].
  void update_cache_rows(ValueId value, ValueId cache, IntArg start_pos, ValueId indices);
  // Computes attention, causal from start_pos: query [1,T,H,D], caches [1,n,KV,D] -> [1,T,H,D].
  // Scores are multiplied by `scale`, or by 1/sqrt(D) if it is absent.
  ValueId sdpa(ValueId query, ValueId keys, ValueId values, IntArg start_pos,
               std::optional<double> scale = {});
  // Computes attention of every query to all keys. The operator reads `start_pos` + T of them, so
  // that `start_pos` must be n - T where these differ.
  ValueId sdpa_full(ValueId query, ValueId keys, ValueId values, std::optional<double> scale = {},
                    IntArg start_pos = 0);
  // Computes attention to every key with an additive mask [T,n] instead of causality.
  ValueId sdpa_masked(ValueId query, ValueId keys, ValueId values, ValueId mask,
                      std::optional<double> scale = {});
  // query, key [1,H,T,K], value [1,H,T,V], decay, beta [1,H,T], state [1,H,K,V] -> [1,H,T,V] and
  // the final state. The final state is written into `final_state`, a buffer that must not be
  // `state`, or into a fresh value if `final_state` is invalid.
  std::pair<ValueId, ValueId> gated_delta_rule(ValueId query, ValueId key, ValueId value,
                                               ValueId decay, ValueId beta, ValueId state,
                                               ValueId final_state);

  const Graph& graph() const { return graph_; }
  // Returns the validated graph, or the first misuse.
  Result<Graph> finish();

 private:
  void misuse(std::string message);
  ValueId add_value(Value value);
  ValueId emit_one(Op op, std::vector<Arg> args);
  IntArg size_arg(const Dim& dim);
  std::vector<IntArg> size_args(const Dims& shape);
  // Names axes that inference could not name. A name that contradicts an inferred axis is a misuse.
  ValueId name_axes(ValueId value, const Dims& named);
  // Checks that the caller's length equals the inferred one.
  ValueId expect_length(ValueId value, int64_t dim, const Dim& length);

  Graph graph_;
  std::unordered_map<std::string, ValueId> weights_;  // by name
  std::string weight_prefix_;
  struct LiteralValues {
    int32_t index = 0;            // into Graph::literals
    std::vector<ValueId> values;  // one for each dtype and shape
  };
  std::unordered_map<std::string, LiteralValues> literals_;  // by key
  IntForms forms_;
  int32_t layer_ = -1;
  std::string error_;
};

}  // namespace ferry::graph
