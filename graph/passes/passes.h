// A pass maps a Model to a Result<Model>, and has a file of its own. It treats all methods of the
// model, and keeps their graphs valid (graph.h) and their shared values equal. Its tests have the
// form {before, pass, after}.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_source.h"
#include "graph/graph.h"

namespace ferry::graph {

// The dtype in which the matrices (weights of linear and embedding nodes) are stored and
// multiplied. Everything else (norms, biases, states, attention) stays f32 whatever the checkpoint
// holds: it is a few kilobytes, and it keeps the residual stream exact.
enum class WeightDType { kKeep, kF32, kF16, kBF16 };

// Replaces attention of several heads by attention of one head each: a projection for every head of
// queries, keys and values, whose weights are rows of the model's weights; scores, softmax and sums
// for every query head; results side by side before the output projection. Inputs and outputs are
// unchanged. H query heads and G key-value heads make H + 2G + 1 projections of 4. The model must
// be bound and not cast by cast_weights. Layers without a softmax over heads are unchanged.
// kUnsupported, with layer and operator, if a layer cannot be divided.
Result<Model> split_heads(Model model);
// Returns the name of the weight of one head in the result, such as
// "layers.0.attention.wq.3.weight".
std::string head_weight_name(const std::string& whole, int64_t head);

// Settles the dtype of every weight. It adds casts to the recipes, and _to_copy nodes around linear
// and embedding nodes whose weight is not f32 (their operators require equal dtypes). One cast of
// an activation serves all the linear nodes that read it.
Result<Model> cast_weights(Model model, WeightDType dtype);

// Leaves matrices of linear and embedding nodes in the blocks that the checkpoint stores, if
// `supports` returns true for the name of their encoding ("q4_k"). Other weights are unchanged. The
// official runtime has no operators for blocks. The model must be bound and not cast by
// cast_weights.
using IsBlockName = std::function<bool(std::string_view)>;
Result<Model> keep_blocks(Model model, const TensorSource& source, const IsBlockName& supports);

enum class BufferInit { kNone, kState, kAll };
struct BufferInitOptions {
  BufferInit mode = BufferInit::kNone;
  // further buffers, by the exact last component of their name
  std::vector<std::string> names = {};
};
// Decides which mutable buffers have initial contents in the program. kNone: those with must_store;
// kState: also those whose initial value is not zero; kAll: every buffer. Names match the last
// dotted component exactly ("k_cache"), never a substring.
Result<Model> init_buffers(Model model, const BufferInitOptions& options);

// Cuts the model into exactly `count` models at layer boundaries, balanced by weight bytes. All
// methods are cut at the same layers. Every tensor that crosses a cut is an output of one part and
// an input of a later one, of the same dtype; integers and rank-0 tensors are recomputed from the
// program's inputs. Weights that several parts use (tied heads) are bound in each. kUsage if count
// < 1 or count > number of layers.
Result<std::vector<Model>> shard(const Model& model, int32_t count);

// Marks where shard() would cut the model into `count` parts, and leaves the model whole. After the
// last layer of each part but the last, the hidden state passes through llama::fallback, a copy
// that delegates do not take over, with unchanged dtype. So one program consists of `count` parts.
// kUsage as for shard().
Result<Model> mark_cuts(Model model, int32_t count);

// Removes nodes and values that nothing needs, and renumbers the rest.
Graph remove_dead(Graph graph);

}  // namespace ferry::graph
