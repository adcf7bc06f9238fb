// Zamba2: Mamba-2 in every layer. Before some of them stands a transformer block that reads the
// state and the embedding of a token side by side. A few such blocks take turns, and each use of
// one has adapters of its own.
// Source: transformers, models/zamba2/modeling_zamba2.py.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "converters/blocks/decoder.h"
#include "converters/blocks/mamba.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::zamba2 {
namespace {

// Members of ModelConfig::numbers.
constexpr const char* kBlocks = "num_mem_blocks";  // transformer blocks that take turns
constexpr const char* kRank = "adapter_rank";
constexpr const char* kAttentionAdapters = "use_shared_attention_adapter";
constexpr const char* kBias = "add_bias_linear";

// A layer with a transformer block before its Mamba-2 block.
struct Use {
  int64_t number;  // among such layers
  int64_t owner;   // the layer whose name the weights of the block have
};

std::vector<int64_t> hybrid_layers(const ModelConfig& config) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const LayerType type = config.layer_types[static_cast<size_t>(i)];
    if (type == LayerType::kMambaAndAttention) out.push_back(i);
  }
  return out;
}

// Blocks are shared where the head is tied too: without tie_word_embeddings the reference ties
// nothing.
Use use_of(const ModelConfig& config, int64_t layer) {
  const std::vector<int64_t> all = hybrid_layers(config);
  const int64_t number = std::ranges::find(all, layer) - all.begin();
  if (!config.tie_word_embeddings) return {number, layer};
  return {number, all[static_cast<size_t>(number % config.number(kBlocks))]};
}

Status read(const JsonFields& fields, ModelConfig& config) {
  config.numbers[kBlocks] = FERRY_TRY(fields.required(kBlocks, kLayerRange));
  config.numbers[kRank] = FERRY_TRY(fields.required(kRank, kSizeRange));
  config.head_dim = 2 * config.hidden_size / config.num_heads;
  if (2 * config.hidden_size % config.num_heads != 0) {
    return fields.bad("num_attention_heads", "does not divide twice the hidden_size");
  }
  if (config.number(kAttentionAdapters) != 0 && config.num_kv_heads != config.num_heads) {
    return fields.bad("num_key_value_heads", "is not num_attention_heads, which adapters need");
  }
  config.scalars.attention = 1.0 / std::sqrt(static_cast<double>(config.head_dim) / 2);
  constexpr int64_t kLongContext = 16384;
  if (FERRY_TRY(fields.flag_or("use_long_context", false))) config.max_positions = kLongContext;
  FERRY_RETURN_IF_ERROR(read_mamba(fields, config));
  constexpr double kNormEps = 1e-5;
  MambaConfig& mamba = config.mamba;
  mamba.activation = Activation::kSilu;
  mamba.norm_eps = kNormEps;
  mamba.conv_bias = true;
  mamba.in_bias = mamba.out_bias = config.number(kBias) != 0;
  mamba.least_step = FERRY_TRY(fields.number_or("time_step_min", {0.0, 1e6}, 0.001));
  return {};
}

// The layers of the class's default.
std::vector<LayerType> usual_layers() {
  constexpr int64_t kCount = 54;
  std::vector<LayerType> types(kCount, LayerType::kMamba);
  for (const size_t layer : {6, 12, 18, 24, 30, 36, 42, 47, 51}) {
    types[layer] = LayerType::kMambaAndAttention;
  }
  return types;
}

Result<std::vector<LayerType>> layers(const JsonFields& fields, const ModelConfig& config) {
  const char* key = "layers_block_type";
  const nlohmann::json* list = fields.find(key);
  std::vector<LayerType> types = usual_layers();
  if (list != nullptr) {
    types.clear();
    if (!list->is_array()) return fields.bad(key, "is not an array");
    for (const nlohmann::json& item : *list) {
      const bool hybrid = item == "hybrid";
      if (!hybrid && item != "mamba" && item != "linear_attention") {
        return fields.error(ErrorCode::kUnsupported, key,
                            "has an element that is neither mamba nor hybrid");
      }
      types.push_back(hybrid ? LayerType::kMambaAndAttention : LayerType::kMamba);
    }
  }
  if (std::ssize(types) != config.num_layers) {
    return fields.bad(
        key, fmt::format("has {} elements for {} layers", types.size(), config.num_layers));
  }
  // Each block that is not shared has adapters for all uses, whose keys are named one by one.
  constexpr int64_t kMostUnshared = 64;
  if (std::ranges::count(types, LayerType::kMambaAndAttention) > kMostUnshared &&
      !FERRY_TRY(fields.flag_or("tie_word_embeddings", true))) {
    return fields.error(ErrorCode::kUnsupported, "tie_word_embeddings",
                        fmt::format("is false with more than {} hybrid layers", kMostUnshared));
  }
  return types;
}

