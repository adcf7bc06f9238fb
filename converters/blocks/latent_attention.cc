#include "converters/blocks/latent_attention.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "converters/blocks/attention.h"
#include "converters/blocks/blocks.h"
#include "converters/config/json_fields.h"
#include "converters/keys/row_layouts.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/undo_keys.h"

namespace ferry::converters {
namespace {

// The names of the sizes in ModelConfig::numbers.
constexpr const char* kQueryRank = "q_lora_rank";  // 0: queries are projected at once
constexpr const char* kRank = "kv_lora_rank";
constexpr const char* kPlain = "qk_nope_head_dim";
constexpr const char* kValue = "v_head_dim";
constexpr const char* kPaired = "paired_rope";

constexpr double kNormEps = 1e-6;  // a constant of the reference
constexpr int64_t kLastElement = std::numeric_limits<int64_t>::max();

struct LatentSizes {
  explicit LatentSizes(const ModelConfig& c)
      : heads(c.num_heads),
        query_rank(c.number(kQueryRank)),
        rank(c.number(kRank)),
        plain(c.number(kPlain)),
        turned(c.rope.rotary_dim),
        value(c.number(kValue)) {}
  int64_t heads, query_rank, rank;
  int64_t plain, turned;  // dimensions of a query without and with RoPE
  int64_t value;
  int64_t query() const { return plain + turned; }
};

// Returns `count` groups of rows. Each group has `before` rows that stay and `turned` rows whose
// pairs become halves (pairs_to_halves()).
RowOrder turned_rows(const ModelConfig& config, int64_t count, int64_t before) {
  const int64_t turned = config.rope.rotary_dim, size = before + turned;
  if (config.number(kPaired) == 0) return {run_piece(0, 0, count * size)};
  RowOrder rows;
  for (int64_t i = 0; i < count; ++i) {
    rows.push_back(run_piece(0, i * size, before));
    rows.push_back({.offset = i * size + before, .axes = {{2, 1}, {turned / 2, 2}}});
  }
  return folded(rows);
}

RowOrder query_rows(const ModelConfig& config) {
  return turned_rows(config, config.num_heads, LatentSizes(config).plain);
}
RowOrder latent_rows(const ModelConfig& config) {
  return turned_rows(config, 1, LatentSizes(config).rank);
}

// Takes the keys or the values of every head from kv_b_proj, whose rows are [keys | values] per
// head.
RuleTarget head_part(const char* name, bool values) {
  return {name,
          [values](const ModelConfig& c) {
            const LatentSizes s(c);
            StridedPiece piece{.offset = values ? s.plain : 0, .axes = {}};
            add_axis(piece, {s.heads, s.plain + s.value});
            add_axis(piece, {values ? s.value : s.plain, 1});
            return RowOrder{piece};
          },
          [values](const ModelConfig& c) {
            const LatentSizes s(c);
            return Shape{s.heads, values ? s.value : s.plain, s.rank};
          }};
}

// Rules for kv_b_proj as GGUF has it: keys (heads, rank, plain), transposed, and values (heads,
// value, rank).
std::vector<KeyRule> split_head_rules(const std::string& block) {
  KeyRule keys;
  keys.name = "transpose keys of heads";
  keys.source = block + "k_b_proj.weight";
  keys.expected_shape = [](const ModelConfig& c) {
    const LatentSizes s(c);
    return Shape{s.heads, s.rank, s.plain};
  };
  keys.targets = {{.name = "layers.{i}.attention.wk_b.weight",
                   .rows =
                       [](const ModelConfig& c) {
                         const LatentSizes s(c);
                         StridedPiece piece;
                         add_axis(piece, {s.heads, s.rank * s.plain});
                         add_axis(piece, {s.plain, 1});
                         add_axis(piece, {s.rank, s.plain});
                         return RowOrder{piece};
                       },
                   .shape =
                       [](const ModelConfig& c) {
                         const LatentSizes s(c);
                         return Shape{s.heads, s.plain, s.rank};
                       },
                   .elements = true}};
  std::vector<KeyRule> rules =
      rename_rules(block, {{"v_b_proj.weight", "layers.{i}.attention.wv_b.weight"}});
  rules.push_back(std::move(keys));
  return dialect_rules(std::move(rules));
}

KeyRule row_rule(const std::string& source, const char* target,
                 RowOrder (*rows)(const ModelConfig&), int64_t (*count)(const ModelConfig&)) {
  KeyRule rule;
  rule.name = std::string("rotary rows of ") + target;
  rule.source = source;
  rule.targets = {{.name = target, .rows = rows}};
  rule.expected_rows = count;
  return rule;
}

int64_t query_row_count(const ModelConfig& c) { return c.num_heads * LatentSizes(c).query(); }
int64_t latent_row_count(const ModelConfig& c) {
  return LatentSizes(c).rank + LatentSizes(c).turned;
}

// Returns the queries, [1,T,heads,plain + turned].
ValueId queries(GraphBuilder& b, const DecoderContext& c, ValueId x, const std::string& prefix) {
  const ModelConfig& g = c.config;
  const LatentSizes s(g);
  const int64_t width = s.heads * s.query();
  const Dims shape = {batch(), c.tokens, heads(s.heads), head_dim(s.query())};
  if (s.query_rank == 0) {
    return b.view(projection(b, x, prefix + ".wq", g.hidden_size, width, false), shape);
  }
  const ValueId low =
      projection(b, x, prefix + ".wq_a", g.hidden_size, s.query_rank, g.attention_bias);
  const ValueId normed = rms_norm(b, low, prefix + ".q_a_norm.weight", kNormEps);
  return b.view(projection(b, normed, prefix + ".wq_b", s.query_rank, width, false), shape);
}

// Returns the key rows of the cache, [1,T,1,turned + rank].
ValueId latent_keys(GraphBuilder& b, const DecoderContext& c, const RopeTable& table, ValueId x,
                    const std::string& prefix) {
  const ModelConfig& g = c.config;
  const LatentSizes s(g);
  const ValueId both =
      projection(b, x, prefix + ".wkv_a", g.hidden_size, s.rank + s.turned, g.attention_bias);
  const std::vector<ValueId> parts = b.split(both, {s.rank, s.turned}, 2);
  const ValueId latent = rms_norm(b, parts[0], prefix + ".kv_a_norm.weight", kNormEps);
  const auto as_head = [&](ValueId part, int64_t size) {
    return b.view(part, {batch(), c.tokens, heads(1), head_dim(size)});
  };
  const ValueId turned = rope(b, table, as_head(parts[1], s.turned));
  return b.cat({turned, as_head(latent, s.rank)}, 3);
}

}  // namespace

Result<double> latent_score_scale(const JsonFields& fields) {
  auto rope = FERRY_TRY(fields.object("rope_scaling"));
  if (!rope || rope->size() == 0) rope = FERRY_TRY(fields.object("rope_parameters"));
  if (!rope) return 1.0;
  const bool modern = rope->find("rope_type") != nullptr;
  const auto type = FERRY_TRY(rope->text(modern ? "rope_type" : "type"));
  const double all = FERRY_TRY(rope->number_or("mscale_all_dim", {0.0, kScaleRange.max}, 0.0));
  const double factor = FERRY_TRY(rope->number_or("factor", kFactorRange, 1.0));
  if (type.value_or("default") == "default" || all == 0.0 || factor <= 1.0) return 1.0;
  return std::pow(0.1 * all * std::log(factor) + 1.0, 2.0);
}

Status read_latent_attention(const JsonFields& fields, ModelConfig& config, bool paired,
                             double scale) {
  const auto number = [&](const char* key) -> Status {
    config.numbers[key] = FERRY_TRY(fields.required(key, kHeadDimRange));
    return {};
  };
  for (const char* key : {kRank, kPlain, kValue}) FERRY_RETURN_IF_ERROR(number(key));
  if (fields.find(kQueryRank) != nullptr) FERRY_RETURN_IF_ERROR(number(kQueryRank));
  if (config.num_kv_heads != config.num_heads) {
    return fields.bad("num_key_value_heads",
                      fmt::format("is {}, but latent attention has keys for each of {} heads",
                                  config.num_kv_heads, config.num_heads));
  }
  config.numbers[kPaired] = paired ? 1 : 0;
  config.rope.rotary_dim = config.head_dim;
  if (config.rope.rotary_dim % 2 != 0) {
    return fields.bad("head_dim", fmt::format("is {}, which is odd", config.rope.rotary_dim));
  }
  const LatentSizes sizes(config);
  config.scalars.attention = scale / std::sqrt(static_cast<double>(sizes.query()));
  config.num_kv_heads = 1;
  config.head_dim = sizes.turned + sizes.rank;
  const int64_t widest = std::max({sizes.query(), config.head_dim, sizes.plain + sizes.value});
  if (sizes.heads * widest <= kSizeRange.max) return {};
  return fields.bad("num_attention_heads",
                    fmt::format("is {}: too many for heads of {}", sizes.heads, widest));
}

std::vector<KeyRule> latent_attention_rules(const std::string& prefix, const ModelConfig& config) {
  const std::string block = prefix + "layers.{i}.self_attn.";
  KeyRule heads_rule;
  heads_rule.name = "split kv_b_proj by heads";
  heads_rule.source = block + "kv_b_proj.weight";
  heads_rule.targets = {head_part("layers.{i}.attention.wk_b.weight", false),
                        head_part("layers.{i}.attention.wv_b.weight", true)};
  heads_rule.expected_shape = [](const ModelConfig& c) {
    const LatentSizes s(c);
    return Shape{s.heads * (s.plain + s.value), s.rank};
  };
  std::vector<KeyRule> rules = concat(
      {split_head_rules(block),
       {row_rule(block + "q_proj.weight", "layers.{i}.attention.wq.weight", query_rows,
                 query_row_count),
        row_rule(block + "q_b_proj.weight", "layers.{i}.attention.wq_b.weight", query_rows,
                 query_row_count),
        row_rule(block + "kv_a_proj_with_mqa.weight", "layers.{i}.attention.wkv_a.weight",
                 latent_rows, latent_row_count),
        heads_rule, drop_rule(block + "rotary_emb.inv_freq", "derived from the config")},
       rename_rules(block, {{"q_a_proj.weight", "layers.{i}.attention.wq_a.weight"},
                            {"q_a_layernorm.weight", "layers.{i}.attention.q_a_norm.weight"},
                            {"kv_a_layernorm.weight", "layers.{i}.attention.kv_a_norm.weight"},
                            {"o_proj.weight", "layers.{i}.attention.wo.weight"}})});
  if (!config.attention_bias) return rules;
  return concat({rules,
                 {row_rule(block + "kv_a_proj_with_mqa.bias", "layers.{i}.attention.wkv_a.bias",
                           latent_rows, latent_row_count)},
                 rename_rules(block, {{"q_a_proj.bias", "layers.{i}.attention.wq_a.bias"},
                                      {"o_proj.bias", "layers.{i}.attention.wo.bias"}})});
}

ValueId latent_attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const std::string prefix = layer_name(layer, "attention");
  const ModelConfig& g = c.config;
  const LatentSizes s(g);
  const RopeTable& table = c.kind_of(layer).rope;
  const std::vector<ValueId> query = b.split(queries(b, c, x, prefix), {s.plain, s.turned}, 3);
  const ValueId key = latent_keys(b, c, table, x, prefix);

