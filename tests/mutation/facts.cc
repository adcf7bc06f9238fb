#include "tests/mutation/facts.h"

#include <algorithm>
#include <numeric>

namespace ferry::mutation {
namespace {

using Json = nlohmann::json;

int64_t number(const Json& config, std::initializer_list<const char*> names, int64_t other) {
  for (const char* name : names) {
    if (config.contains(name) && config[name].is_number()) return config[name];
  }
  return other;
}

// Returns the first value of `key`, at any depth.
const Json* find_deep(const Json& config, const char* key) {
  if (!config.is_object()) return nullptr;
  if (config.contains(key) && !config[key].is_null()) return &config[key];
  for (const auto& [name, value] : config.items()) {
    if (const Json* found = find_deep(value, key)) return found;
  }
  return nullptr;
}

std::vector<int64_t> range(int64_t begin, int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), begin);
  return rows;
}

constexpr int64_t kCodegenBlocks = 4;

}  // namespace

Facts::Facts(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  const Json& config = text_config(checkpoint.config);
  model_type = config.at("model_type");
  const bool codegen = model_type == "codegen", gpt2 = model_type == "gpt2";
  const bool neox = model_type == "gpt_neox", opt = model_type == "opt";
  const bool qwen_hybrid = model_type.starts_with("qwen3_5") || model_type == "qwen3_next";
  // Multimodal checkpoints have a prefix before the language model.
  const std::string model = has("language_model.model.norm.weight")   ? "language_model.model."
                            : has("model.language_model.norm.weight") ? "model.language_model."
                                                                      : "model.";
  prefix_ = codegen || gpt2 ? "transformer.h."
            : neox          ? "gpt_neox.layers."
            : opt           ? "model.decoder.layers."
                            : model + "layers.";
  embedding = codegen || gpt2 ? "transformer.wte.weight"
              : neox          ? "gpt_neox.embed_in.weight"
              : opt           ? "model.decoder.embed_tokens.weight"
                              : model + "embed_tokens.weight";
  head = neox                                  ? "embed_out.weight"
         : model.starts_with("language_model") ? "language_model.lm_head.weight"
                                               : "lm_head.weight";
  // Granite 4 has RoPE only where its config states it.
  has_rope = !gpt2 && !opt &&
             (model_type != "granitemoehybrid" || (config.contains("position_embedding_type") &&
                                                   config["position_embedding_type"] == "rope"));
  final_norm = codegen || gpt2        ? "transformer.ln_f.weight"
               : neox                 ? "gpt_neox.final_layer_norm.weight"
               : opt                  ? "model.decoder.final_layer_norm.weight"
               : model_type == "phi"  ? "model.final_layernorm.weight"
               : model_type == "lfm2" ? "model.embedding_norm.weight"
                                      : model + "norm.weight";
  layers = number(config, {"num_hidden_layers", "n_layer"}, 0);
  // Where OPT has its norms after each block, the last norm is that of the last layer.
  if (opt && !has(final_norm)) final_norm = layer(layers - 1) + "final_layer_norm.weight";
  heads = number(config, {"num_attention_heads", "n_head"}, 1);
  kv_heads = number(config, {"num_key_value_heads"}, heads);
  head_dim = number(config, {"head_dim"}, number(config, {"hidden_size", "n_embd"}, 1) / heads);
  const Json* partial = find_deep(config, "partial_rotary_factor");
  rotary_dim = number(config, {"rotary_dim"}, head_dim);
  if (partial) rotary_dim = static_cast<int64_t>(partial->get<double>() * double(head_dim));
  shifted_norms = model_type.starts_with("gemma") || model_type == "nemotron" || qwen_hybrid;
  paired_rope = codegen || model_type == "glm" || model_type.starts_with("cohere");
  output_gate = qwen_hybrid;
  tied = !checkpoint.has(head);
  expert_count = number(config, {"num_local_experts", "num_experts", "n_routed_experts"}, 0);
  expert_size = number(config, {"moe_intermediate_size"}, 0);
  key_heads = number(config, {"linear_num_key_heads"}, 0);
  value_heads = number(config, {"linear_num_value_heads"}, 0);
  key_dim = number(config, {"linear_key_head_dim"}, 0);
  value_dim = number(config, {"linear_value_head_dim"}, 0);
  read_layer_kinds();
}

void Facts::read_layer_kinds() {
  const Json& config = text_config(checkpoint_.config);
  const Json* types = find_deep(config, "layer_types");
  const bool every = model_type == "mistral" || model_type == "phi3" || model_type == "qwen3_moe" ||
                     model_type == "starcoder2";
  const bool window =
      number(config, {"sliding_window"}, 0) > 0 && config.value("use_sliding_window", true);
  for (int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<size_t>(i);
    if (has(layer(i) + "linear_attn.out_proj.weight")) linear.push_back(i);
    if (has(layer(i) + "conv.conv.weight")) convs.push_back(i);
    if (part(i, Part::kKey)) {
      attention.push_back(i);
      const bool slides = types ? types->at(at) == "sliding_attention" : every;
      const bool listed =
          !config.contains("no_rope_layers") || config["no_rope_layers"].at(at) == 1;
      if (has_rope && listed && (slides || model_type != "cohere2")) turned.push_back(i);
      if (window && slides) sliding.push_back(i);
    }
    if (part(i, Part::kGate)) gated.push_back(i);
    if (has(layer(i) + "mlp.experts.gate_up_proj")) fused_experts = true;
    if (has(layer(i) + "mlp.gate.weight")) experts.push_back(i);
  }
}

