// The tensors that a reference may hold, and the probes, buffers and outputs of a bundle that they
// are compared with. docs/verifying.md lists the names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ferry::proof {

struct ReferenceTensor {
  enum class Kind {
    kHidden,        // probe, [1,T,hidden_size]
    kRouterLogits,  // probe, [1,T,experts]
    kKey,           // KV cache, [1,heads,T,head_dim]; the buffer is [1,context,heads,head_dim]
    kValue,         // the same
    kConvState,     // buffer, of the same shape
    kRecurrentState,
    kVision,  // probe of the vision encoder, [tiles,patches,width], or image_features
    kState,   // output of a text encoder, [1,T,hidden_size]
    kVector,  // output of a text encoder, [1,D]
  } kind = Kind::kHidden;
  std::string name;    // in the reference: "hidden_states.3", "cache.0.key"
  std::string source;  // probe, buffer or output of the bundle
  int64_t layer = 0;   // that computes it: -1 the embedding, `layers` what follows the last layer

  // A probe of the text decoder.
  bool is_probe() const { return kind == Kind::kHidden || kind == Kind::kRouterLogits; }
  bool is_kv_cache() const { return kind == Kind::kKey || kind == Kind::kValue; }
  // An output of a text encoder; decoders give logits instead.
  bool is_encoded() const { return kind == Kind::kState || kind == Kind::kVector; }
};

// All of a model of `layers` layers, in the order in which the model computes them.
std::vector<ReferenceTensor> reference_tensors(int64_t layers);

// The experts that each position of the prompt passed through, i64 [1,T,experts per token], and
// those of the continuation, i64 [1,G-1,experts per token].
std::string route_name(int64_t layer);
std::string greedy_route_name(int64_t layer);

}  // namespace ferry::proof
