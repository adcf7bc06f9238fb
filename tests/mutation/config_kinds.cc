// Wrong conversions that misread numbers and flags of config.json, or do not read them at all.
#include <algorithm>
#include <cmath>

#include "tests/mutation/kinds.h"

namespace ferry::mutation {
namespace {

using Json = nlohmann::json;
using Excluded = decltype(Kind::excluded);
using Change = decltype(Kind::change);

// Calls `change` on every value of `key` that is not null, however deep.
void visit(Json& config, const std::string& key, const std::function<void(Json&)>& change) {
  if (!config.is_object()) return;
  for (auto& [name, value] : config.items()) {
    if (name == key && !value.is_null()) {
      change(value);
    } else {
      visit(value, key, change);
    }
  }
}

std::vector<Json> values_of(const Json& config, const std::string& key) {
  std::vector<Json> values;
  Json copy = config;
  visit(copy, key, [&](Json& value) { values.push_back(value); });
  return values;
}

Excluded without(const std::string& key) {
  return [key](const Checkpoint& c, const Facts&) {
    return values_of(c.config, key).empty() ? "its config has no " + key : "";
  };
}

Change with_number(const std::string& key, const std::function<double(double)>& change) {
  return [key, change](Checkpoint& c, const Facts&) {
    visit(c.config, key, [&](Json& value) { value = change(value.get<double>()); });
  };
}

Change with_integer(const std::string& key, int64_t step) {
  return [key, step](Checkpoint& c, const Facts&) {
    visit(c.config, key, [&](Json& value) { value = value.get<int64_t>() + step; });
  };
}

Change scaled(const std::string& key, double factor) {
  return with_number(key, [factor](double value) { return value * factor; });
}

Change set_null(const std::string& key) {
  return [key](Checkpoint& c, const Facts&) {
    visit(c.config, key, [](Json& value) { value = nullptr; });
  };
}

std::string no_theta(const Checkpoint& c, const Facts& f) {
  if (!f.has_rope) return "has no RoPE";
  if (f.rotary_dim == 2) return "turns one pair only, by 1 whatever its theta is";
  return without("rope_theta")(c, f);
}

double other_theta(double theta) { return theta > 20000.0 ? 10000.0 : 500000.0; }

// Returns the RoPE parameters of the given kind, wherever the config has them.
Json* scaling_of(Json& config, const std::string& type) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!config.contains(key) || !config[key].is_object()) continue;
    Json& found = config[key];
    Json& full = found.contains("full_attention") ? found["full_attention"] : found;
    if (full.value("rope_type", full.value("type", "")) == type) return &full;
  }
  return nullptr;
}

Excluded without_scaling(const std::vector<std::string>& types) {
  return [types](const Checkpoint& c, const Facts&) -> std::string {
    Json config = c.config;
    const bool any =
        std::ranges::any_of(types, [&](const auto& type) { return scaling_of(config, type); });
    return any ? "" : "its RoPE is not scaled so";
  };
}

void drop_scaling(Checkpoint& c, const Facts&) {
  for (const char* type : {"linear", "llama3", "yarn"}) {
    if (Json* found = scaling_of(c.config, type)) (*found)["rope_type"] = "default";
  }
}

void swap_longrope_factors(Checkpoint& c, const Facts&) {
  Json& found = *scaling_of(c.config, "longrope");
  std::swap(found["short_factor"], found["long_factor"]);
}

// Gives partial rotation where whole heads are rotated, and whole heads otherwise.
double other_partial(double factor) { return factor == 0.25 ? 0.5 : factor == 1.0 ? 0.5 : 1.0; }

std::string no_partial(const Checkpoint& c, const Facts& f) {
  if (f.model_type == "codegen") return "";
  return without("partial_rotary_factor")(c, f);
}