std::string Facts::first_of(int64_t i, const std::vector<std::string>& leaves) const {
  for (const std::string& leaf : leaves) {
    if (has(layer(i) + leaf)) return layer(i) + leaf;
  }
  return "";
}

Rows Facts::all_rows(const std::string& key) const {
  return {key, range(0, checkpoint_.tensors.at(key).rows())};
}

// Returns the rows of a part of a tensor that holds several.
std::optional<Rows> Facts::packed_part(int64_t i, Part part) const {
  const int64_t q = heads * head_dim, kv = kv_heads * head_dim;
  const std::string qkv = first_of(i, {"self_attn.qkv_proj.weight", "attn.c_attn.weight"});
  if (!qkv.empty()) {
    if (part == Part::kQuery) return Rows{qkv, range(0, q)};
    if (part == Part::kKey) return Rows{qkv, range(q, kv)};
    if (part == Part::kValue) return Rows{qkv, range(q + kv, kv)};
  }
  const std::string blocks = first_of(i, {"attn.qkv_proj.weight"});
  if (!blocks.empty() && part != Part::kGate && part != Part::kUp) {
    // Each block has the rows of q, v and k.
    const int64_t rows = q / kCodegenBlocks;
    const int64_t place = part == Part::kQuery ? 0 : part == Part::kValue ? 1 : 2;
    Rows all{blocks, {}};
    for (int64_t b = 0; b < kCodegenBlocks; ++b) {
      for (int64_t row : range((3 * b + place) * rows, rows)) all.at.push_back(row);
    }
    return all;
  }
  const std::string by_head = first_of(i, {"attention.query_key_value.weight"});
  if (!by_head.empty() && part != Part::kGate && part != Part::kUp) {
    const int64_t place = part == Part::kQuery ? 0 : part == Part::kKey ? 1 : 2;
    Rows all{by_head, {}};
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t row : range((3 * h + place) * head_dim, head_dim)) all.at.push_back(row);
    }
    return all;
  }
  const std::string gate_up = first_of(i, {"mlp.gate_up_proj.weight"});
  if (!gate_up.empty() && (part == Part::kGate || part == Part::kUp)) {
    const int64_t half = checkpoint_.tensors.at(gate_up).rows() / 2;
    return Rows{gate_up, range(part == Part::kGate ? 0 : half, half)};
  }
  return std::nullopt;
}

std::optional<Rows> Facts::part(int64_t i, Part part, const std::string& leaf) const {
  std::vector<std::string> names;
  switch (part) {
    case Part::kQuery:
      names = {"self_attn.q_proj."};
      break;
    case Part::kKey:
      names = {"self_attn.k_proj."};
      break;
    case Part::kValue:
      names = {"self_attn.v_proj."};
      break;
    case Part::kGate:
      names = {"mlp.gate_proj.", "feed_forward.w1."};
      break;
    case Part::kUp:
      names = {"mlp.up_proj.", "feed_forward.w3."};
      break;
  }
  for (std::string& name : names) name += leaf;
  const std::string key = first_of(i, names);
  if (!key.empty()) return all_rows(key);
  return leaf == "weight" ? packed_part(i, part) : std::nullopt;
}

Rows Facts::head_rows(int64_t i, Part which, int64_t h, const std::string& leaf) const {
  const Rows all = rows(i, which, leaf);
  const auto width = static_cast<int64_t>(all.at.size()) / heads_of(which);
  return {all.key, {all.at.begin() + h * width, all.at.begin() + (h + 1) * width}};
}

std::vector<std::string> Facts::keys_of(int64_t i) const {
  std::vector<std::string> leaves;
  for (const auto& [key, tensor] : checkpoint_.tensors) {
    if (key.starts_with(layer(i))) leaves.push_back(key.substr(layer(i).size()));
  }
  return leaves;
}

std::vector<std::string> Facts::norms_of(int64_t i) const {
  std::vector<std::string> norms;
  for (const std::string& leaf : keys_of(i)) {
    const Tensor& tensor = checkpoint_.tensors.at(layer(i) + leaf);
    if (tensor.shape.size() == 1 && leaf.ends_with(".weight")) norms.push_back(leaf);
  }
  return norms;
}

std::vector<std::string> Facts::matrices_of(int64_t i) const {
  std::vector<std::string> matrices;
  for (const std::string& leaf : keys_of(i)) {
    if (checkpoint_.tensors.at(layer(i) + leaf).shape.size() == 2) matrices.push_back(leaf);
  }
  return matrices;
}

Rows Facts::expert_rows(int64_t i, int64_t expert, Part part) const {
  const bool up = part == Part::kUp;
  if (fused_experts) {
    const int64_t begin = expert * 2 * expert_size + (up ? expert_size : 0);
    return {layer(i) + "mlp.experts.gate_up_proj", range(begin, expert_size)};
  }
  return all_rows(layer(i) + "mlp.experts." + std::to_string(expert) +
                  (up ? ".up_proj.weight" : ".gate_proj.weight"));
}

}  // namespace ferry::mutation
