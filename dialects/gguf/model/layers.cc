#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "dialects/gguf/model/reading.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

// Values that readers of GGUF assume where no key states them.
constexpr int64_t kDefaultInterval = 4;
constexpr int64_t kGemma3GlobalEvery = 6;

class Layers {
 public:
  explicit Layers(GgufReading& reading)
      : in_(reading), keys_(*reading.keys), config_(*reading.config) {}

  Status run() {
    const GgufArchitecture& a = *in_.architecture;
    if (a.linear_attention) return read_linear_attention();
    if (a.sliding_pattern) return read_sliding_pattern();
    if (a.window_every > 0) return read_windows();
    return a.without_heads.empty() ? Status() : read_heads();
  }

 private:
  // Returns a list of one flag per layer; nullopt where there is none.
  Result<std::optional<std::vector<bool>>> flags(std::string_view name) const {
    const json* list = keys_.fields.find(keys_.name(name));
    if (!list || !list->is_array()) return std::nullopt;
    std::vector<bool> flags;
    for (const json& item : *list) {
      const bool number = item == 0 || item == 1;
      if (!item.is_boolean() && !number) {
        return keys_.fields.bad(keys_.name(name), "is not a list of flags");
      }
      flags.push_back(number ? item == 1 : item.get<bool>());
    }
    if (std::ssize(flags) < in_.layers) {
      return keys_.fields.bad(keys_.name(name), "has too few elements");
    }
    return flags;
  }

  void write(std::string_view special, const std::function<bool(int64_t)>& is_special) {
    json types = json::array();
    for (int64_t i = 0; i < in_.layers; ++i) {
      types.push_back(is_special(i) ? special : "full_attention");
    }
    config_["layer_types"] = std::move(types);
  }

  Status read_linear_attention() {
    const auto recurrent = FERRY_TRY(flags("attention.recurrent_layers"));
    const int64_t interval = FERRY_TRY(keys_.fields.integer_or(
        keys_.name("full_attention_interval"), kGgufSizes, kDefaultInterval));
    write("linear_attention", [&](int64_t i) {
      return recurrent ? (*recurrent)[static_cast<size_t>(i)] : (i + 1) % interval != 0;
    });
    return {};
  }

  // Writes the layers with a window: those of a list, or all but every so many.
  Status write_windows(int64_t every) {
    constexpr const char* kPattern = "attention.sliding_window_pattern";
    const auto listed = FERRY_TRY(flags(kPattern));
    if (!listed) {
      every = FERRY_TRY(keys_.fields.integer_or(keys_.name(kPattern), kGgufSizes, every));
    }
    write("sliding_attention", [&](int64_t i) {
      return listed ? (*listed)[static_cast<size_t>(i)] : (i + 1) % every != 0;
    });
    return {};
  }

  // gemma3: local layers have a RoPE of their own, without scaling.
  Status read_sliding_pattern() {
    if (!config_.contains("sliding_window")) {
      in_.missing.push_back(keys_.name("attention.sliding_window"));
    }
    FERRY_RETURN_IF_ERROR(write_windows(kGemma3GlobalEvery));
    write_plain_rope_for_windows(FERRY_TRY(
        keys_.fields.number_or(keys_.name("rope.freq_base_swa"), kGgufReals, kDefaultLocalTheta)));
    return {};
  }