void change_partial(Checkpoint& c, const Facts& f) {
  if (c.config.contains("rotary_dim")) {
    c.config["rotary_dim"] = f.rotary_dim == f.head_dim ? f.head_dim / 2 : 2 * f.rotary_dim;
    return;
  }
  double factor = 1;
  visit(c.config, "partial_rotary_factor", [&](Json& value) {
    factor = other_partial(value.get<double>());
    value = factor;
  });
  // LongRoPE lists a factor for every pair.
  const auto pairs = static_cast<size_t>(factor * static_cast<double>(f.head_dim)) / 2;
  for (const char* key : {"short_factor", "long_factor"}) {
    visit(c.config, key, [&](Json& list) {
      while (list.size() < pairs) list.push_back(list.back());
      while (list.size() > pairs) list.erase(list.size() - 1);
    });
  }
  // Multimodal RoPE splits the pairs. A text token has one position, so only the sum of the
  // sections matters.
  visit(c.config, "mrope_section", [&](Json& list) { list = {pairs - pairs / 2, pairs / 2, 0}; });
}

std::string no_pattern(const Checkpoint& c, const Facts& f) {
  if (!f.linear.empty() || !f.convs.empty()) {
    return "the keys of a layer say its kind: conversion refuses another pattern";
  }
  const bool mixed = !f.sliding.empty() && f.sliding.size() < f.attention.size();
  if (!mixed) return "all its layers are alike";
  return c.config.contains("layer_types") ? "" : "its config lists no layer types";
}

void shift_pattern(Checkpoint& c, const Facts&) {
  Json& types = c.config["layer_types"];
  std::rotate(types.begin(), types.begin() + 1, types.end());
}

std::string no_nope(const Checkpoint& c, const Facts& f) {
  return c.config.contains("no_rope_layers") ? "" : f.model_type + " turns every layer";
}

void shift_nope(Checkpoint& c, const Facts&) {
  for (Json& layer : c.config["no_rope_layers"]) layer = 1 - layer.get<int>();
}

// Gemma reads hidden_activation, and may have hidden_act beside it.
const char* activation_key(const Checkpoint& c) {
  for (const char* key : {"hidden_activation", "activation_function", "hidden_act"}) {
    if (c.config.contains(key) && c.config[key].is_string()) return key;
  }
  return nullptr;
}

std::string no_activation(const Checkpoint& c, const Facts& f) {
  if (!activation_key(c)) return "its config states no activation";
  if (f.model_type == "gemma" && !c.config.contains("hidden_activation")) {
    return "the reference takes no notice of its hidden_act";
  }
  const bool experts = !f.experts.empty() || f.model_type == "mixtral";
  return experts ? "experts with another activation are refused" : "";
}

void change_activation(Checkpoint& c, const Facts&) {
  Json& value = c.config[activation_key(c)];
  value = value == "silu" ? "gelu_pytorch_tanh" : "silu";
}

std::string no_norm_choice(const Checkpoint& c, const Facts& f) {
  if (f.experts.empty()) return "has no experts";
  return f.model_type.starts_with("qwen3_5") ? "always normalises the scores"
                                             : without("norm_topk_prob")(c, f);
}

std::string no_scale(const Checkpoint& c, const Facts&) {
  const bool any =
      c.config.contains("query_pre_attn_scalar") || c.config.contains("attention_multiplier");
  return any ? "" : "its scale is not in the config (see program_attention_scale)";
}

void change_scale(Checkpoint& c, const Facts& f) {
  scaled("attention_multiplier", 1.25)(c, f);
  // The head dimension is the default, which applies if the key is not read.
  with_number("query_pre_attn_scalar", [&](double) { return double(f.head_dim); })(c, f);
}

constexpr const char* kEpsKeys[] = {"rms_norm_eps", "norm_eps", "layer_norm_epsilon",
                                    "layer_norm_eps", "norm_epsilon"};

std::string no_eps(const Checkpoint& c, const Facts&) {
  const bool any = std::ranges::any_of(
      kEpsKeys, [&](const char* key) { return !values_of(c.config, key).empty(); });
  return any ? "" : "its config has no eps";
}

