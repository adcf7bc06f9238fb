#include "converters/blocks/mamba.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "converters/blocks/blocks.h"
#include "converters/blocks/caches.h"
#include "converters/config/json_fields.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

// The names of the sizes in ModelConfig::numbers.
constexpr const char* kHeads = "mamba_n_heads";
constexpr const char* kHeadSize = "mamba_d_head";
constexpr const char* kMambaGroups = "mamba_n_groups";  // groups of heads that share B and C
constexpr const char* kState = "mamba_d_state";
constexpr const char* kKernel = "mamba_d_conv";
constexpr const char* kMambaConvBias = "mamba_conv_bias";
constexpr const char* kProjectionBias = "mamba_proj_bias";

struct MambaSizes {
  explicit MambaSizes(const ModelConfig& c)
      : count(c.number(kHeads)),
        size(c.number(kHeadSize)),
        groups(c.number(kMambaGroups)),
        state(c.number(kState)) {}
  int64_t count, size;  // number of heads; values of one head
  int64_t groups, state;
  int64_t inner() const { return count * size; }
  int64_t channels() const { return inner() + 2 * groups * state; }
};

// Accepts only a limit from 0 to infinity, which has no effect because dt is not negative.
Status check_limit(const JsonFields& fields) {
  const nlohmann::json* limit = fields.find("time_step_limit");
  const nlohmann::json infinite = {{"__float__", "Infinity"}};
  if (!fields.states("time_step_limit")) return {};
  if (limit != nullptr && limit->is_array() && limit->size() == 2 && (*limit)[0] == 0.0 &&
      (*limit)[1] == infinite) {
    return {};
  }
  return fields.error(ErrorCode::kUnsupported, "time_step_limit",
                      "is not from 0 to infinity: not supported");
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
  const MambaSizes s(c.config);
  const Dim tokens = c.tokens;
  const int64_t shared = s.count / s.groups;
  const ValueId pairs = b.view(b.bmm(scan.in, scan.out), {s.groups, 1, tokens, tokens});
  const ValueId grouped = b.view(scan.decay, {s.groups, shared, tokens, tokens});
  const ValueId weights = b.view(b.mul(grouped, pairs), {s.count, tokens, tokens});
  const ValueId within = b.bmm(scan.x, weights);
  const ValueId held = b.view(memory.before, {s.groups, shared * s.size, s.state});
  const ValueId read = b.view(b.bmm(held, scan.out), {s.count, s.size, tokens});
  return b.add(within, b.mul(read, scan.from_start));
}

// Returns the state after the call, [1,heads,size,state].
ValueId next_state(GraphBuilder& b, const DecoderContext& c, const Scan& scan,
                   const State& memory) {
  const MambaSizes s(c.config);
  const int64_t shared = s.count / s.groups;
  const ValueId to_end = b.unsqueeze(b.select(scan.decay, 2, -1), 1);
  const ValueId taken = b.mul(scan.x, to_end);
  const ValueId added = b.bmm(b.view(taken, {s.groups, shared * s.size, c.tokens}), scan.in);
  const ValueId last = b.select(scan.from_start, 2, -1);
  const ValueId kept = b.mul(memory.before, b.view(last, {1, s.count, 1, 1}));
  return b.add(kept, b.view(added, {batch(), heads(s.count), head_dim(s.size), s.state}));
}

ValueId convolved(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                  const std::string& prefix) {
  const int64_t channels = MambaSizes(c.config).channels();
  const ValueId conv = causal_conv(b, c, x, layer, channels, c.config.number(kKernel));
  ValueId y = b.permute(conv, {0, 2, 1});
  if (c.config.number(kMambaConvBias) != 0) {
    y = b.add(y, b.weight(prefix + ".conv1d.bias", {features(channels)}));
  }
  return activate(b, c.config.activation, y);
}

// Normalises each group of heads by itself; all groups have one vector of weights.
ValueId grouped_norm(GraphBuilder& b, const DecoderContext& c, ValueId x, const std::string& name) {
  const MambaSizes s(c.config);
  const double eps = c.config.rms_norm_eps;
  if (s.groups == 1) return rms_norm(b, x, name, eps);
  const ValueId grouped = b.view(x, {batch(), c.tokens, s.groups, s.inner() / s.groups});
  const Dims rows = {batch(), c.tokens, features(s.inner())};
  const ValueId normed = b.view(bare_rms_norm(b, grouped, eps), rows);
  return b.mul(normed, b.weight(name, {features(s.inner())}));
}

}  // namespace

