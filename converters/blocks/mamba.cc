#include "converters/blocks/mamba.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "converters/blocks/blocks.h"
#include "converters/blocks/caches.h"
#include "converters/config/json_fields.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

constexpr const char* kLimit = "time_step_limit";
constexpr FloatRange kStepRange = {0.0, 1e30};

// Reads a bound of time_step_limit; nullopt stands for infinity.
Result<std::optional<double>> read_bound(const JsonFields& fields, const nlohmann::json& bound) {
  const nlohmann::json infinite = {{"__float__", "Infinity"}};
  if (bound == infinite) return std::nullopt;
  if (bound.is_number() && bound.get<double>() >= kStepRange.min &&
      bound.get<double>() <= kStepRange.max) {
    return bound.get<double>();
  }
  return fields.bad(kLimit, "has a bound that is not a number from 0 on");
}

Status read_limit(const JsonFields& fields, MambaConfig& out) {
  if (!fields.states(kLimit)) return {};
  const nlohmann::json* limit = fields.find(kLimit);
  if (limit == nullptr || !limit->is_array() || limit->size() != 2) {
    return fields.bad(kLimit, "is not a list of two numbers");
  }
  const auto least = FERRY_TRY(read_bound(fields, (*limit)[0]));
  if (!least) return fields.bad(kLimit, "begins with infinity");
  out.least_step = *least;
  out.greatest_step = FERRY_TRY(read_bound(fields, (*limit)[1]));
  return {};
}

// How the tokens of a call act on each other. Values of heads are [heads,...], values of groups of
// heads [groups,...]; positions are the last dimension.
struct Scan {
  ValueId x;        // dt x, f32 [heads,size,T]
  ValueId in, out;  // B [groups,T,state] and C [groups,state,T]
  // Decay of token `from` at token `to`, [heads,T from,T to]; 0 where `to` is before `from`.
  ValueId decay;
  ValueId from_start;  // decay of the state before the call, [heads,1,T]
};

// Returns Scan::decay: exp of the sums of `rates` [heads,1,T] over the tokens after `from` up to
// `to`.
ValueId decays(GraphBuilder& b, const DecoderContext& c, ValueId rates) {
  const Dim tokens = c.tokens;
  const graph::IntArg count =
      tokens.is_static()
          ? graph::IntArg(tokens.base)
          : graph::IntArg(b.graph().symbols[static_cast<size_t>(tokens.symbol)].value);
  const ValueId places = b.arange(0, count, tokens);
  const ValueId ahead = b.sub(b.unsqueeze(places, 1), places);  // from - to
  const ValueId zero = b.scalar(0.0F);
  const ValueId behind = b.where(b.lt(ahead, 0), rates, zero);
  const ValueId decayed = b.exp(b.cumsum_last(behind));
  return b.where(b.lt(ahead, 1), decayed, zero);
}

// Returns y without the term D x, [heads,size,T].
ValueId scanned(GraphBuilder& b, const DecoderContext& c, const Scan& scan, const State& memory) {
  const MambaConfig& s = c.config.mamba;
  const Dim tokens = c.tokens;
  const int64_t shared = s.heads / s.groups;
  const ValueId pairs = b.view(b.bmm(scan.in, scan.out), {s.groups, 1, tokens, tokens});
  const ValueId grouped = b.view(scan.decay, {s.groups, shared, tokens, tokens});
  const ValueId weights = b.view(b.mul(grouped, pairs), {s.heads, tokens, tokens});
  const ValueId within = b.bmm(scan.x, weights);
  const ValueId held = b.view(memory.before, {s.groups, shared * s.head_dim, s.state});
  const ValueId read = b.view(b.bmm(held, scan.out), {s.heads, s.head_dim, tokens});
  return b.add(within, b.mul(read, scan.from_start));
}

// Returns the state after the call, [1,heads,size,state].
ValueId next_state(GraphBuilder& b, const DecoderContext& c, const Scan& scan,
                   const State& memory) {
  const MambaConfig& s = c.config.mamba;
  const int64_t shared = s.heads / s.groups;
  const ValueId to_end = b.unsqueeze(b.select(scan.decay, 2, -1), 1);
  const ValueId taken = b.mul(scan.x, to_end);
  const ValueId added = b.bmm(b.view(taken, {s.groups, shared * s.head_dim, c.tokens}), scan.in);
  const ValueId last = b.select(scan.from_start, 2, -1);
  const ValueId kept = b.mul(memory.before, b.view(last, {1, s.heads, 1, 1}));
  return b.add(kept, b.view(added, {batch(), heads(s.heads), head_dim(s.head_dim), s.state}));
}

// Normalises each group of heads by itself; all groups have one vector of weights.
ValueId grouped_norm(GraphBuilder& b, const DecoderContext& c, ValueId x, const std::string& name) {
  const MambaConfig& s = c.config.mamba;
  const double eps = s.norm_eps;
  if (s.groups == 1) return rms_norm(b, x, name, eps);
  const ValueId grouped = b.view(x, {batch(), c.tokens, s.groups, s.inner() / s.groups});
  const Dims rows = {batch(), c.tokens, features(s.inner())};
  const ValueId normed = b.view(bare_rms_norm(b, grouped, eps), rows);
  return b.mul(normed, b.weight(name, {features(s.inner())}));
}