  void write_plain_rope_for_windows(const json& theta) {
    config_["rope_parameters"] = {
        {"full_attention", config_["rope_parameters"]},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", theta}}}};
  }

  // Reads windows of models that have one RoPE base for all layers.
  Status read_windows() {
    for (const auto& [local, all] :
         {std::pair("rope.freq_base_swa", "rope.freq_base"),
          std::pair("rope.dimension_count_swa", "rope.dimension_count")}) {
      const json* value = keys_.fields.find(keys_.name(local));
      const json* same = keys_.fields.find(keys_.name(all));
      if (value == nullptr || (same != nullptr && *value == *same)) continue;
      return keys_.unsupported(local, fmt::format("differs from {}", keys_.name(all)));
    }
    if (in_.architecture->plain_windows) {
      write_plain_rope_for_windows(config_["rope_parameters"]["rope_theta"]);
    }
    if (config_.contains("sliding_window")) return write_windows(in_.architecture->window_every);
    config_["sliding_window"] = nullptr;  // the class has a default
    write("full_attention", [](int64_t) { return true; });
    return {};
  }

  Status read_heads() {
    constexpr const char* kHeadCounts = "attention.head_count_kv";
    const json* list = keys_.fields.find(keys_.name(kHeadCounts));
    if (list == nullptr || !list->is_array()) {
      write("full_attention", [](int64_t) { return true; });
      return {};
    }
    if (std::ssize(*list) < in_.layers) {
      return keys_.fields.bad(keys_.name(kHeadCounts), "has too few elements");
    }
    write(in_.architecture->without_heads,
          [&](int64_t i) { return (*list)[static_cast<size_t>(i)] == 0; });
    // Where no layer has attention, the file does not know how many heads of keys one would have.
    json& heads = config_["num_key_value_heads"];
    if (heads == 0) heads = config_.value("num_attention_heads", json(1));
    return {};
  }

  GgufReading& in_;
  const GgufKeys& keys_;
  json& config_;
};

// Checks that a stated function of scores (sigmoid or softmax) is that of the model.
Status check_gating(const GgufReading& in) {
  const auto gating = FERRY_TRY(in.integer("expert_gating_func", kGgufCounts));
  const int64_t own = in.architecture->sigmoid_experts ? kGatingSigmoid : kGatingSoftmax;
  if (gating.value_or(0) == 0 || *gating == own) return {};
  return in.keys->unsupported("expert_gating_func",
                              fmt::format("is {}: not supported in this architecture", *gating));
}

// Classes have defaults, and some of them ask which layers have experts, not how many there are.
void write_no_experts(GgufReading& in) {
  json& config = *in.config;
  config["num_experts"] = 0;
  if (in.type->experts == ExpertRule::kAfterFirst) config["first_k_dense_replace"] = in.layers;
  if (in.type->experts != ExpertRule::kTyped) return;
  config["mlp_layer_types"] = std::vector<std::string>(static_cast<size_t>(in.layers), "dense");
}

// Reads the groups of experts. 0 stands for no group and for no scale.
Status read_groups(GgufReading& in) {
  constexpr std::pair<const char*, const char*> kExpertGroups[] = {
      {"expert_group_count", "n_group"}, {"expert_group_used_count", "topk_group"}};
  for (const auto& [key, member] : kExpertGroups) {
    (*in.config)[member] =
        std::max<int64_t>(1, FERRY_TRY(in.integer(key, kGgufCounts)).value_or(1));
  }
  const bool has_shared = in.architecture->own_keys != GgufOwnKeys::kMimo;
  if (has_shared) {
    FERRY_RETURN_IF_ERROR(in.take("expert_shared_count", "n_shared_experts", kGgufCounts));
  }
  const double scale = FERRY_TRY(
      in.keys->fields.number_or(in.keys->name("expert_weights_scale"), {0, kGgufReals.max}, 0));
  (*in.config)["routed_scaling_factor"] = scale == 0 ? 1.0 : scale;
  return {};
}

}  // namespace

bool GgufReading::states(std::string_view key) const {
  return keys->fields.find(keys->name(key)) != nullptr;
}

Result<std::optional<int64_t>> GgufReading::integer(std::string_view key, IntRange range) const {
  const std::string name = keys->name(key);
  const json* list = keys->fields.find(name);
  if (list == nullptr || !list->is_array()) return keys->fields.integer(name, range);
  const auto each = FERRY_TRY(keys->fields.integers(name, {0, range.max}));
  std::optional<int64_t> value;
  for (const int64_t item : *each) {
    if (item == 0 && !architecture->without_heads.empty()) continue;
    if (item != value.value_or(item)) {
      return keys->unsupported(key, "differs between layers: not supported in this architecture");
    }
    value = item;
  }
  const int64_t found = value.value_or(0);
  if (found >= range.min && found <= range.max) return found;
  return keys->fields.bad(name,
                          fmt::format("is {}, not from {} to {}", found, range.min, range.max));
}

