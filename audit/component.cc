#include "audit/component.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace ferry::audit {
namespace {

struct Rule {
  std::string_view needle;  // a substring of normal_name()
  std::string_view component;
};

// The first rule whose needle occurs in a name decides.
constexpr Rule kRules[] = {
    {".rope", "rope"},
    {"rotary", "rope"},
    {"inv_freq", "rope"},
    {"freqs_cis", "rope"},
    {".router.", "router"},
    {"gate_inp", "router"},
    {".shared_expert_gate.", "router"},
    {".shared_gate.", "router"},
    {".mlp.gate.", "router"},
    {".feed_forward.gate.", "router"},
    {".block_sparse_moe.gate.", "router"},
    {"_exps", "experts"},
    {"_shexp", "experts"},
    {".experts.", "experts"},
    {".shared_expert.", "experts"},
    {".shared_experts.", "experts"},
    {".feed_forward.shared.", "experts"},
    {".linear_attn.", "linear_attn"},
    {".ssm_", "linear_attn"},
    {"in_proj_", "linear_attn"},
    {".dt_bias.", "linear_attn"},
    {".a_log.", "linear_attn"},
    {".attn_gate.", "linear_attn"},
    {".attention.conv1d.", "linear_attn"},
    {".attention.norm.", "linear_attn"},
    {".attention.out_proj.", "linear_attn"},
    {".conv_state.", "linear_attn"},
    {".recurrent_state.", "linear_attn"},
    {".conv.", "conv"},
    {".shortconv.", "conv"},
    {".conv1d.", "conv"},
    {"norm", "norm"},
    {".ln_", "norm"},
    {".ln1.", "norm"},
    {".ln2.", "norm"},
    {".ln.", "norm"},
    {".lambda_", "norm"},
    {".ls1.", "norm"},
    {".ls2.", "norm"},
    {".lm_head.", "head"},
    {".reversible_embedding.vars.1.", "head"},
    {"reverse_embeddings", "head"},
    {"embed", "embedding"},
    {"token_embd", "embedding"},
    {"position_embd", "embedding"},
    {"patch_embd", "embedding"},
    {".wte.", "embedding"},
    {".wpe.", "embedding"},
    {".positions.", "embedding"},
    {".patches.", "embedding"},
    {"gate_up", "mlp.gate_up"},
    {"gate_proj", "mlp.gate"},
    {"ffn_gate", "mlp.gate"},
    {"feedforward_gate", "mlp.gate"},
    {".gating_ffw.", "mlp.gate"},
    {".feed_forward.w1.", "mlp.gate"},
    {"up_proj", "mlp.up"},
    {"ffn_up", "mlp.up"},
    {"feedforward_intermediate", "mlp.up"},
    {".gating_ffw_2.", "mlp.up"},
    {".feed_forward.w3.", "mlp.up"},
    {".fc1.", "mlp.up"},
    {".linear_fc1.", "mlp.up"},
    {".intermediate.", "mlp.up"},
    {"down_proj", "mlp.down"},
    {"ffn_down", "mlp.down"},
    {"feedforward_output", "mlp.down"},
    {".ffw_linear.", "mlp.down"},
    {".feed_forward.w2.", "mlp.down"},
    {".fc2.", "mlp.down"},
    {".linear_fc2.", "mlp.down"},
    {"qkv", "attn.qkv"},
    {".q_proj.", "attn.q"},
    {".wq.", "attn.q"},
    {".attn_q.", "attn.q"},
    {"query", "attn.q"},
    {".k_proj.", "attn.k"},
    {".wk.", "attn.k"},
    {".attn_k.", "attn.k"},
    {"key_dense", "attn.k"},
    {".key.", "attn.k"},
    {".k_cache.", "attn.k"},
    {".v_proj.", "attn.v"},
    {".wv.", "attn.v"},
    {".attn_v.", "attn.v"},
    {"value_dense", "attn.v"},
    {".value.", "attn.v"},
    {".v_cache.", "attn.v"},
    {".o_proj.", "attn.o"},
    {".wo.", "attn.o"},
    {".attn_output.", "attn.o"},
    {".attn_out.", "attn.o"},
    {".attention.output.", "attn.o"},
    {"output_dense", "attn.o"},
    {".out_proj.", "attn.o"},
    {".attn.proj.", "attn.o"},
    {".projection_layer.", "attn.o"},
    {".output.dense.", "mlp.down"},
};
// These names mean the head only at the start of a path; below a layer they are attention or MLP.
constexpr std::string_view kHeadPrefixes[] = {".output.", ".model.output."};

constexpr std::string_view kConnectors[] = {"connector", "multi_modal_projector", ".mlp1.",
                                            ".merger.",  "modality_projection",   ".mm."};
constexpr std::string_view kTowers[] = {".vision", ".visual.", ".vit.", ".v.blk.",
                                        ".image_encoder."};
constexpr std::string_view kConnectorName = "vision.connector";
constexpr std::string_view kSoundConnectorName = "audio.connector";

// Returns the name in lower case, with a dot before, between and behind the parts of its path.
std::string normal_name(std::string_view name) {
  std::string out = ".";
  for (const char c : name) {
    out += c == '/' ? '.' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out + ".";
}

template <size_t N>
bool holds_any(std::string_view name, const std::string_view (&needles)[N]) {
  return std::ranges::any_of(needles, [&](std::string_view needle) {
    return name.find(needle) != std::string_view::npos;
  });
}

std::string_view name_part(std::string_view name) {
  for (const std::string_view prefix : kHeadPrefixes) {
    if (name.starts_with(prefix)) return "head";
  }
  for (const Rule& rule : kRules) {
    if (name.find(rule.needle) != std::string_view::npos) return rule.component;
  }
  return "other";
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

// Finds the layer number in ".layers.7." or in Keras' ".llama_transformer_decoder_7.", which has no
// number for layer 0. Layers of multi-token prediction have none, because they are not among the
// numbered layers of the model.
std::optional<int64_t> layer_of(std::string_view name) {
  if (name.starts_with(".mtp.")) return std::nullopt;
  std::string_view before;
  while (name.size() > 1) {
    name.remove_prefix(1);
    const std::string_view part = name.substr(0, name.find('.'));
    name.remove_prefix(part.size());
    if (before == "layers" || before == "blk" || before == "blocks" || before == "h" ||
        before == "layer") {
      if (const auto layer = number(part)) return layer;
    }
    for (const std::string_view block : {"transformer_decoder", "decoder_block"}) {
      const size_t at = part.find(block);
      if (at == std::string_view::npos) continue;
      const std::string_view rest = part.substr(at + block.size());
      if (rest.empty()) return 0;
      if (rest.front() == '_') return number(rest.substr(1));
    }
    before = part;
  }
  return std::nullopt;
}

constexpr std::array<std::string_view, 6> kOthers = {
    "program", "files", "padding", "other", kConnectorName, kSoundConnectorName};

}  // namespace

Component component_of(std::string_view tensor_name) {
  const std::string name = normal_name(tensor_name);
  Component out{.name = std::string(name_part(name)), .layer = layer_of(name)};
  if (holds_any(name, kConnectors)) {
    out.name = name.starts_with(".audio.") ? kSoundConnectorName : kConnectorName;
  } else if (holds_any(name, kTowers)) {
    // A name that means linear attention in a text decoder means an attention output in a vision
    // tower.
    out.name = "vision." + (out.name == "linear_attn" ? "attn.o" : out.name);
  }
  return out;
}

bool is_component(std::string_view name) {
  if (std::ranges::find(kOthers, name) != kOthers.end() || name == "head") return true;
  constexpr std::string_view kVision = "vision.";
  if (name.starts_with(kVision)) name.remove_prefix(kVision.size());
  if (name == "other") return true;
  return std::ranges::any_of(kRules, [&](const Rule& rule) { return rule.component == name; });
}

}  // namespace ferry::audit
