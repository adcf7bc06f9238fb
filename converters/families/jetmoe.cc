// JetMoE: experts in every MLP, and in attention, where those that a router chooses project queries
// and outputs. Keys and values have one projection each.
// Source: transformers, models/jetmoe/modeling_jetmoe.py.

#include <fmt/format.h>

#include "converters/blocks/attention.h"
#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::jetmoe {
namespace {

constexpr double kLayerEps = 1e-6;  // the norms of layers do not read rms_norm_eps

Status read_experts(const JsonFields& fields, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.experts = FERRY_TRY(fields.required("num_experts", {1, kExpertRange.max}));
  moe.per_token = FERRY_TRY(fields.required("num_experts_per_tok", {1, kExpertRange.max}));
  moe.expert_size = config.intermediate_size;
  moe.scores = MoeConfig::Scores::kTopSoftmax;
  moe.layers.assign(static_cast<size_t>(config.num_layers), true);
  if (moe.per_token > moe.experts) {
    return fields.bad("num_experts_per_tok",
                      fmt::format("is {} of {} experts", moe.per_token, moe.experts));
  }
  if (config.activation != Activation::kRelu2 && config.activation != Activation::kQuickGelu) {
    return {};
  }
  return fields.error(ErrorCode::kUnsupported, "activation_function", "of experts: not supported");
}

// Every expert of a token has as many query heads as there are heads of keys.
Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_experts(fields, config));
  config.num_heads = config.num_kv_heads * config.moe.per_token;
  if (config.moe.experts * config.kv_size() <= kSizeRange.max) return {};
  return fields.bad("num_key_value_heads", fmt::format("is {}: too many for {} experts",
                                                       config.num_kv_heads, config.moe.experts));
}

// The output projections (experts, hidden, width) become one matrix (hidden, experts * width).
KeyRule output_rule(const std::string& source) {
  KeyRule rule;
  rule.name = "join outputs of experts";
  rule.source = source;
  rule.expected_shape = [](const ModelConfig& c) {
    return Shape{c.moe.experts, c.hidden_size, c.kv_size()};
  };
  rule.targets = {{.name = "layers.{i}.attention.wo.weight",
                   .rows =
                       [](const ModelConfig& c) {
                         StridedPiece piece;
                         add_axis(piece, {c.hidden_size, 1});
                         add_axis(piece, {c.moe.experts, c.hidden_size});
                         return RowOrder{piece};
                       },
                   .shape =
                       [](const ModelConfig& c) {
                         return Shape{c.hidden_size, c.moe.experts * c.kv_size()};
                       }}};
  return rule;
}

KeyRule query_rule(const std::string& source) {
  KeyRule rule;
  rule.name = "join queries of experts";
  rule.source = source;
  rule.expected_shape = [](const ModelConfig& c) {
    return Shape{c.moe.experts, c.kv_size(), c.hidden_size};
  };
  rule.targets = {{.name = "layers.{i}.attention.wq.weight",
                   .rows =
                       [](const ModelConfig& c) {
                         return RowOrder{run_piece(0, 0, c.moe.experts * c.kv_size())};
                       },
                   .shape =
                       [](const ModelConfig& c) {
                         return Shape{c.moe.experts * c.kv_size(), c.hidden_size};
                       }}};
  return rule;
}

