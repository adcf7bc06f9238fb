// Routed experts are one node of a graph and a loop of the program. Each token passes through the
// few experts that its router chose, so the work depends on the chosen experts, not on their total
// number.
//
//   x [T,hidden] f32, ids i64 [T,k], scores f32 [T,k], w1 and w3 (experts, inner, hidden),
//   w2 (experts, hidden, inner), s1, s3 and s2, b1, b3 and b2, steepness, limit, e1, e3 and e2,
//   activation
//   -> out [T,hidden] f32, scratch u8 [n]
//   out[t] = sum over the slots s of scores[t,s] * w2[e] (a(w1[e] x[t]) * (w3[e] x[t])),
//   e = ids[t,s]; the ids of one token differ; a is the activation: silu, gelu, gelu_tanh or relu
//
// Without w3 there is no gate: w2[e] relu(w1[e] x[t])^2.
//
// If there are biases, b1 and b3 f32 [experts,inner] and b2 f32 [experts,hidden], they are added to
// the three products, and the gate of GPT-OSS replaces a(g) * u:
//   g' * sigmoid(steepness * g') * (u' + 1), g' = min(g, limit), u' = min(max(u, -limit), limit)
//
// A matrix of floats is [experts,rows,columns] and has no scales. A matrix of codes, i4 or i8, is a
// table [experts * rows,columns], from which the program takes the rows of an expert with an
// embedding operator; its scales are f32 [experts * rows] or [experts * rows,groups]. A matrix in
// blocks of GGUF files is u8 [experts,rows,bytes of a row] and has no scales; the name of its
// encoding is e1, e3 or e2, which is empty for other matrices.
//
// The program iterates over the experts that any token chose, as the reference implementation does.
// It takes the expert's matrices and tokens, and adds the outcome to the result. The memory of the
// loop's body is planned separately and is the node's second out: bytes that no other node reads.
// It holds one matrix of one expert at a time, whatever the number of experts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/pte/op_schema.h"
#include "graph/graph.h"
#include "graph/memory_plan.h"

namespace ferry::graph {

// The arguments of the node. Matrices, scales and biases have one order.
struct ExpertsArgs {
  enum Arg : size_t {
    kX,
    kIds,
    kScores,
    kW1,
    kW3,
    kW2,
    kS1,
    kS3,
    kS2,
    kB1,
    kB3,
    kB2,
    kSteepness,
    kLimit,
    kE1,
    kE3,
    kE2,
    kActivation
  };
  static constexpr bool is_matrix(size_t arg) { return arg >= kW1 && arg <= kW2; }
};

// The program of one node of experts, over its own values.
struct ExpertsProgram {
  struct Local {
    enum class Kind {
      kPort,     // an argument of the node or its result, the tensor `port`
      kScratch,  // planned inside the node's scratch out
      kInt,      // an integer that instructions write
      kBool,
    } kind;
    ValueId port = {};
    DType dtype = DType::kF32;
    Dims shape = {};       // upper bounds
    bool dynamic = false;  // smaller if there are fewer tokens
    size_t slot = 0;       // kScratch: index into MemoryPlan::offsets
  };
  struct Ref {
    size_t local = 0;
  };
  struct RefList {
    std::vector<Ref> items;
  };
  using Operand = std::variant<std::monostate, Ref, RefList, int64_t, double, bool, std::string>;
  struct Call {
    std::string_view op;  // name of an operator of the runtime
    std::vector<Operand> inputs;
    std::vector<Ref> outs;
  };

  std::vector<Local> locals;
  std::vector<Call> setup;  // before the loop
  std::vector<Call> body;   // executed once for every chosen expert, at least once
  Ref counter;              // Int, zero before the loop
  Ref done;                 // Bool, which the body sets at its end
  MemoryPlan scratch;
};

ExpertsProgram experts_program(const Graph& graph, const Node& node);

// Returns the argument list of the node in the form of an operator of the runtime.
const pte::OpSchema& experts_schema();

}  // namespace ferry::graph
