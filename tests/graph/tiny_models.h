// Small graphs that the tests of passes share.
#pragma once

#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"

namespace ferry::graph {

struct TinyOptions {
  int64_t layers = 4;
  bool windowed = false;  // a mask over the last keys, with a symbol of its own
  bool tied = false;      // the head is the embedding table
  int64_t width = 8;
  int64_t vocabulary = 16;
  int64_t prefill = 8;  // tokens in one call, at most
};

// A decoder with RoPE-like tables, a cache per layer, and the probes of a real one. Inputs tokens
// i64 [1,T] and input_pos i64 [1], output logits.
Graph tiny_decoder(const TinyOptions& options = {});

// Every weight that `graph` wants, each from a tensor of its own of dtype `stored`.
StateDict weights_for(const Graph& graph, DType stored = DType::kF32);

Model tiny_model(const TinyOptions& options = {}, DType stored = DType::kF32);

}  // namespace ferry::graph
