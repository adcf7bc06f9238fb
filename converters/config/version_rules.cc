// The rules, one row each. Source: the configuration and model classes of transformers 5.12.1 and
// 5.23.0, compared class by class.
#include "converters/config/version_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/text.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

// The config that the conditions of rules look at.
struct Subject {
  const JsonFields& outer;
  const JsonFields& fields;
  const ModelConfig& config;

  // Returns the object that has the keys of RoPE, empty where there is none.
  json rope() const {
    const json* scaling = fields.find("rope_scaling");
    if (scaling == nullptr || scaling->empty()) scaling = fields.find("rope_parameters");
    return scaling != nullptr && scaling->is_object() ? *scaling : json::object();
  }
  bool scales_rope() const {
    const json keys = rope();
    const json otherwise = keys.value("type", json("default"));
    return keys.value("rope_type", otherwise) != "default";
  }
  bool states(std::string_view key) const { return fields.find(key) != nullptr; }
  double number(std::string_view key, double otherwise) const {
    const json* value = fields.find(key);
    return value != nullptr && value->is_number() ? value->get<double>() : otherwise;
  }
  bool has(LayerType type) const { return std::ranges::count(config.layer_types, type) > 0; }
  bool has_windows() const { return has(LayerType::kSlidingAttention); }
};

double number_in(const json& object, const char* key, double otherwise) {
  const json value = object.value(key, json());
  return value.is_number() ? value.get<double>() : otherwise;
}

bool has_flat_rope(const Subject& s) {
  const json* stated = s.fields.find("rope_parameters");
  return stated != nullptr && !stated->contains("full_attention") &&
         !stated->contains("sliding_attention") && !stated->empty();
}

struct VersionRule {
  std::string_view types;  // values of model_type with a space between them; empty: all
  std::string_view key;
  std::string_view reading, earlier;
  bool (*applies)(const Subject&);
};

constexpr VersionRule kRules[] = {
    {"deepseek_v2", "rope_parameters.mscale_all_dim",
     "multiplies the scores of attention, as in DeepSeek V3", "has no effect on scores",
     [](const Subject& s) {
       return s.scales_rope() && number_in(s.rope(), "mscale_all_dim", 0) != 0 &&
              number_in(s.rope(), "factor", 1) > 1;
     }},
    {"deepseek_v2", "vocab_size", "is 102400 where it is absent", "is 32000 where it is absent",
     [](const Subject& s) { return !s.fields.states("vocab_size"); }},
    {"olmo3", "rope_scaling", "scales layers of full attention alone", "scales all layers",
     [](const Subject& s) {
       return s.states("rope_scaling") && s.rope().contains("rope_type") && s.scales_rope() &&
              s.has_windows();
     }},
    {"olmo3", "rope_scaling.type", "has no effect, which rope_type would have",
     "is the kind of RoPE of all layers",
     [](const Subject& s) {
       return s.states("rope_scaling") && !s.rope().contains("rope_type") && s.scales_rope();
     }},
    {"olmo3", "rope_parameters", "has no effect without full_attention and sliding_attention in it",
     "is the RoPE of all layers", has_flat_rope},
    {"olmo3", "rope_theta", "is 500000 in layers with a window", "is one number for all layers",
     [](const Subject& s) {
       return s.fields.states("rope_theta") && s.number("rope_theta", 0) != 500000 &&
              s.has_windows() && !s.states("rope_parameters");
     }},
    {"olmo3", "rope_theta", "is 500000 where it is absent", "is 10000 where it is absent",
     [](const Subject& s) {
       return !s.fields.states("rope_theta") && !s.rope().contains("rope_theta") &&
              !s.states("rope_parameters");
     }},
    {"gemma", "hidden_act", "means the tanh approximation by gelu", "means the exact gelu",
     [](const Subject& s) {
       const json* name = s.fields.find("hidden_act");
       return name != nullptr && *name == "gelu";
     }},
    {"granitemoehybrid", "layer_types", "means Mamba by linear_attention",
     "means attention by linear_attention",
     [](const Subject& s) {
       const json* list = s.fields.find("layer_types");
       return list != nullptr && std::ranges::count(*list, json("linear_attention")) > 0;
     }},
    {"granitemoehybrid", "mamba_n_groups", "gives each group of heads a norm of its own",
     "leaves one norm for all heads",
     [](const Subject& s) {
       return s.has(LayerType::kMamba) && s.number("mamba_n_groups", 1) > 1;
     }},
    {"", "rope_parameters.partial_rotary_factor", "wins over the one beside rope_parameters",
     "yields to the one beside rope_parameters, or to its default",
     [](const Subject& s) {
       if (s.config.text_type == "gpt_neox") return false;  // its key is rotary_pct
       const json inside = s.rope().value("partial_rotary_factor", json());
       const json* outside = s.fields.find("partial_rotary_factor");
       return s.scales_rope() && inside.is_number() && outside != nullptr && *outside != inside;
     }},
    {"dbrx", "attn_config.rope_theta", "has no effect, which rope_theta has", "is the base of RoPE",
     [](const Subject& s) {
       const json* attention = s.fields.find("attn_config");
       if (attention == nullptr || !attention->is_object()) return false;
       const double theta = s.config.rope.theta;
       return number_in(*attention, "rope_theta", theta) != theta;
     }},
    {"gpt_oss", "swiglu_alpha", "is the steepness of the experts' gate", "is not read: 1.702",
     [](const Subject& s) { return s.number("swiglu_alpha", 1.702) != 1.702; }},
    {"gpt_oss", "swiglu_limit", "is the limit of the experts' values", "is not read: 7",
     [](const Subject& s) { return s.number("swiglu_limit", 7) != 7; }},
    {"qwen3_5_text qwen3_5_moe_text qwen3_next", "hidden_act",
     "follows the convolutions of linear attention too", "does not: silu follows them",
     [](const Subject& s) {
       return s.has(LayerType::kLinearAttention) && s.config.activation != Activation::kSilu;
     }},
    {"qwen2_vl_text qwen2_5_vl_text", "tie_word_embeddings", "counts inside text_config too",
     "counts in the outer config alone",
     [](const Subject& s) {
       const json* outside = s.outer.find("tie_word_embeddings");
       return s.config.tie_word_embeddings && (outside == nullptr || *outside != true);
     }},
};

bool serves(std::string_view types, std::string_view type) {
  if (types.empty()) return true;
  for (size_t from = 0; from <= types.size();) {
    const size_t end = std::min(types.find(' ', from), types.size());
    if (types.substr(from, end - from) == type) return true;
    from = end + 1;
  }
  return false;
}

}  // namespace

std::vector<VersionReading> version_readings(const JsonFields& outer, const JsonFields& fields,
                                             const ModelConfig& config) {
  const Subject subject{outer, fields, config};
  std::vector<VersionReading> found;
  for (const VersionRule& rule : kRules) {
    if (!serves(rule.types, config.text_type) || !rule.applies(subject)) continue;
    found.push_back({std::string(rule.key), std::string(rule.reading), std::string(rule.earlier)});
  }
  return found;
}

std::string version_note(const VersionReading& reading, const std::string& config_name) {
  return fmt::format("{}: {} {}, as in transformers {}; in {} it {}", config_name,
                     quoted(reading.key), reading.reading, kReferenceVersion, kEarlierVersion,
                     reading.earlier);
}

}  // namespace ferry::converters
