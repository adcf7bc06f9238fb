// Models whose layers of full attention differ from those with a window in the heads that they
// have, whose last layers attend to keys of earlier ones, and whose MLPs may be wider there
// (gemma4). Source: llama.cpp, src/models/gemma4.cpp, and conversion/gemma.py.
#include "dialects/gguf/model/layer_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "converters/blocks/gemma4.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/shared_layers.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

constexpr const char* kHeadCounts = "attention.head_count_kv";
constexpr const char* kWidths = "feed_forward_length";
constexpr const char* kShared = "attention.shared_kv_layers";
constexpr FloatRange kCaps = {0, 1e6};  // 0 stands for no cap
constexpr double kUsualCap = 30;        // the cap that readers take where no key states one

class LayerKinds {
 public:
  explicit LayerKinds(GgufReading& in) : in_(in), config_(*in.config) {}

  Status run() {
    if (in_.layers == 0) return {};  // the file does not say
    for (const json& type : config_["layer_types"]) slides_.push_back(type != "full_attention");
    FERRY_RETURN_IF_ERROR(read_shared());
    FERRY_RETURN_IF_ERROR(read_heads());
    FERRY_RETURN_IF_ERROR(read_widths());
    FERRY_RETURN_IF_ERROR(read_values());
    FERRY_RETURN_IF_ERROR(read_experts());
    FERRY_RETURN_IF_ERROR(
        in_.take("embedding_length_per_layer_input", "hidden_size_per_layer_input", kGgufCounts));
    const double cap = FERRY_TRY(
        in_.keys->fields.number_or(in_.keys->name("final_logit_softcapping"), kCaps, kUsualCap));
    config_["final_logit_softcapping"] = cap == 0 ? json() : json(cap);
    return {};
  }

 private:
  Failure bad(const char* key, std::string_view what) const {
    return in_.keys->fields.bad(in_.keys->name(key), what);
  }
  int64_t count() const { return in_.layers; }

  // Returns a number for each layer; nullopt where the file does not state the key.
  Result<std::optional<std::vector<int64_t>>> by_layer(const char* key) const {
    const std::string name = in_.keys->name(key);
    auto numbers = FERRY_TRY(in_.keys->fields.integers(name, kGgufSizes));
    if (!numbers) return std::optional<std::vector<int64_t>>();
    const json* stated = in_.keys->fields.find(name);
    if (!stated->is_array()) numbers->assign(static_cast<size_t>(count()), numbers->front());
    if (std::ssize(*numbers) < count()) return bad(key, "has too few elements");
    return numbers;
  }

  // Readers of GGUF take the keys of the last two layers that have some: those of the last but one
  // where there is a window, and those of the last elsewhere.
  Status read_shared() {
    const int64_t shared =
        FERRY_TRY(in_.keys->fields.integer_or(in_.keys->name(kShared), {0, count() - 1}, 0));
    config_["num_kv_shared_layers"] = shared;
    first_ = count() - shared;
    if (shared == 0 || takes_last_two_keys(slides_, first_)) return {};
    return in_.keys->unsupported(
        kShared, fmt::format("is {}: layers {} and {} are not one with a window and one of full "
                             "attention",
                             shared, first_ - 2, first_ - 1));
  }

  // Finds the one value that the layers of each kind have.
  Status of_kinds(const char* key, const std::vector<int64_t>& numbers, int64_t& full,
                  int64_t& sliding) const {
    for (const bool slides : {false, true}) {
      std::optional<int64_t> found;
      for (int64_t i = 0; i < count(); ++i) {
        const auto at = static_cast<size_t>(i);
        if (slides_[at] != slides) continue;
        if (found.value_or(numbers[at]) != numbers[at]) {
          return in_.keys->unsupported(key, "differs between layers of one kind: not supported");
        }
        found = numbers[at];
      }
      if (found) (slides ? sliding : full) = *found;
    }
    return {};
  }

  Status read_heads() {
    const auto heads = FERRY_TRY(by_layer(kHeadCounts));
    int64_t full = config_.value("num_attention_heads", int64_t{1}), sliding = full;
    if (heads) FERRY_RETURN_IF_ERROR(of_kinds(kHeadCounts, *heads, full, sliding));
    full_heads_ = {{"num_key_value_heads", full}, {"head_dim", in_.head_dim}};
    config_["num_key_value_heads"] = sliding;
    FERRY_RETURN_IF_ERROR(in_.take("attention.key_length_swa", "head_dim", kGgufSizes));
    for (const char* key : {"attention.value_length_swa", "rope.dimension_count_swa"}) {
      const auto size = FERRY_TRY(in_.integer(key, kGgufSizes));
      if (!size || *size == config_["head_dim"]) continue;
      return in_.keys->unsupported(key, "differs from the length of keys");
    }
    json layers = json::object();
    for (int64_t i = 0; i < count(); ++i) {
      if (!slides_[static_cast<size_t>(i)]) layers[std::to_string(i)] = full_heads_;
    }
    config_["per_layer_config"] = std::move(layers);
    return {};
  }