// Rules for the adapters of one use of a block.
std::vector<KeyRule> adapter_rules(const ModelConfig& config, const std::string& block,
                                   int64_t number, int64_t layer) {
  std::vector<KeyRule> rules;
  const auto add = [&](const char* list, const char* target) {
    for (int part = 0; part < 2; ++part) {
      KeyRule rule;
      rule.name = fmt::format("adapter {}", target);
      rule.source = fmt::format("{}{}.{}.{}.weight", block, list, number, part);
      rule.targets = {{fmt::format("layers.{}.adapters.{}.{}.weight", layer, target, part)}};
      rules.push_back(std::move(rule));
    }
  };
  add("feed_forward.gate_up_proj_adapter_list", "gate_up");
  if (config.number(kAttentionAdapters) == 0) return rules;
  add("self_attn.linear_q_adapter_list", "q");
  add("self_attn.linear_k_adapter_list", "k");
  add("self_attn.linear_v_adapter_list", "v");
  return rules;
}

// Rules for the Mamba-2 block of a layer, whose keys follow from the kind of the layer.
std::vector<KeyRule> mamba_layer_rules(const ModelConfig& config, const std::string& prefix,
                                       int64_t layer) {
  const bool hybrid = is_attention(config.layer_types[static_cast<size_t>(layer)]);
  const std::string block = prefix + (hybrid ? "layers.{i}.mamba_decoder." : "layers.{i}.");
  std::vector<KeyRule> rules = concat(
      {mamba_rules(block + "mamba.", config),
       rename_rules(block, {{"input_layernorm.weight", "layers.{i}.attention_norm.weight"}})});
  const auto number = [&](std::string& text) {
    constexpr std::string_view kIndex = "{i}";
    text.replace(text.find(kIndex), kIndex.size(), std::to_string(layer));
  };
  for (KeyRule& rule : rules) {
    number(rule.source);
    for (RuleTarget& target : rule.targets) number(target.name);
  }
  return rules;
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string block = prefix + "layers.{i}.shared_transformer.";
  const bool bias = config.number(kBias) != 0;
  std::vector<KeyRule> all =
      concat({rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"},
                                    {"final_layernorm.weight", "norm.weight"},
                                    {"layers.{i}.linear.weight", "layers.{i}.linear.weight"}}),
              rename_rules(block, {{"self_attn.q_proj.weight", "layers.{i}.attention.wq.weight"},
                                   {"self_attn.k_proj.weight", "layers.{i}.attention.wk.weight"},
                                   {"self_attn.v_proj.weight", "layers.{i}.attention.wv.weight"},
                                   {"self_attn.o_proj.weight", "layers.{i}.attention.wo.weight"},
                                   {"input_layernorm.weight", "layers.{i}.pair_norm.weight"},
                                   {"pre_ff_layernorm.weight", "layers.{i}.ffn_norm.weight"}}),
              parameter_rules(block, bias,
                              {{"feed_forward.gate_up_proj", "layers.{i}.feed_forward.gate_up"},
                               {"feed_forward.down_proj", "layers.{i}.feed_forward.w2"}})});
  const auto append = [&all](std::vector<KeyRule> more) {
    std::ranges::move(more, std::back_inserter(all));
  };
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    append(mamba_layer_rules(config, prefix, layer));
  }
  const std::vector<int64_t> hybrids = hybrid_layers(config);
  for (const int64_t layer : hybrids) {
    const Use use = use_of(config, layer);
    const std::string owner = fmt::format("{}layers.{}.shared_transformer.", prefix, use.owner);
    append(adapter_rules(config, owner, use.number, layer));
    // A block that is not shared has adapters for the other uses too.
    const int64_t step = config.number(kBlocks);
    for (int64_t other = use.number % step; other < std::ssize(hybrids); other += step) {
      if (config.tie_word_embeddings || other == use.number) continue;
      for (const char* list : {"feed_forward.gate_up_proj", "self_attn.linear_q",
                               "self_attn.linear_k", "self_attn.linear_v"}) {
        all.push_back(drop_rule(fmt::format("{}{}_adapter_list.{}.*", owner, list, other),
                                "adapter of another use: the block is not shared"));
      }
    }
  }
  return all;
}

// Returns a projection by a matrix of a block, plus the adapter of this use.
ValueId adapted(GraphBuilder& b, const ModelConfig& g, ValueId x, const std::string& matrix,
                const std::string& adapter, int64_t in, int64_t out, bool bias) {
  const ValueId y = projection(b, x, matrix, in, out, bias);
  if (adapter.empty()) return y;
  const int64_t rank = g.number(kRank);
  const ValueId narrow = projection(b, x, adapter + ".0", in, rank, /*bias=*/false);
  return b.add(y, projection(b, narrow, adapter + ".1", rank, out, /*bias=*/false));
}