  const ValueId by_head =
      b.permute(b.view(query[0], {c.tokens, heads(s.heads), s.plain}), {1, 0, 2});
  const ValueId lifted = b.bmm(
      by_head,
      b.weight(prefix + ".wk_b.weight", {heads(s.heads), head_dim(s.plain), features(s.rank)}));
  const ValueId plain =
      b.view(b.permute(lifted, {1, 0, 2}), {batch(), c.tokens, heads(s.heads), s.rank});
  const ValueId turned = rope(b, table, query[1]);
  const ValueId mixed = attend(b, c, layer, b.cat({turned, plain}, 3), key, key);

  const ValueId latent = b.slice(mixed, 3, s.turned, kLastElement);
  const ValueId columns = b.permute(b.view(latent, {c.tokens, heads(s.heads), s.rank}), {1, 2, 0});
  const ValueId values = b.bmm(
      b.weight(prefix + ".wv_b.weight", {heads(s.heads), head_dim(s.value), features(s.rank)}),
      columns);
  const ValueId by_token =
      b.view(b.permute(values, {2, 0, 1}), {batch(), c.tokens, heads(s.heads), head_dim(s.value)});
  const ValueId out = b.view(by_token, {batch(), c.tokens, features(s.heads * s.value)});
  return projection(b, out, prefix + ".wo", s.heads * s.value, g.hidden_size, g.attention_bias);
}

}  // namespace ferry::converters
