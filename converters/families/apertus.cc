// Apertus: norms of q and k, an MLP without a gate, and xIELU (arXiv 2411.13010), whose parameters
// are weights of each layer. Source: transformers, models/apertus/modeling_apertus.py and
// activations.py.

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::apertus {
namespace {

using namespace gguf_tables;

constexpr GgufForm kNumber = {.shape = GgufForm::Shape::kLayerNumber};
constexpr GgufForm kScalar = {.shape = GgufForm::Shape::kLayerScalar};
constexpr GgufName kApertusGguf[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{i}.attn_norm.weight", "model.layers.{i}.attention_layernorm.weight"},
    {"blk.{i}.ffn_norm.weight", "model.layers.{i}.feedforward_layernorm.weight"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.down_proj.weight"},
    {"xielu.alpha_n", "model.layers.{i}.mlp.act_fn.alpha_n", kNumber},
    {"xielu.alpha_p", "model.layers.{i}.mlp.act_fn.alpha_p", kNumber},
    {"xielu.beta", "model.layers.{i}.mlp.act_fn.beta", kScalar},
    {"xielu.eps", "model.layers.{i}.mlp.act_fn.eps", kScalar},
};

Status read(const JsonFields& fields, ModelConfig&) {
  const auto name = FERRY_TRY(fields.text("hidden_act"));
  if (name == "xielu") return {};
  return fields.error(ErrorCode::kUnsupported, "hidden_act", "is not xielu: not supported");
}

// Scalars of the activation; some are stored without a dimension.
KeyRule scalar_rule(const std::string& prefix, const std::string& name, const Shape& stored) {
  KeyRule rule;
  rule.name = "xIELU " + name;
  rule.source = prefix + "layers.{i}.mlp.act_fn." + name;
  rule.expected_shape = [stored](const ModelConfig&) { return stored; };
  rule.targets = {{.name = "layers.{i}.feed_forward.xielu." + name,
                   .rows = [](const ModelConfig&) { return RowOrder{run_piece(0, 0, 1)}; },
                   .shape = [](const ModelConfig&) { return Shape{1}; },
                   .elements = true}};
  return rule;
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {attention_rules(prefix, config.attention_bias),
       plain_mlp_rules(prefix, /*bias=*/false, "mlp.up_proj", "mlp.down_proj"),
       rename_rules(prefix,
                    {{"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                     {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"},
                     {"layers.{i}.attention_layernorm.weight", "layers.{i}.attention_norm.weight"},
                     {"layers.{i}.feedforward_layernorm.weight", "layers.{i}.ffn_norm.weight"},
                     {"embed_tokens.weight", "tok_embeddings.weight"},
                     {"norm.weight", "norm.weight"}}),
       {scalar_rule(prefix, "alpha_p", {1}), scalar_rule(prefix, "alpha_n", {1}),
        scalar_rule(prefix, "beta", {}), scalar_rule(prefix, "eps", {})}});
}

// Returns alpha_p x^2 + beta x above 0, and alpha_n (exp(min(x, eps)) - 1 - x) + beta x elsewhere.
// Both alphas are stored before a softplus; alpha_n is beta larger.
ValueId xielu(GraphBuilder& b, ValueId x, const std::string& prefix) {
  const auto scalar = [&](const char* name) {
    return b.weight_f32(prefix + ".xielu." + name, {1});
  };
  const ValueId beta = scalar("beta");
  const ValueId eps = scalar("eps");
  const ValueId alpha_p = softplus(b, scalar("alpha_p"));
  const ValueId alpha_n = b.add(beta, softplus(b, scalar("alpha_n")));
  const ValueId least = b.sub(eps, b.relu(b.sub(eps, x)));
  const ValueId curved = b.sub(b.sub(b.exp(least), b.scalar(1.0F)), x);
  const ValueId above = b.mul(b.mul(x, x), alpha_p);
  const ValueId below = b.mul(curved, alpha_n);
  const ValueId positive = b.gt(x, 0.0);
  const ValueId line = b.mul(x, beta);
  return b.add(b.where(positive, above, below), line);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const bool bias = config.attention_bias;
  const AttentionStyle style = {
      .qkv_bias = bias, .output_bias = bias, .qk_norm = AttentionStyle::QkNorm::kHead};
  const auto normed = [&](GraphBuilder& b, ValueId x, const std::string& name) {
    return rms_norm(b, x, name + ".weight", config.rms_norm_eps);
  };
  const Layer layer = [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t i) {
    const std::string mlp = layer_name(i, "feed_forward");
    x = b.add(x, attention(b, c, normed(b, x, layer_name(i, "attention_norm")), i, style));
    const ValueId in = normed(b, x, layer_name(i, "ffn_norm"));
    const ValueId wide = projection(b, in, mlp + ".w1", hidden, inner, /*bias=*/false);
    const ValueId active = xielu(b, wide, mlp);
    return b.add(x, projection(b, active, mlp + ".w2", inner, hidden, /*bias=*/false));
  };
  const auto final_norm = [&](GraphBuilder& b, ValueId x) { return normed(b, x, "norm"); };
  return build_frame(config, options, {.layer = layer, .final_norm = final_norm});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "apertus",
               .defaults = R"({"pad_token_id": 3, "vocab_size": 131072, "hidden_size": 4096,
                               "intermediate_size": 14336, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "max_position_embeddings": 65536,
                               "hidden_act": "xielu", "rms_norm_eps": 1e-5,
                               "rope_theta": 12000000.0,
                               "rope_parameters": {"rope_type": "llama3", "factor": 8.0,
                                   "rope_theta": 12000000.0, "low_freq_factor": 1.0,
                                   "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 8192}})",
               .activation_key = "",
               .attention_bias = true,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Apertus", score_head, /*texts=*/false}},
    .gguf = {{.name = "apertus",
              .tokenizer_keys = {.sentence_piece = true, .llama = true},
              .tables = {kApertusGguf, kAttention, kFusedAttention, kValueAndOutput},
              .keys = llama_keys(),
              .rope_factors = true,
              .own_head = true}}};

}  // namespace ferry::converters::families::apertus