Status read_mamba(const JsonFields& fields, ModelConfig& config) {
  const auto number = [&](const char* key, IntRange range) -> Status {
    config.numbers[key] = FERRY_TRY(fields.required(key, range));
    return {};
  };
  for (const char* key : {kHeads, kMambaGroups}) FERRY_RETURN_IF_ERROR(number(key, kHeadRange));
  FERRY_RETURN_IF_ERROR(number(kState, kHeadDimRange));
  FERRY_RETURN_IF_ERROR(number(kKernel, kConvRange));
  for (const char* key : {kMambaConvBias, kProjectionBias}) {
    config.numbers[key] = FERRY_TRY(fields.flag_or(key, false)) ? 1 : 0;
  }
  const int64_t expand = FERRY_TRY(fields.required("mamba_expand", kConvRange));
  const int64_t inner = expand * config.hidden_size, count = config.number(kHeads);
  const nlohmann::json* size = fields.find(kHeadSize);
  config.numbers[kHeadSize] = inner / count;
  if (size == nullptr || *size != "auto") FERRY_RETURN_IF_ERROR(number(kHeadSize, kHeadDimRange));
  if (inner != count * config.number(kHeadSize)) {
    return fields.bad(kHeadSize, fmt::format("is {}, but {} heads have {} values",
                                             config.number(kHeadSize), count, inner));
  }
  if (count % config.number(kMambaGroups) != 0) {
    return fields.bad(kMambaGroups, fmt::format("is {}, which does not divide {} heads",
                                                config.number(kMambaGroups), count));
  }
  if (MambaSizes(config).channels() > kSizeRange.max) return fields.bad(kState, "is too large");
  return check_limit(fields);
}

std::vector<KeyRule> mamba_rules(const std::string& mixer, const ModelConfig& config) {
  std::vector<KeyRule> rules =
      rename_rules(mixer, {{"A_log", "layers.{i}.attention.A"},
                           {"D", "layers.{i}.attention.D"},
                           {"dt_bias", "layers.{i}.attention.dt_bias"},
                           {"norm.weight", "layers.{i}.attention.norm.weight"},
                           {"conv1d.weight", "layers.{i}.attention.conv1d.weight"},
                           {"in_proj.weight", "layers.{i}.attention.in_proj.weight"},
                           {"out_proj.weight", "layers.{i}.attention.out_proj.weight"}});
  rules.front().name = "-exp(A_log)";
  rules.front().steps = {{.kind = graph::Step::Kind::kNegExp}};
  if (config.number(kMambaConvBias) != 0) {
    rules =
        concat({rules, rename_rules(mixer, {{"conv1d.bias", "layers.{i}.attention.conv1d.bias"}})});
  }
  if (config.number(kProjectionBias) == 0) return rules;
  return concat(
      {rules, rename_rules(mixer, {{"in_proj.bias", "layers.{i}.attention.in_proj.bias"},
                                   {"out_proj.bias", "layers.{i}.attention.out_proj.bias"}})});
}

ValueId mamba(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const std::string prefix = layer_name(layer, "attention");
  const ModelConfig& g = c.config;
  const MambaSizes s(g);
  const bool bias = g.number(kProjectionBias) != 0;
  const int64_t width = s.inner() + s.channels() + s.count;
  const ValueId mixed = projection(b, x, prefix + ".in_proj", g.hidden_size, width, bias);
  const std::vector<ValueId> parts = b.split(mixed, {s.inner(), s.channels(), s.count}, 2);
  const int64_t shared = s.groups * s.state;
  const std::vector<ValueId> streams =
      b.split(convolved(b, c, parts[1], layer, prefix), {s.inner(), shared, shared}, 2);

  const ValueId step =
      softplus(b, b.add(parts[2], b.weight(prefix + ".dt_bias", {features(s.count)})));
  const ValueId steps = b.unsqueeze(b.permute(b.select(step, 0, 0), {1, 0}), 1);
  const ValueId values = b.permute(b.view(streams[0], {c.tokens, s.count, s.size}), {1, 2, 0});
  const ValueId pace = b.view(b.weight(prefix + ".A", {features(s.count)}), {s.count, 1, 1});
  const ValueId rates = b.mul(steps, pace);
  Scan scan;
  scan.x = b.mul(values, steps);
  scan.in = b.permute(b.view(streams[1], {c.tokens, s.groups, s.state}), {1, 0, 2});
  scan.out = b.permute(b.view(streams[2], {c.tokens, s.groups, s.state}), {1, 2, 0});
  scan.decay = decays(b, c, rates);
  scan.from_start = b.exp(b.cumsum_last(rates));
  const State memory =
      state(b, c, layer, "recurrent_state", {batch(), heads(s.count), head_dim(s.size), s.state});
  const ValueId read = scanned(b, c, scan, memory);
  const ValueId after = next_state(b, c, scan, memory);
  if (memory.buffer.valid()) b.copy_into(memory.buffer, after);
  keep(c, memory, after);

  const ValueId skip = b.view(b.weight(prefix + ".D", {features(s.count)}), {s.count, 1, 1});
  const ValueId summed = b.add(read, b.mul(values, skip));
  const ValueId rows =
      b.view(b.permute(summed, {2, 0, 1}), {batch(), c.tokens, features(s.inner())});
  const ValueId gated = b.mul(rows, silu(b, parts[0]));
  const ValueId normed = grouped_norm(b, c, gated, prefix + ".norm.weight");
  return projection(b, normed, prefix + ".out_proj", s.inner(), g.hidden_size, bias);
}

}  // namespace ferry::converters
