#include "converters/blocks/selective_scan.h"

#include <nlohmann/json.hpp>

#include "converters/blocks/blocks.h"
#include "converters/blocks/caches.h"
#include "converters/blocks/mamba.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

// The delta rule computes S' = G S + k beta (v - k' G S). With a beta that is this small, and a
// value that is larger by as much, the last term is far below the rounding of S, and what is left
// is the recurrence of Mamba. Both are powers of two, so their product is exact.
constexpr double kSmallBeta = 0x1p-40, kLargeValue = 0x1p40;

// Returns the norm of x over its last dimension, where the mixer has such norms.
ValueId inner_norm(GraphBuilder& b, const MambaConfig& s, ValueId x, const std::string& name) {
  if (!s.inner_norms) return x;
  return s.inner_weights ? rms_norm(b, x, name, s.norm_eps) : bare_rms_norm(b, x, s.norm_eps);
}

// The inputs of the scan: steps and x [1,T,channels], B and C [1,T,state].
struct ScanInputs {
  ValueId steps, x, in, out;
};

ScanInputs scan_inputs(GraphBuilder& b, const MambaConfig& s, ValueId x,
                       const std::string& prefix) {
  const int64_t channels = s.inner();
  const ValueId mixed =
      projection(b, x, prefix + ".x_proj", channels, s.rank + 2 * s.state, /*bias=*/false);
  const std::vector<ValueId> parts = b.split(mixed, {s.rank, s.state, s.state}, 2);
  const ValueId narrow = inner_norm(b, s, parts[0], prefix + ".dt_norm.weight");
  ScanInputs out;
  out.steps = softplus(b, projection(b, narrow, prefix + ".dt_proj", s.rank, channels, true));
  out.x = x;
  out.in = inner_norm(b, s, parts[1], prefix + ".b_norm.weight");
  out.out = inner_norm(b, s, parts[2], prefix + ".c_norm.weight");
  return out;
}

// Returns y without the term D x, [1,T,channels].
ValueId scanned_channels(GraphBuilder& b, const DecoderContext& c, const ScanInputs& in,
                         const std::string& prefix, int64_t layer) {
  const MambaConfig& s = c.config.mamba;
  const int64_t channels = s.inner();
  const Dim width = features(channels), size = head_dim(s.state);
  const Dims wide = {batch(), width, c.tokens, size};
  const ValueId key = b.expand(b.view(in.in, {batch(), 1, c.tokens, size}), wide);
  const ValueId query = b.expand(b.view(in.out, {batch(), 1, c.tokens, size}), wide);
  const ValueId steps = b.permute(in.steps, {0, 2, 1});
  const ValueId by_step = b.view(steps, {batch(), width, c.tokens, 1});
  const ValueId rates = b.weight_f32(prefix + ".A", {width, features(s.state)});
  const ValueId decay = b.exp(b.mul(by_step, b.view(rates, {1, width, 1, size})));
  const ValueId beta = b.mul(steps, kSmallBeta);
  const ValueId values = b.mul(b.permute(in.x, {0, 2, 1}), kLargeValue);
  const ValueId value = b.view(values, {batch(), width, c.tokens, 1});
  const State memory = state(b, c, layer, "recurrent_state", {batch(), width, size, 1});
  const auto [read, after] =
      b.gated_delta_rule(query, key, value, decay, beta, memory.before, memory.buffer);
  keep(c, memory, after);
  return b.permute(b.view(read, {batch(), width, c.tokens}), {0, 2, 1});
}

}  // namespace

Status read_selective_scan(const JsonFields& fields, ModelConfig& config) {
  MambaConfig& out = config.mamba;
  out.heads = 1;
  out.groups = 1;
  out.head_dim = config.hidden_size * FERRY_TRY(fields.required("mamba_expand", kConvRange));
  FERRY_RETURN_IF_ERROR(read_mixer(fields, config));
  constexpr int64_t kHiddenPerRank = 16;
  const nlohmann::json* rank = fields.find("mamba_dt_rank");
  out.rank = (config.hidden_size + kHiddenPerRank - 1) / kHiddenPerRank;
  if (rank == nullptr || *rank != "auto") {
    out.rank = FERRY_TRY(fields.required("mamba_dt_rank", kSizeRange));
  }
  if (out.inner() <= kSizeRange.max) return {};
  return fields.bad("mamba_expand", "makes too many channels");
}

std::vector<KeyRule> selective_scan_rules(const std::string& mixer, const ModelConfig& config) {
  const MambaConfig& s = config.mamba;
  std::vector<KeyRule> rules =
      rename_rules(mixer, {{"A_log", "layers.{i}.attention.A"},
                           {"D", "layers.{i}.attention.D"},
                           {"conv1d.weight", "layers.{i}.attention.conv1d.weight"},
                           {"in_proj.weight", "layers.{i}.attention.in_proj.weight"},
                           {"x_proj.weight", "layers.{i}.attention.x_proj.weight"},
                           {"dt_proj.weight", "layers.{i}.attention.dt_proj.weight"},
                           {"dt_proj.bias", "layers.{i}.attention.dt_proj.bias"},
                           {"out_proj.weight", "layers.{i}.attention.out_proj.weight"}});
  rules.front().name = "-exp(A_log)";
  rules.front().steps = {{.kind = graph::Step::Kind::kNegExp}};
  const auto add = [&](bool wanted, const char* key, const char* target) {
    if (wanted) rules = concat({rules, rename_rules(mixer, {{key, target}})});
  };
  add(s.conv_bias, "conv1d.bias", "layers.{i}.attention.conv1d.bias");
  add(s.in_bias, "in_proj.bias", "layers.{i}.attention.in_proj.bias");
  add(s.out_bias, "out_proj.bias", "layers.{i}.attention.out_proj.bias");
  return rules;
}

ValueId selective_scan(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const std::string prefix = layer_name(layer, "attention");
  const ModelConfig& g = c.config;
  const MambaConfig& s = g.mamba;
  const int64_t channels = s.inner();
  const ValueId mixed =
      projection(b, x, prefix + ".in_proj", g.hidden_size, 2 * channels, s.in_bias);
  const std::vector<ValueId> parts = b.split(mixed, {channels, channels}, 2);
  const ScanInputs inputs = scan_inputs(b, s, mamba_conv(b, c, parts[0], layer), prefix);
  const ValueId read = scanned_channels(b, c, inputs, prefix, layer);
  const ValueId skip = b.weight(prefix + ".D", {features(channels)});
  const ValueId summed = b.add(read, b.mul(inputs.x, skip));
  const ValueId out = b.mul(summed, silu(b, parts[1]));
  return projection(b, out, prefix + ".out_proj", channels, g.hidden_size, s.out_bias);
}

}  // namespace ferry::converters
