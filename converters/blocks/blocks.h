// The building blocks of decoder layers: named dimensions, norms, projections, MLPs. Shapes are
// [1,T,...].
#pragma once

#include <string>

#include "converters/blocks/graph_names.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// Dimensions with the names of their axes, for shapes of weights, caches and views.
inline Dim batch() { return Dim(1).as(graph::Axis::kBatch); }
inline Dim positions(Dim count) { return count.as(graph::Axis::kSequence); }
inline Dim heads(Dim count) { return count.as(graph::Axis::kHead); }
inline Dim head_dim(Dim size) { return size.as(graph::Axis::kHeadDim); }
inline Dim features(Dim count) { return count.as(graph::Axis::kFeature); }
inline Dim experts(Dim count) { return count.as(graph::Axis::kExpert); }

// "layers.3.attention"
std::string layer_name(int64_t layer, const char* part);

// x * rsqrt(mean(x^2) + eps) * w over the last dimension. Families with (1 + w) norms add the 1
// when the weight is packed.
ValueId rms_norm(GraphBuilder& b, ValueId x, const std::string& weight, double eps);
// x * rsqrt(mean(x^2) + eps) over the last dimension.
ValueId bare_rms_norm(GraphBuilder& b, ValueId x, double eps);

// LayerNorm over the last dimension, with NAME.weight and NAME.bias.
ValueId layer_norm(GraphBuilder& b, ValueId x, const std::string& name, double eps);

enum class NormKind {
  kRms,
  kLayer,
  kLayerNoBias,
  kLayerBare,  // neither weight nor bias
};
// The norm of that kind over the last dimension, with the parameters that it has.
ValueId norm(GraphBuilder& b, NormKind kind, ValueId x, const std::string& name, double eps);

// Linear with weight NAME.weight (out, in) and, if asked for, NAME.bias added in f32. The axis of
// `out` is that of features if it is not named.
ValueId projection(GraphBuilder& b, ValueId x, const std::string& name, int64_t in, Dim out,
                   bool bias);

ValueId silu(GraphBuilder& b, ValueId x);
// log(1 + exp(x)); x itself if it is above 20, as in the reference.
ValueId softplus(GraphBuilder& b, ValueId x);
ValueId activate(GraphBuilder& b, Activation activation, ValueId x);

// cap * tanh(x / cap)
ValueId softcap(GraphBuilder& b, ValueId x, double cap);

// w2(activation(w1 x) * w3 x), `size` wide inside; `prefix` is "layers.N.feed_forward".
ValueId gated_mlp(GraphBuilder& b, const ModelConfig& config, ValueId x, const std::string& prefix,
                  int64_t size);

// w2(activation(w1 x)); `prefix` is "layers.N.feed_forward".
ValueId plain_mlp(GraphBuilder& b, const ModelConfig& config, ValueId x, const std::string& prefix,
                  bool bias);

}  // namespace ferry::converters
