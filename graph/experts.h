// Routed experts: one node of a graph, a loop of the program. Each token passes through the few
// experts that its router chose, so the work follows the chosen ones, not all that there are.
//
//   x [T,hidden] f32, ids i64 [T,k], scores f32 [T,k], w1 and w3 (experts, inner, hidden),
//   w2 (experts, hidden, inner), s1, s3 and s2, b1, b3 and b2, steepness, limit
//   -> out [T,hidden] f32, scratch u8 [n]
//   out[t] = sum over the slots s of scores[t,s] * w2[e] (silu(w1[e] x[t]) * (w3[e] x[t])),
//   e = ids[t,s]; the ids of one token differ
//
// Where there are biases, b1 and b3 f32 [experts,inner] and b2 f32 [experts,hidden], they are added
// to the three products, and in place of silu(g) * u stands the gate of GPT-OSS:
//   g' * sigmoid(steepness * g') * (u' + 1), g' = min(g, limit), u' = min(max(u, -limit), limit)
//
// A matrix of floats is [experts,rows,columns] and has no scales. One of codes, i4 or i8, is a
// table [experts * rows,columns], from which the program takes the rows of an expert as an
// embedding does; its scales are f32 [experts * rows] or [experts * rows,groups].
//
// The program goes over the experts that any token chose, as the reference implementation does:
// it takes the expert's matrices and tokens, and adds what they give to the result. What the body
// of the loop needs in memory is planned by itself and is the node's second out: bytes that no
// other node reads. It holds one matrix of one expert at a time, whatever their number.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/pte/op_schema.h"
#include "graph/graph.h"
#include "graph/memory_plan.h"

namespace ferry::graph {

// The program of one such node, over values of its own.
struct ExpertsProgram {
  struct Local {
    enum class Kind {
      kPort,     // an argument of the node, or its result: the tensor `port`
      kScratch,  // planned inside the scratch
      kInt,      // an integer that instructions write
      kBool,
    } kind;
    ValueId port = {};
    DType dtype = DType::kF32;
    Dims shape = {};       // upper bounds
    bool dynamic = false;  // smaller where fewer tokens are there
    size_t slot = 0;       // kScratch: index into MemoryPlan::offsets
  };
  struct Ref {
    size_t local = 0;
  };
  struct RefList {
    std::vector<Ref> items;
  };
  using Operand = std::variant<std::monostate, Ref, RefList, int64_t, double, bool>;
  struct Call {
    std::string_view op;  // name of an operator of the official runtime
    std::vector<Operand> inputs;
    std::vector<Ref> outs;
  };

  std::vector<Local> locals;
  std::vector<Call> setup;  // before the loop
  std::vector<Call> body;   // once for every chosen expert, of which there is at least one
  Ref counter;              // Int, zero before the loop
  Ref done;                 // Bool, which the body sets at its end
  MemoryPlan scratch;
};

ExpertsProgram experts_program(const Graph& graph, const Node& node);

// Its argument list, in the manner of the operators of the runtime.
const pte::OpSchema& experts_schema();

}  // namespace ferry::graph