Status GgufReading::take(std::string_view key, const char* member, IntRange range) {
  if (const auto value = FERRY_TRY(integer(key, range))) {
    (*config)[member] = *value;
  } else {
    missing.push_back(keys->name(key));
  }
  return {};
}

std::pair<int64_t, std::string> split_gguf_layer(const std::string& name) {
  std::string_view block;
  for (const std::string_view one : {"blk.", "enc.blk.", "dec.blk."}) {
    if (name.starts_with(one)) block = one;
  }
  int64_t layer = -1;
  const char* first = name.data() + block.size();
  if (block.empty()) return {-1, name};
  const auto [end, error] = std::from_chars(first, name.data() + name.size(), layer);
  const bool plain = error == std::errc() && layer >= 0 &&
                     std::to_string(layer).size() == static_cast<size_t>(end - first);
  if (!plain) return {-1, name};
  return {layer, std::string(block) + "{i}" + std::string(end)};
}

GgufTensorNames gguf_tensor_names(const TensorSource& source) {
  GgufTensorNames names;
  for (const TensorEntry& entry : source.entries()) {
    auto [layer, pattern] = split_gguf_layer(entry.name);
    if (pattern == "blk.{i}.ffn_gate_inp.weight") names.routed.insert(layer);
    if (pattern == "blk.{i}.attn_v.weight") names.valued.insert(layer);
    if (pattern == "blk.{i}.ssm_in.weight") names.recurrent.insert(layer);
    if (pattern == "enc.blk.{i}.attn_rel_b.weight") names.biased.insert(layer);
    names.patterns.insert(std::move(pattern));
  }
  return names;
}

Status read_gguf_layer_types(GgufReading& reading) { return Layers(reading).run(); }

Status read_gguf_experts(GgufReading& in) {
  json& config = *in.config;
  const bool any = config.value("num_experts", int64_t{0}) > 0;
  if (any && !in.architecture->has_experts()) {
    return in.keys->unsupported("expert_count", "is not 0: not supported in this architecture");
  }
  const ExpertRule rule = in.type->experts;
  if (rule == ExpertRule::kNever) return {};
  if (!any) {
    write_no_experts(in);
    return {};
  }
  const bool either = in.architecture->own_keys == GgufOwnKeys::kCohereMoe;
  if (!either) FERRY_RETURN_IF_ERROR(check_gating(in));
  if (!config.contains("num_experts_per_tok")) {
    in.missing.push_back(in.keys->name("expert_used_count"));
  }
  if (!config.contains("moe_intermediate_size")) {
    config["moe_intermediate_size"] = config["intermediate_size"];
  }
  if (rule == ExpertRule::kAll) return {};
  config["norm_topk_prob"] = FERRY_TRY(in.keys->fields.flag_or(in.keys->name("expert_weights_norm"),
                                                               in.architecture->normed_experts));
  if (in.architecture->grouped_experts) FERRY_RETURN_IF_ERROR(read_groups(in));
  if (rule == ExpertRule::kAfterFirst) {
    const auto dense = FERRY_TRY(in.integer("leading_dense_block_count", kGgufCounts));
    config["first_k_dense_replace"] = dense.value_or(0);
    return {};
  }
  if (rule == ExpertRule::kTyped) {
    json types = json::array();
    for (int64_t i = 0; i < in.layers; ++i) {
      types.push_back(in.tensors->routed.contains(i) ? "sparse" : "dense");
    }
    config["mlp_layer_types"] = std::move(types);
    return {};
  }
  config["decoder_sparse_step"] = 1;
  json dense = json::array();
  for (int64_t i = 0; i < in.layers; ++i) {
    if (!in.tensors->routed.contains(i)) dense.push_back(i);
  }
  config["mlp_only_layers"] = std::move(dense);
  return {};
}

}  // namespace ferry::converters
