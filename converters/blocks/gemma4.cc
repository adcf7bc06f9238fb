#include "converters/blocks/gemma4.h"

#include <cmath>
#include <memory>

#include "converters/blocks/decoder.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/shared_layers.h"

namespace ferry::converters {
namespace {

// The values that layers pass on beside the states: the inputs of all layers, where the config has
// them, and the keys and values that later layers share.
struct PassedOn {
  ValueId inputs = {};
  HeldByType held = {};
};

class Gemma4Layer {
 public:
  Gemma4Layer(GraphBuilder& b, const DecoderContext& c, PassedOn& passed, int64_t layer)
      : b_(b), c_(c), g_(c.config), passed_(passed), layer_(layer) {}

  ValueId run(ValueId x) {
    x = b_.add(x,
               norm(shared_layer_attention(b_, c_, norm(x, "attention_norm"), layer_, passed_.held),
                    "post_attention_norm"));
    x = b_.add(x, norm(mapped(x), "post_ffn_norm"));
    if (passed_.inputs.valid()) {
      x = b_.add(x, layer_input_addend(b_, c_, passed_.inputs, x, layer_));
    }
    return b_.mul(x, b_.weight(layer_name(layer_, "output_scale"), {1}));
  }

 private:
  ValueId norm(ValueId x, const char* name) {
    return rms_norm(b_, x, layer_name(layer_, name) + ".weight", g_.rms_norm_eps);
  }
  // Returns the MLP of x, plus that of the chosen experts where the layer has them.
  ValueId mapped(ValueId x) {
    const std::string prefix = layer_name(layer_, "feed_forward");
    const ValueId dense =
        gated_mlp(b_, g_, norm(x, "ffn_norm"), prefix, gemma4_mlp_size(g_, layer_));
    if (!g_.has_experts(layer_)) return dense;
    const ValueId first = norm(dense, "post_mlp_norm");
    const ValueId routed_by = router_input(x);
    const ValueId in = norm(x, "experts_norm");
    const ValueId sparse = sparse_mlp(b_, c_, in, layer_, prefix, routed_by);
    return b_.add(first, norm(sparse, "post_experts_norm"));
  }
  ValueId router_input(ValueId x) {
    const Dim width = features(g_.hidden_size);
    const ValueId scale = b_.weight(layer_name(layer_, "feed_forward.gate.scale"), {width});
    const ValueId scaled = b_.mul(bare_rms_norm(b_, x, g_.rms_norm_eps), scale);
    return b_.mul(scaled, 1.0 / std::sqrt(static_cast<double>(g_.hidden_size)));
  }

  GraphBuilder& b_;
  const DecoderContext& c_;
  const ModelConfig& g_;
  PassedOn& passed_;
  const int64_t layer_;
};

}  // namespace

int64_t gemma4_mlp_size(const ModelConfig& config, int64_t layer) {
  const bool wide = config.number(kDoubleWideMlp) != 0 && layer >= first_shared_layer(config);
  return config.intermediate_size * (wide ? 2 : 1);
}

Result<Methods> build_gemma4(const ModelConfig& config, const BuildOptions& options) {
  FERRY_RETURN_IF_ERROR(check_shared_layers(config));
  const auto passed = std::make_shared<PassedOn>();
  const Layer layer = [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t number) {
    return Gemma4Layer(b, c, *passed, number).run(x);
  };
  const auto enter = [&](GraphBuilder& b, const DecoderContext& c, ValueId x) {
    *passed = {};
    if (config.number(kLayerInputSize) > 0) passed->inputs = layer_inputs(b, c, x);
    return x;
  };
  const int64_t size = config.number(kStateSize);
  const auto leave = [&](GraphBuilder& b, ValueId x) {
    const ValueId normed = rms_norm(b, x, "norm.weight", config.rms_norm_eps);
    if (size == 0) return normed;
    return projection(b, normed, "project_out", config.hidden_size, features(size), /*bias=*/false);
  };
  return build_frame(config, options,
                     {.layer = layer, .final_norm = leave, .enter = enter, .state_size = size});
}

}  // namespace ferry::converters
