// Small graphs that several tests of passes use.
#pragma once

#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"

namespace ferry::graph {

struct TinyOptions {
  int64_t layers = 4;
  bool windowed = false;  // has a mask over the last keys, with a symbol of its own
  bool tied = false;      // uses the embedding table as the head
  int64_t width = 8;
  int64_t vocabulary = 16;
  int64_t prefill = 8;  // the largest number of tokens in one call
};

// A decoder with RoPE-like tables, a cache per layer, and the probes of a real decoder. Inputs are
// tokens i64 [1,T] and input_pos i64 [1]; the output is logits.
Graph tiny_decoder(const TinyOptions& options = {});

// Returns every weight that `graph` wants, each made of a tensor of its own of dtype `stored`.
StateDict weights_for(const Graph& graph, DType stored = DType::kF32);

Model tiny_model(const TinyOptions& options = {}, DType stored = DType::kF32);

}  // namespace ferry::graph
