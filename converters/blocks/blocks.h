// The building blocks of decoder layers: named dimensions, norms, projections, MLPs. Shapes are
// [1,T,...].
#pragma once

#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "graph/builder.h"

namespace ferry::converters {

// The graph types that blocks and families are written with, by their short names.
using graph::Dim;
using graph::Dims;
using graph::GraphBuilder;
using graph::ValueId;
// The methods of one component, in the order in which they are lowered.
using Methods = std::vector<graph::MethodGraph>;

// Dimensions with the names of their axes, for shapes of weights, caches and views.
inline Dim batch() { return Dim(1).as(graph::Axis::kBatch); }
inline Dim positions(Dim count) { return count.as(graph::Axis::kSequence); }
inline Dim heads(Dim count) { return count.as(graph::Axis::kHead); }
inline Dim head_dim(Dim size) { return size.as(graph::Axis::kHeadDim); }
inline Dim features(Dim count) { return count.as(graph::Axis::kFeature); }
inline Dim experts(Dim count) { return count.as(graph::Axis::kExpert); }

// Returns the name of a part of a layer: "layers.3.attention".
std::string layer_name(int64_t layer, const char* part);

// Returns a number as i64 [].
ValueId int_scalar(GraphBuilder& b, int64_t number);

// Returns x * rsqrt(mean(x^2) + eps) * w over the last dimension. Families with (1 + w) norms add
// the 1 when the weight is packed.
ValueId rms_norm(GraphBuilder& b, ValueId x, const std::string& weight, double eps);
// Returns x * rsqrt(mean(x^2) + eps) over the last dimension.
ValueId bare_rms_norm(GraphBuilder& b, ValueId x, double eps);

// Applies LayerNorm over the last dimension, with NAME.weight and NAME.bias.
ValueId layer_norm(GraphBuilder& b, ValueId x, const std::string& name, double eps);

enum class NormKind {
  kRms,
  kLayer,
  kLayerNoBias,
  kLayerBare,  // neither weight nor bias
  kRmsBare,    // without a weight
};
// Applies a norm of this kind over the last dimension, with the parameters that the kind has.
ValueId norm(GraphBuilder& b, NormKind kind, ValueId x, const std::string& name, double eps);

// Applies the linear layer NAME.weight (out, in) and, if asked for, adds NAME.bias in f32. If `out`
// names no axis, it gets the axis of features.
ValueId projection(GraphBuilder& b, ValueId x, const std::string& name, int64_t in, Dim out,
                   bool bias);

// Returns the rows of x rounded to 8 bits, where the config says so, and x elsewhere: round(x s) /
// s, where s is 127 over the greatest absolute value of the row, at least 1e-5. Source:
// transformers, integrations/bitnet.py, ActQuant.
ValueId rounded_inputs(GraphBuilder& b, const ModelConfig& config, ValueId x);

ValueId silu(GraphBuilder& b, ValueId x);
// Returns log(1 + exp(x)), or x itself where it is above 20, as in the reference.
ValueId softplus(GraphBuilder& b, ValueId x);
ValueId activate(GraphBuilder& b, Activation activation, ValueId x);

// Returns cap * tanh(x / cap).
ValueId softcap(GraphBuilder& b, ValueId x, double cap);

// Returns w2(activation(w1 x) * w3 x), with the inner width `size`; `prefix` is
// "layers.N.feed_forward".
ValueId gated_mlp(GraphBuilder& b, const ModelConfig& config, ValueId x, const std::string& prefix,
                  int64_t size);

// Returns w2(activation(w1 x)), with the inner width `size`, or intermediate_size where it is 0;
// `prefix` is "layers.N.feed_forward".
ValueId plain_mlp(GraphBuilder& b, const ModelConfig& config, ValueId x, const std::string& prefix,
                  bool bias, int64_t size = 0);

}  // namespace ferry::converters