  Status read_widths() {
    const auto widths = FERRY_TRY(by_layer(kWidths));
    if (!widths) {
      in_.missing.push_back(in_.keys->name(kWidths));
      return {};
    }
    const int64_t width = widths->front();
    const bool wide = first_ < count() && (*widths)[static_cast<size_t>(first_)] != width;
    for (int64_t i = 0; i < count(); ++i) {
      if ((*widths)[static_cast<size_t>(i)] == (wide && i >= first_ ? 2 * width : width)) continue;
      return in_.keys->unsupported(kWidths, fmt::format("differs in layer {}: not supported", i));
    }
    config_["intermediate_size"] = width;
    config_["use_double_wide_mlp"] = wide;
    return {};
  }

  // Without a matrix for its values, a layer of full attention takes its keys.
  Status read_values() {
    std::optional<bool> found;
    for (int64_t i = 0; i < first_; ++i) {
      const bool has = in_.tensors->valued.contains(i);
      const bool full = !slides_[static_cast<size_t>(i)];
      if ((full ? found.value_or(has) : true) != has) {
        return bad_input(
            fmt::format("blk.{}.attn_v.weight: some layers of one kind have it and "
                        "others not",
                        i));
      }
      if (full) found = has;
    }
    config_["attention_k_eq_v"] = found.has_value() && !*found;
    return {};
  }

  Status read_experts() {
    const bool any = config_.value("num_experts", int64_t{0}) > 0;
    config_["enable_moe_block"] = any;
    if (!any) return {};
    if (std::ssize(in_.tensors->routed) != count()) {
      return in_.keys->unsupported("expert_count", "is not 0, and some layers have no router");
    }
    FERRY_RETURN_IF_ERROR(in_.take("expert_used_count", "top_k_experts", kGgufSizes));
    return in_.take("expert_feed_forward_length", "moe_intermediate_size", kGgufSizes);
  }

  GgufReading& in_;
  json& config_;
  std::vector<bool> slides_;
  int64_t first_ = 0;  // the first layer without keys
  json full_heads_;
};

}  // namespace

bool takes_last_two_keys(const std::vector<bool>& slides, int64_t first) {
  const auto at = static_cast<size_t>(first);
  return first >= 2 && slides[at - 2] && !slides[at - 1];
}

Status read_kinds_of_layers(GgufReading& reading) { return LayerKinds(reading).run(); }

std::vector<GgufKeyValue> kinds_of_layers_keys(const ModelConfig& config) {
  const auto whole = [](int64_t value) { return static_cast<uint32_t>(value); };
  const HeadSizes full = config.heads_of(LayerType::kFullAttention);
  const int64_t first = first_shared_layer(config);
  std::vector<bool> slides;
  std::vector<int32_t> kv_heads, widths;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    slides.push_back(config.layer_types[static_cast<size_t>(i)] == LayerType::kSlidingAttention);
    kv_heads.push_back(static_cast<int32_t>(config.heads_of(i).kv_heads));
    widths.push_back(static_cast<int32_t>(gemma4_mlp_size(config, i)));
  }
  std::vector<GgufKeyValue> keys = {
      {"attention.shared_kv_layers", whole(config.num_layers - first)},
      {"embedding_length_per_layer_input", whole(config.number(kLayerInputSize))},
      {"attention.sliding_window_pattern", slides},
      {"attention.key_length", whole(full.dim)},
      {"attention.value_length", whole(full.dim)},
      {"attention.key_length_swa", whole(config.head_dim)},
      {"attention.value_length_swa", whole(config.head_dim)}};
  if (config.moe.experts > 0) {
    keys.push_back({"expert_feed_forward_length", whole(config.moe.expert_size)});
  }
  if (config.number(kDoubleWideMlp) != 0) keys.push_back({"feed_forward_length", widths});
  if (full.kv_heads != config.num_kv_heads) keys.push_back({kHeadCounts, kv_heads});
  keys.push_back({"rope.dimension_count", whole(full.dim)});
  keys.push_back({"rope.dimension_count_swa", whole(config.head_dim)});
  return keys;
}

std::vector<float> proportional_factors(const RopeConfig& rope, int64_t head_dim) {
  const auto turned =
      static_cast<int64_t>(rope.partial_rotary_factor * static_cast<double>(head_dim) / 2);
  const bool whole = rope.type != RopeConfig::Type::kProportional;
  std::vector<float> factors(static_cast<size_t>(head_dim / 2), kUnturned);
  std::fill_n(factors.begin(), whole ? head_dim / 2 : turned, static_cast<float>(rope.factor));
  return factors;
}

std::optional<json> proportional_rope(double theta, const std::vector<float>& factors) {
  const auto is_turned = [](float factor) { return factor < kUnturned / 2; };
  const auto turned = std::ranges::find_if_not(factors, is_turned) - factors.begin();
  const float factor = turned > 0 ? factors.front() : 1.0F;
  for (size_t i = 0; i < factors.size(); ++i) {
    const bool first = static_cast<std::ptrdiff_t>(i) < turned;
    if (first ? factors[i] != factor : is_turned(factors[i])) return std::nullopt;
  }
  if (factors.empty()) return std::nullopt;
  const auto pairs = static_cast<double>(factors.size());
  double part = static_cast<double>(turned) / pairs;
  // Readers of configs multiply and round down.
  while (static_cast<int64_t>(part * (2 * pairs) / 2) < turned) part = std::nextafter(part, 2.0);
  return json{{"rope_type", "proportional"},
              {"rope_theta", theta},
              {"partial_rotary_factor", part},
              {"factor", double{factor}}};
}

}  // namespace ferry::converters
