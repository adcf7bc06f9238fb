// Passes: Model -> Result<Model>. One file each. A pass treats all methods of the model, keeps
// their graphs valid (graph.h) and what they share equal, and has tests of the form {before, pass,
// after}.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace ferry::graph {

// Dtype of the matrices (weights of linear and embedding nodes) as stored and multiplied.
// Everything else (norms, biases, states, attention) stays f32, whatever the checkpoint holds: it
// is a few kilobytes, and it keeps the residual stream exact.
enum class WeightDType { kKeep, kF32, kF16, kBF16 };

// Attention of several heads as attention of one head each: a projection for every head of queries,
// keys and values, whose weights are rows of those of the model; scores, softmax and sums for every
// query head; results side by side before the output projection. Inputs and outputs stay as they
// are. H query heads and G key-value heads make 4 projections H + 2G + 1. For a bound model, before
// cast_weights. Layers without a softmax over heads stay as they are. kUnsupported, with layer and
// operator, where a layer cannot be divided.
Result<Model> split_heads(Model model);
// The weight of one head in the result: "layers.0.attention.wq.3.weight".
std::string head_weight_name(const std::string& whole, int64_t head);

// Settles the dtype of every weight: adds casts to the recipes, and _to_copy nodes around linear
// and embedding nodes whose weight is not f32 (their operators want equal dtypes). One cast of an
// activation serves all the linear nodes that read it.
Result<Model> cast_weights(Model model, WeightDType dtype);

enum class BufferInit { kNone, kState, kAll };
struct BufferInitOptions {
  BufferInit mode = BufferInit::kNone;
  std::vector<std::string> names = {};  // further buffers by exact last component of the name
};
// Decides which mutable buffers carry initial contents in the program. kNone: those that
// must_store; kState: also those whose initial value is not zero; kAll: every buffer. Names match
// exactly the last dotted component ("k_cache"), never a substring.
Result<Model> init_buffers(Model model, const BufferInitOptions& options);

// Cuts the model into exactly `count` models at layer boundaries, balanced by weight bytes. All
// methods are cut at the same layers. Every tensor that crosses a cut is an output of one part and
// an input of a later one, of the same dtype; integers and rank-0 tensors are recomputed from the
// program's inputs. kUsage if count < 1 or count > number of layers. Weights used by several parts
// (tied heads) are bound in each.
Result<std::vector<Model>> shard(const Model& model, int32_t count);

// Marks where shard() would cut the model into `count` parts and leaves it whole: the hidden state
// passes through llama::fallback, a copy that delegates do not take over, behind the last layer of
// each part but the last. Its dtype stays. So one program consists of `count` parts. kUsage as for
// shard().
Result<Model> mark_cuts(Model model, int32_t count);

// Removes nodes and values that nothing needs, renumbers.
Graph remove_dead(Graph graph);

}  // namespace ferry::graph