// Multiplies the parts of the input projection by their multipliers: x [1,T,width].
ValueId multiplied(GraphBuilder& b, const MambaConfig& s, ValueId x) {
  if (s.multipliers.empty()) return x;
  const int64_t shared = s.groups * s.state;
  const std::array<int64_t, 5> sizes = {s.inner(), s.inner(), shared, shared, s.heads};
  std::vector<float> factors;
  for (size_t part = 0; part < sizes.size(); ++part) {
    factors.insert(factors.end(), static_cast<size_t>(sizes[part]),
                   static_cast<float>(s.multipliers[part]));
  }
  const auto width = std::ssize(factors);
  const uint64_t bytes = static_cast<uint64_t>(width) * sizeof(float);
  const auto fill = [factors](uint64_t offset, std::span<std::byte> out) {
    std::ranges::copy(std::as_bytes(std::span(factors)).subspan(offset, out.size()), out.begin());
  };
  const ValueId vector =
      b.literal(DType::kF32, {features(width)},
                {.key = fmt::format("mamba_multipliers:{}:{}", fmt::join(sizes, ","),
                                    fmt::join(s.multipliers, ",")),
                 .bytes = bytes,
                 .fill = fill});
  return b.mul(x, vector);
}

// Applies the gate, and the norm where there is one: both are [1,T,inner].
ValueId gated(GraphBuilder& b, const DecoderContext& c, ValueId x, ValueId gate,
              const std::string& norm) {
  const MambaConfig& s = c.config.mamba;
  if (s.norm == MambaConfig::Norm::kBeforeGate) x = grouped_norm(b, c, x, norm);
  const ValueId out = b.mul(x, silu(b, gate));
  return s.norm == MambaConfig::Norm::kBehindGate ? grouped_norm(b, c, out, norm) : out;
}

// Returns the time steps, [1,T,heads].
ValueId time_steps(GraphBuilder& b, const MambaConfig& s, ValueId x, const std::string& prefix) {
  const ValueId steps = softplus(b, b.add(x, b.weight(prefix + ".dt_bias", {features(s.heads)})));
  if (s.least_step == 0.0 && !s.greatest_step) return steps;
  return b.clamp(steps, s.least_step, s.greatest_step.value_or(std::numeric_limits<float>::max()));
}

}  // namespace

Status read_mixer(const JsonFields& fields, ModelConfig& config) {
  MambaConfig& out = config.mamba;
  out.state = FERRY_TRY(fields.required("mamba_d_state", kHeadDimRange));
  out.conv_kernel = FERRY_TRY(fields.required("mamba_d_conv", kConvRange));
  out.conv_bias = FERRY_TRY(fields.flag_or("mamba_conv_bias", false));
  out.in_bias = FERRY_TRY(fields.flag_or("mamba_proj_bias", false));
  out.out_bias = out.in_bias;
  out.activation = config.activation;
  out.norm_eps = config.rms_norm_eps;
  return {};
}

Status read_mamba(const JsonFields& fields, ModelConfig& config, std::optional<int64_t> inner) {
  MambaConfig& out = config.mamba;
  FERRY_RETURN_IF_ERROR(read_mixer(fields, config));
  out.heads = FERRY_TRY(fields.required("mamba_n_heads", kHeadRange));
  out.groups = FERRY_TRY(fields.required("mamba_n_groups", kHeadRange));
  const int64_t expand = FERRY_TRY(fields.required("mamba_expand", kConvRange));
  const int64_t width = inner.value_or(expand * config.hidden_size);
  const nlohmann::json* size = fields.find("mamba_d_head");
  out.head_dim = width / out.heads;
  if (size == nullptr || *size != "auto") {
    out.head_dim = FERRY_TRY(fields.required("mamba_d_head", kHeadDimRange));
  }
  if (width != out.inner() || width == 0) {
    return fields.bad("mamba_d_head", fmt::format("is {}, but {} heads have {} values",
                                                  out.head_dim, out.heads, width));
  }
  if (out.heads % out.groups != 0) {
    return fields.bad("mamba_n_groups",
                      fmt::format("is {}, which does not divide {} heads", out.groups, out.heads));
  }
  if (out.conv_channels() > kSizeRange.max) return fields.bad("mamba_d_state", "is too large");
  return read_limit(fields, out);
}