// kv_proj has the rows [keys | values].
KeyRule key_value_rule(const std::string& source) {
  const auto half = [](const char* name, int64_t second) {
    return RuleTarget{.name = name, .rows = [second](const ModelConfig& c) {
                        return RowOrder{run_piece(0, second * c.kv_size(), c.kv_size())};
                      }};
  };
  KeyRule rule;
  rule.name = "split keys and values";
  rule.source = source;
  rule.expected_rows = [](const ModelConfig& c) { return 2 * c.kv_size(); };
  rule.targets = {half("layers.{i}.attention.wk.weight", 0),
                  half("layers.{i}.attention.wv.weight", 1)};
  return rule;
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  const std::string layer = prefix + "layers.{i}.", block = layer + "self_attention.";
  const std::string outer = block + "experts.", mlp = layer + "mlp.";
  return concat(
      {{query_rule(outer + "input_linear.weight"), output_rule(outer + "output_linear.weight"),
        key_value_rule(block + "kv_proj.weight")},
       rename_rules(outer, {{"router.layer.weight", "layers.{i}.attention.gate.weight"},
                            {"bias", "layers.{i}.attention.wo.bias"}}),
       rename_rules(mlp, {{"router.layer.weight", "layers.{i}.feed_forward.gate.weight"},
                          {"bias", "layers.{i}.feed_forward.bias"}}),
       fused_expert_rules(mlp + "input_linear.weight", mlp + "output_linear.weight"),
       standard_norm_rules(prefix),
       rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"}})});
}

// The experts of attention that each token has, and the share of each.
struct Chosen {
  ValueId places;  // f32 [T,k,experts]: 1 at the expert
  ValueId shares;  // f32 [T,k,1]
};

Chosen route(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
             const std::string& prefix) {
  const ModelConfig& g = c.config;
  const int64_t slots = g.moe.per_token;
  const Dim count = experts(g.moe.experts);
  const ValueId rows = b.view(x, {c.tokens, features(g.hidden_size)});
  const ValueId router = b.weight_f32(prefix + ".gate.weight", {count, features(g.hidden_size)});
  const ValueId logits = b.linear(rows, router);
  b.probe(fmt::format("attention_router_logits.{}", layer), logits);
  const auto [best, ids] = b.topk_last(logits, slots);
  const ValueId all = b.view(b.arange(0, g.moe.experts, count), {1, 1, count});
  const ValueId other = b.sub(all, b.view(ids, {c.tokens, slots, 1}));
  return {.places = b.where(b.eq(other, 0), b.scalar(1.0F), b.scalar(0.0F)),
          .shares = b.view(b.softmax_last(best), {c.tokens, slots, 1})};
}

// All experts project all tokens, of which those that a token has not are left out: programs have
// no operator that looks up matrices of linear layers.
ValueId routed_attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const ModelConfig& g = c.config;
  const std::string prefix = layer_name(layer, "attention");
  const int64_t slots = g.moe.per_token, kv = g.num_kv_heads, width = g.kv_size();
  const Chosen chosen = route(b, c, x, layer, prefix);
  const ValueId wide =
      projection(b, x, prefix + ".wq", g.hidden_size, g.moe.experts * width, false);
  const ValueId picked =
      b.bmm(chosen.places, b.view(wide, {c.tokens, experts(g.moe.experts), features(width)}));
  // The query heads of all experts that share a key head stand side by side.
  const auto by_slot = [&](ValueId value) {
    return b.view(value, {c.tokens, slots, heads(kv), head_dim(g.head_dim)});
  };
  const Dims all_heads = {batch(), c.tokens, heads(g.num_heads), head_dim(g.head_dim)};
  ValueId q = b.view(b.permute(by_slot(picked), {0, 2, 1, 3}), all_heads);
  const auto rows_of = [&](const char* name) {
    const ValueId rows = projection(b, x, prefix + name, g.hidden_size, width, false);
    return b.view(rows, {batch(), c.tokens, heads(kv), head_dim(g.head_dim)});
  };
  const AttentionKind& kind = c.kind_of(layer);
  q = rope(b, kind.query_rope, q);
  const ValueId v = rows_of(".wv"), k = rope(b, kind.rope, rows_of(".wk"));
  const ValueId mixed = attend(b, c, layer, q, k, v);
  const ValueId grouped = b.view(mixed, {c.tokens, heads(kv), slots, head_dim(g.head_dim)});
  const ValueId each = b.view(b.permute(grouped, {0, 2, 1, 3}), {c.tokens, slots, features(width)});
  const ValueId shared = b.mul(each, chosen.shares);
  const ValueId placed = b.bmm(b.permute(chosen.places, {0, 2, 1}), shared);
  const int64_t all = g.moe.experts * width;
  return projection(b, b.view(placed, {batch(), c.tokens, features(all)}), prefix + ".wo", all,
                    g.hidden_size, /*bias=*/true);
}

ValueId build_layer(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const std::string prefix = layer_name(layer, "feed_forward");
  const auto norm = [&](ValueId value, const char* name) {
    return rms_norm(b, value, layer_name(layer, name) + ".weight", kLayerEps);
  };
  x = b.add(x, routed_attention(b, c, norm(x, "attention_norm"), layer));
  const ValueId mixed = sparse_mlp(b, c, norm(x, "ffn_norm"), layer, prefix);
  const ValueId bias = b.weight_f32(prefix + ".bias", {features(c.config.hidden_size)});
  return b.add(x, b.add(mixed, bias));
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const auto final_norm = [&](GraphBuilder& b, ValueId x) {
    return rms_norm(b, x, "norm.weight", config.rms_norm_eps);
  };
  return build_frame(config, options, {.layer = build_layer, .final_norm = final_norm});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "jetmoe",
               .defaults = R"({"vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 12,
                               "num_attention_heads": 32, "num_key_value_heads": 16,
                               "head_dim": 128, "intermediate_size": 5632,
                               "max_position_embeddings": 4096, "num_experts": 8,
                               "num_experts_per_tok": 2, "tie_word_embeddings": true})",
               .names = {{"head_dim", {"head_dim", "kv_channels"}},
                         {"num_experts", {"num_local_experts"}}},
               .unread = {"num_attention_heads"},
               .activation_key = "activation_function",
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"JetMoe", score_head, /*texts=*/true, /*tokens=*/false}}};

}  // namespace ferry::converters::families::jetmoe