// Returns what the transformer block before layer `layer` adds to the input of Mamba-2.
ValueId transformed(GraphBuilder& b, const DecoderContext& c, ValueId x, ValueId embedded,
                    int64_t layer) {
  const ModelConfig& g = c.config;
  const int64_t hidden = g.hidden_size, pair = 2 * hidden;
  const int64_t owner = use_of(g, layer).owner;
  const std::string attention = layer_name(owner, "attention");
  const std::string adapters = layer_name(layer, "adapters");
  const bool adapts = g.number(kAttentionAdapters) != 0;
  const bool bias = g.number(kBias) != 0;
  const ValueId both =
      rms_norm(b, b.cat({x, embedded}, 2), layer_name(owner, "pair_norm.weight"), g.rms_norm_eps);
  const auto projected = [&](const char* matrix, const char* name, int64_t count) {
    const ValueId y = adapted(b, g, both, attention + matrix, adapts ? adapters + name : "", pair,
                              count * g.head_dim, /*bias=*/false);
    return b.view(y, {batch(), c.tokens, heads(count), head_dim(g.head_dim)});
  };
  ValueId q = projected(".wq", ".q", g.num_heads);
  ValueId k = projected(".wk", ".k", g.num_kv_heads);
  const ValueId v = projected(".wv", ".v", g.num_kv_heads);
  if (g.rope_layers[static_cast<size_t>(layer)]) {
    q = rope(b, c.full.query_rope, q);
    k = rope(b, c.full.rope, k);
  }
  const ValueId seen =
      b.view(attend(b, c, layer, q, k, v), {batch(), c.tokens, features(g.q_size())});
  const ValueId mixed = projection(b, seen, attention + ".wo", g.q_size(), hidden, false);
  const ValueId normed = rms_norm(b, mixed, layer_name(owner, "ffn_norm.weight"), g.rms_norm_eps);
  const int64_t size = g.intermediate_size;
  const std::string mlp = layer_name(owner, "feed_forward");
  const ValueId wide =
      adapted(b, g, normed, mlp + ".gate_up", adapters + ".gate_up", hidden, 2 * size, bias);
  const std::vector<ValueId> halves = b.split(wide, {size, size}, 2);
  const ValueId inner = b.mul(activate(b, g.activation, halves[0]), halves[1]);
  const ValueId out = projection(b, inner, mlp + ".w2", size, hidden, bias);
  return projection(b, out, layer_name(layer, "linear"), hidden, hidden, /*bias=*/false);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  ValueId embedded;
  DecoderParts parts;
  parts.enter = [&](GraphBuilder& b, const DecoderContext&, ValueId x) {
    b.name(x, "embeddings");  // later parts of the model read it
    return embedded = x;
  };
  parts.layer = [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
    ValueId in = x;
    if (is_attention(config.layer_types[static_cast<size_t>(layer)])) {
      in = b.add(x, transformed(b, c, x, embedded, layer));
    }
    const ValueId normed =
        rms_norm(b, in, layer_name(layer, "attention_norm.weight"), config.rms_norm_eps);
    return b.add(x, mamba_mixer(b, c, normed, layer));
  };
  parts.final_norm = [&](GraphBuilder& b, ValueId x) {
    return rms_norm(b, x, "norm.weight", config.rms_norm_eps);
  };
  return build_frame(config, options, parts);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "zamba2",
               .defaults = R"({"vocab_size": 32000, "hidden_size": 2560, "num_hidden_layers": 54,
                               "num_attention_heads": 32, "max_position_embeddings": 4096,
                               "rms_norm_eps": 1e-5, "hidden_act": "gelu", "head_dim": 1,
                               "mamba_n_heads": 8, "mamba_n_groups": 1, "mamba_d_state": 64,
                               "mamba_d_head": "auto", "mamba_d_conv": 4, "mamba_expand": 2,
                               "num_mem_blocks": 1, "adapter_rank": 128,
                               "tie_word_embeddings": true})",
               .names = {{"mamba_n_heads", {"n_mamba_heads"}},
                         {"mamba_n_groups", {"mamba_ngroups"}},
                         {"layers_block_type", {"layers_block_type", "layer_types"}}},
               .unread = {"head_dim", "mamba_d_head", "layer_types", "time_step_limit",
                          "mamba_conv_bias", "mamba_proj_bias"},
               .flags = {{kAttentionAdapters}, {kBias}},
               .mlp_ratio = 4,
               .mamba = true,
               .layers = layers,
               .rope_layers = RopeLayers::kIfUsed,
               .read = read}},
    .components = {{.rules = rules, .build = build}}};

}  // namespace ferry::converters::families::zamba2