std::vector<KeyRule> mamba_rules(const std::string& mixer, const ModelConfig& config) {
  const MambaConfig& s = config.mamba;
  std::vector<KeyRule> rules =
      rename_rules(mixer, {{"A_log", "layers.{i}.attention.A"},
                           {"D", "layers.{i}.attention.D"},
                           {"dt_bias", "layers.{i}.attention.dt_bias"},
                           {"conv1d.weight", "layers.{i}.attention.conv1d.weight"},
                           {"in_proj.weight", "layers.{i}.attention.in_proj.weight"},
                           {"out_proj.weight", "layers.{i}.attention.out_proj.weight"}});
  rules.front().name = "-exp(A_log)";
  rules.front().steps = {{.kind = graph::Step::Kind::kNegExp}};
  const auto add = [&](bool wanted, const char* key, const char* target) {
    if (wanted) rules = concat({rules, rename_rules(mixer, {{key, target}})});
  };
  add(s.norm != MambaConfig::Norm::kNone, "norm.weight", "layers.{i}.attention.norm.weight");
  add(s.conv_bias, "conv1d.bias", "layers.{i}.attention.conv1d.bias");
  add(s.in_bias, "in_proj.bias", "layers.{i}.attention.in_proj.bias");
  add(s.out_bias, "out_proj.bias", "layers.{i}.attention.out_proj.bias");
  return rules;
}

std::vector<KeyRule> backbone_rules(const std::string& prefix) {
  return rename_rules(prefix, {{"embeddings.weight", "tok_embeddings.weight"},
                               {"embedding.weight", "tok_embeddings.weight"},
                               {"layers.{i}.norm.weight", "layers.{i}.attention_norm.weight"},
                               {"norm_f.weight", "norm.weight"}});
}

std::vector<KeyRule> mamba_decoder_rules(const ModelConfig& config, const std::string& prefix) {
  const std::string mlp = prefix + "layers.{i}.feed_forward.";
  return concat(
      {attention_rules(prefix, config.attention_bias),
       parameter_rules(mlp, config.mlp_bias,
                       {{"gate_proj", "layers.{i}.feed_forward.w1"},
                        {"up_proj", "layers.{i}.feed_forward.w3"},
                        {"down_proj", "layers.{i}.feed_forward.w2"}}),
       rename_rules(prefix,
                    {{"embed_tokens.weight", "tok_embeddings.weight"},
                     {"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                     {"layers.{i}.pre_ff_layernorm.weight", "layers.{i}.ffn_norm.weight"},
                     {"final_layernorm.weight", "norm.weight"}})});
}

ValueId mamba_conv(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const MambaConfig& s = c.config.mamba;
  const int64_t channels = s.conv_channels();
  const ValueId conv = causal_conv(b, c, x, layer, channels, s.conv_kernel);
  ValueId y = b.permute(conv, {0, 2, 1});
  if (s.conv_bias) {
    y = b.add(y, b.weight(layer_name(layer, "attention.conv1d.bias"), {features(channels)}));
  }
  return activate(b, s.activation, y);
}

ValueId mamba_mixer(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const std::string prefix = layer_name(layer, "attention");
  const ModelConfig& g = c.config;
  const MambaConfig& s = g.mamba;
  const int64_t channels = s.conv_channels();
  const int64_t width = s.inner() + channels + s.heads;
  const ValueId mixed =
      multiplied(b, s, projection(b, x, prefix + ".in_proj", g.hidden_size, width, s.in_bias));
  const std::vector<ValueId> parts = b.split(mixed, {s.inner(), channels, s.heads}, 2);
  const int64_t shared = s.groups * s.state;
  const std::vector<ValueId> streams =
      b.split(mamba_conv(b, c, parts[1], layer), {s.inner(), shared, shared}, 2);

  const ValueId step = time_steps(b, s, parts[2], prefix);
  const ValueId steps = b.unsqueeze(b.permute(b.select(step, 0, 0), {1, 0}), 1);
  const ValueId values = b.permute(b.view(streams[0], {c.tokens, s.heads, s.head_dim}), {1, 2, 0});
  const ValueId pace = b.view(b.weight(prefix + ".A", {features(s.heads)}), {s.heads, 1, 1});
  const ValueId rates = b.mul(steps, pace);
  Scan scan;
  scan.x = b.mul(values, steps);
  scan.in = b.permute(b.view(streams[1], {c.tokens, s.groups, s.state}), {1, 0, 2});
  scan.out = b.permute(b.view(streams[2], {c.tokens, s.groups, s.state}), {1, 2, 0});
  scan.decay = decays(b, c, rates);
  scan.from_start = b.exp(b.cumsum_last(rates));
  const State memory = state(b, c, layer, "recurrent_state",
                             {batch(), heads(s.heads), head_dim(s.head_dim), s.state});
  const ValueId read = scanned(b, c, scan, memory);
  const ValueId after = next_state(b, c, scan, memory);
  if (memory.buffer.valid()) b.copy_into(memory.buffer, after);
  keep(c, memory, after);

  const ValueId skip = b.view(b.weight(prefix + ".D", {features(s.heads)}), {s.heads, 1, 1});
  const ValueId summed = b.add(read, b.mul(values, skip));
  const ValueId rows =
      b.view(b.permute(summed, {2, 0, 1}), {batch(), c.tokens, features(s.inner())});
  const ValueId out = gated(b, c, rows, parts[0], prefix + ".norm.weight");
  return projection(b, out, prefix + ".out_proj", s.inner(), g.hidden_size, s.out_bias);
}

}  // namespace ferry::converters