// A norm divides by sqrt(mean square + eps), so ten times an eps changes its result by the factor 1
// - 4.5 eps / mean square. The smallest mean square is that of the embedded tokens, except in the
// norm of linear attention.
std::string eps_is_noise(const Checkpoint& c, const Facts& f) {
  if (std::string none = no_eps(c, f); !none.empty()) return none;
  constexpr double kNoise = 1e-5;
  for (const char* key : kEpsKeys) {
    for (const Json& value : values_of(c.config, key)) {
      const double change = 4.5 * value.get<double>() / f.embedded_square;
      if (f.linear.empty() && change < kNoise) {
        return "what is normed is so large that this changes less than 1e-5 of it, the noise of "
               "f32";
      }
    }
  }
  return "";
}

void change_eps(Checkpoint& c, const Facts& f, double factor) {
  for (const char* key : kEpsKeys) scaled(key, factor)(c, f);
}

void flip_topk_norm(Checkpoint& c, const Facts&) {
  visit(c.config, "norm_topk_prob", [](Json& value) { value = !value.get<bool>(); });
}

std::vector<Kind> rope_kinds() {
  return {
      {"rope_theta", no_theta, with_number("rope_theta", other_theta)},
      {"rope_scaling_dropped", without_scaling({"linear", "llama3", "yarn"}), drop_scaling},
      {"rope_scaling_factor", without_scaling({"linear", "llama3", "yarn"}), scaled("factor", 2.0)},
      {"longrope_factors_swapped", without_scaling({"longrope"}), swap_longrope_factors},
      {"partial_rotary_factor", no_partial, change_partial},
      {"nope_layers_flipped", no_nope, shift_nope},
  };
}

std::vector<Kind> attention_value_kinds() {
  return {
      {"window_plus_one", no_window, with_integer("sliding_window", 1)},
      {"window_minus_one", no_window, with_integer("sliding_window", -1)},
      {"layer_pattern_shifted", no_pattern, shift_pattern},
      {"attention_scale", no_scale, change_scale},
      {"attention_softcap_changed", without("attn_logit_softcapping"),
       scaled("attn_logit_softcapping", 1.25)},
      {"attention_softcap_dropped", without("attn_logit_softcapping"),
       set_null("attn_logit_softcapping")},
      {"qkv_clip_changed", without("clip_qkv"), scaled("clip_qkv", 1.25)},
      {"qkv_clip_dropped", without("clip_qkv"), set_null("clip_qkv")},
  };
}

std::vector<Kind> number_kinds() {
  return {
      {"norm_eps_times_10", eps_is_noise,
       [](Checkpoint& c, const Facts& f) { change_eps(c, f, 10); }},
      {"norm_eps_times_10000", no_eps,
       [](Checkpoint& c, const Facts& f) { change_eps(c, f, 10000); }},
      {"logit_softcap_changed", without("final_logit_softcapping"),
       scaled("final_logit_softcapping", 1.25)},
      {"logit_softcap_dropped", without("final_logit_softcapping"),
       set_null("final_logit_softcapping")},
      {"embedding_multiplier", without("embedding_multiplier"),
       scaled("embedding_multiplier", 1.1)},
      {"residual_multiplier", without("residual_multiplier"), scaled("residual_multiplier", 1.1)},
      {"logits_scaling", without("logits_scaling"), scaled("logits_scaling", 1.1)},
      {"activation", no_activation, change_activation},
      {"top_k_plus_one", no_experts, with_integer("num_experts_per_tok", 1)},
      {"top_k_minus_one", no_experts, with_integer("num_experts_per_tok", -1)},
      {"norm_topk_prob_flipped", no_norm_choice, flip_topk_norm},
  };
}

}  // namespace

std::vector<Kind> config_kinds() {
  std::vector<Kind> kinds;
  for (const auto& part : {rope_kinds(), attention_value_kinds(), number_kinds()}) {
    kinds.insert(kinds.end(), part.begin(), part.end());
  }
  return kinds;
}

}  // namespace ferry::mutation
