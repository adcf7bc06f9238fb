#include "converters/adapters/gguf/written_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/json.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

using nlohmann::json;
using Type = RopeConfig::Type;

constexpr uint32_t kQuantizationVersion = 2;
constexpr int64_t kPhi3Original = 4096;  // of its configuration class

// Numbers of generation_config.json.
struct SamplingRow {
  const char* config;
  const char* key;
  bool whole;
};
constexpr SamplingRow kSampling[] = {
    {"top_k", "general.sampling.top_k", true},
    {"top_p", "general.sampling.top_p", false},
    {"min_p", "general.sampling.min_p", false},
    {"xtc_probability", "general.sampling.xtc_probability", false},
    {"xtc_threshold", "general.sampling.xtc_threshold", false},
    {"temperature", "general.sampling.temp", false},
    {"penalty_last_n", "general.sampling.penalty_last_n", true},
    {"repetition_penalty", "general.sampling.penalty_repeat", false},
    {"mirostat", "general.sampling.mirostat", true},
    {"mirostat_tau", "general.sampling.mirostat_tau", false},
    {"mirostat_eta", "general.sampling.mirostat_eta", false},
};

// The text part of a config, as one object.
Result<json> merged_config(const GgufKeysInput& input) {
  json config = FERRY_TRY(parse_json(input.config_text, printable(input.config_name)));
  if (!config.is_object()) return bad_input(printable(input.config_name) + ": not a JSON object");
  for (const char* part : {"text_config", "llm_config"}) {
    const auto text = config.find(part);
    if (text == config.end() || !text->is_object()) continue;
    const json inner = *text;
    config.update(inner);
    break;
  }
  return config;
}

class Keys {
 public:
  Keys(const GgufKeysInput& input, json config)
      : in_(input), c_(*input.config), name_(input.architecture->name), json_(std::move(config)) {}

  Result<std::vector<GgufKeyValue>> run() {
    set("general.architecture", std::string(name_));
    if (c_.rope.type == Type::kLongRope) {
      own("rope.scaling.attn_factor", real(c_.rope.attention_factor));
    }
    set("general.type", std::string("model"));
    FERRY_RETURN_IF_ERROR(add_sampling());
    if (!in_.name.empty()) set("general.name", in_.name);
    set("general.size_label", in_.size_label);
    if (name_ == "gemma2") {
      add_gemma2();
    } else if (name_ == "phi3") {
      add_phi3();
    } else if (name_ == "chatglm") {
      add_chatglm();
    } else {
      add_default();
      add_own();
    }
    set("general.quantization_version", kQuantizationVersion);
    return std::move(out_);
  }

 private:
  static uint32_t whole(int64_t value) { return static_cast<uint32_t>(value); }
  static float real(double value) { return static_cast<float>(value); }

  // A key that is there already keeps its place.
  void set(std::string key, GgufValue value) {
    const auto found = std::ranges::find(out_, key, &GgufKeyValue::key);
    if (found == out_.end()) {
      out_.push_back({std::move(key), std::move(value)});
    } else {
      found->value = std::move(value);
    }
  }
  void own(std::string_view key, GgufValue value) {
    set(fmt::format("{}.{}", name_, key), std::move(value));
  }

  bool states(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && !found->is_null();
  }
  // A number of the config, or 0.
  double number(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && found->is_number() ? found->get<double>() : 0;
  }

  Status add_sampling() {
    if (in_.generation_text.empty()) return {};
    const json generation = FERRY_TRY(parse_json(in_.generation_text, "generation_config.json"));
    for (const SamplingRow& row : kSampling) {
      const auto found = generation.find(row.config);
      if (found == generation.end() || !found->is_number()) continue;
      if (row.whole) {
        set(row.key, static_cast<int32_t>(found->get<int64_t>()));
      } else {
        set(row.key, real(found->get<double>()));
      }
    }
    return {};
  }

  void add_file_type() { set("general.file_type", gguf_file_type_info(in_.type).number); }
  void add_head_lengths() {
    own("attention.key_length", whole(c_.head_dim));
    own("attention.value_length", whole(c_.head_dim));
  }

  // In the order of the architecture's own converter.
  enum Length { kBlocks, kContext, kEmbedding, kFeedForward };
  void add_lengths(std::initializer_list<Length> lengths) {
    const std::pair<const char*, int64_t> rows[] = {{"block_count", c_.num_layers},
                                                    {"context_length", c_.max_positions},
                                                    {"embedding_length", c_.hidden_size},
                                                    {"feed_forward_length", feed_forward_length()}};
    for (const Length length : lengths) own(rows[length].first, whole(rows[length].second));
  }
  void add_attention() {
    own("attention.head_count", whole(c_.num_heads));
    own("attention.head_count_kv", whole(c_.num_kv_heads));
    add_epsilon();
  }
  void add_epsilon() { own("attention.layer_norm_rms_epsilon", real(c_.rms_norm_eps)); }

  void add_default() {
    add_lengths({kBlocks, kContext, kEmbedding, kFeedForward});
    own("attention.head_count", whole(c_.num_heads));
    if (name_ == "lfm2") {
      std::vector<int32_t> heads;  // none in layers of convolutions
      for (const LayerType type : c_.layer_types) {
        heads.push_back(is_attention(type) ? static_cast<int32_t>(c_.num_kv_heads) : 0);
      }
      own("attention.head_count_kv", heads);
    } else {
      own("attention.head_count_kv", whole(c_.num_kv_heads));
    }
    add_rope();
    add_epsilon();
    if (c_.moe.experts > 0) {
      own("expert_count", whole(c_.moe.experts));
      own("expert_used_count", whole(c_.moe.per_token));
    }
    // Granite's converter drops it: its heads share the hidden size.
    const bool differs = c_.head_dim * c_.num_heads != c_.hidden_size;
    if ((states("head_dim") && name_ != "granite") || differs) add_head_lengths();
    add_file_type();
  }

  // Where every layer has experts, nothing has this size.
  int64_t feed_forward_length() const {
    return c_.intermediate_size > 0 ? c_.intermediate_size
                                    : static_cast<int64_t>(number("intermediate_size"));
  }

  void add_rope() {
    if (c_.rope.type == Type::kLinear || c_.rope.type == Type::kYarn) {
      const bool yarn = c_.rope.type == Type::kYarn;
      own("rope.scaling.type", std::string(yarn ? "yarn" : "linear"));
      own("rope.scaling.factor", real(c_.rope.factor));
      if (yarn) add_yarn();
    }
    if (const std::vector<int32_t> sections = rope_sections(); !sections.empty()) {
      own("rope.dimension_sections", sections);
    }
    own("rope.freq_base", real(c_.rope.theta));
    if (name_ == "gemma3") own("rope.freq_base_swa", real(c_.sliding_rope.theta));
  }

  void add_yarn() {
    own("rope.scaling.original_context_length", whole(c_.rope.original_max_positions));
    const RopeConfig usual;
    if (c_.rope.beta_fast != usual.beta_fast) {
      own("rope.scaling.yarn_beta_fast", real(c_.rope.beta_fast));
    }
    if (c_.rope.beta_slow != usual.beta_slow) {
      own("rope.scaling.yarn_beta_slow", real(c_.rope.beta_slow));
    }
  }

  // Of text and images, in four parts; the positions of text are the same in all.
  std::vector<int32_t> rope_sections() const {
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
      const auto rope = json_.find(name);
      if (rope == json_.end() || !rope->is_object() || !rope->contains("mrope_section")) continue;
      std::vector<int32_t> sections;
      for (const json& part : (*rope)["mrope_section"]) {
        if (part.is_number_integer()) sections.push_back(part.get<int32_t>());
      }
      sections.resize(4);
      return sections;
    }
    return {};
  }

  void add_own() {
    if (name_ == "llama" || name_ == "smollm3" || name_ == "granite" || name_ == "mistral3") {
      own("vocab_size", whole(c_.vocab_size));
      own("rope.dimension_count", whole(c_.head_dim));
    }
    if (name_ == "granite") add_granite();
    if (name_ == "gemma3") add_gemma3();
    if (name_ == "qwen3vl") own("n_deepstack_layers", whole(deepstack_layers()));
    if (name_ == "lfm2") {
      own("vocab_size", whole(c_.vocab_size));
      own("shortconv.l_cache", whole(static_cast<int64_t>(number("conv_L_cache"))));
    }
    if (c_.moe.experts > 0) {
      own("expert_feed_forward_length", whole(c_.moe.expert_size));
      if (c_.moe.shared_size > 0 || states("shared_expert_intermediate_size")) {
        own("expert_shared_feed_forward_length", whole(c_.moe.shared_size));
      }
    }
    if (in_.architecture->linear_attention) add_linear_attention();
  }

  // Layers that features of images are added to. Texts have none.
  int64_t deepstack_layers() const {
    const auto vision = json_.find("vision_config");
    if (vision == json_.end() || !vision->is_object()) return 0;
    const auto layers = vision->find("deepstack_visual_indexes");
    return layers != vision->end() && layers->is_array() ? std::ssize(*layers) : 0;
  }

  void add_granite() {
    own("attention.scale",
        real(c_.scalars.attention.value_or(1 / std::sqrt(static_cast<double>(c_.head_dim)))));
    own("embedding_scale", real(c_.scalars.embedding));
    own("residual_scale", real(c_.scalars.residual));
    own("logit_scale",
        real(states("logits_scaling") ? number("logits_scaling") : 1 / c_.scalars.logits));
  }

  void add_gemma3() {
    add_head_lengths();
    if (c_.scalars.logit_softcap) own("final_logit_softcapping", real(*c_.scalars.logit_softcap));
    if (c_.sliding_window) own("attention.sliding_window", whole(*c_.sliding_window));
  }

  void add_linear_attention() {
    own("ssm.conv_kernel", whole(c_.linear.conv_kernel));
    own("ssm.state_size", whole(c_.linear.key_dim));
    own("ssm.group_count", whole(c_.linear.key_heads));
    own("ssm.time_step_rank", whole(c_.linear.value_heads));
    own("ssm.inner_size", whole(c_.linear.value_size()));
    std::vector<bool> recurrent;
    for (const LayerType type : c_.layer_types) {
      recurrent.push_back(type == LayerType::kLinearAttention);
    }
    own("attention.recurrent_layers", recurrent);
    const auto interval = static_cast<int64_t>(number("full_attention_interval"));
    own("full_attention_interval", whole(interval > 0 ? interval : 4));
    own("rope.dimension_count", whole(c_.rotary_dim()));
    // What readers of this architecture want in any case, as the reference has it.
    if (name_ == "qwen35" && rope_sections().empty()) {
      own("rope.dimension_sections", std::vector<int32_t>{11, 11, 10, 0});
    }
  }

  void add_gemma2() {
    add_lengths({kContext, kEmbedding, kBlocks, kFeedForward});
    add_attention();
    add_head_lengths();
    add_file_type();
    own("attn_logit_softcapping", real(c_.scalars.attention_softcap.value_or(0)));
    own("final_logit_softcapping", real(c_.scalars.logit_softcap.value_or(0)));
    own("attention.sliding_window", whole(c_.sliding_window.value_or(0)));
    // The converter knows no other.
    if (c_.rope.theta != RopeConfig().theta) own("rope.freq_base", real(c_.rope.theta));
  }

  void add_phi3() {
    add_lengths({kContext});
    own("rope.scaling.original_context_length", whole(phi3_original_positions()));
    add_lengths({kEmbedding, kFeedForward, kBlocks});
    add_attention();
    own("rope.dimension_count", whole(c_.rotary_dim()));
    own("rope.freq_base", real(c_.rope.theta));
    add_file_type();
    own("attention.sliding_window", whole(c_.sliding_window.value_or(0)));
  }

  int64_t phi3_original_positions() const {
    if (c_.rope.original_max_positions > 0) return c_.rope.original_max_positions;
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
      const auto rope = json_.find(name);
      if (rope == json_.end() || !rope->is_object()) continue;
      const auto found = rope->find("original_max_position_embeddings");
      if (found != rope->end() && found->is_number_integer()) return found->get<int64_t>();
    }
    const auto stated = static_cast<int64_t>(number("original_max_position_embeddings"));
    return stated > 0 ? stated : kPhi3Original;
  }

  void add_chatglm() {
    add_lengths({kContext, kEmbedding, kFeedForward, kBlocks});
    add_attention();
    if (c_.head_dim * c_.num_heads != c_.hidden_size) add_head_lengths();
    add_file_type();
    own("rope.dimension_count", whole(c_.rotary_dim()));
    set("tokenizer.ggml.add_bos_token", false);
    own("rope.freq_base", real(c_.rope.theta));
  }

  const GgufKeysInput& in_;
  const ModelConfig& c_;
  std::string_view name_;
  json json_;
  std::vector<GgufKeyValue> out_;
};

}  // namespace

Result<std::vector<GgufKeyValue>> gguf_model_keys(const GgufKeysInput& input) {
  return Keys(input, FERRY_TRY(merged_config(input))).run();
}

std::string gguf_size_label(std::span<const GgufNamedShape> tensors) {
  double shared = 0, of_expert = 0;  // exact below 2^53
  int64_t experts = 0, stacks = 0;
  for (const GgufNamedShape& tensor : tensors) {
    double count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<double>(size);
    const bool stack = tensor.name.find("_exps.") != tensor.name.npos && tensor.shape.size() >= 3;
    if (!stack) {
      shared += count;
      continue;
    }
    of_expert += count / static_cast<double>(tensor.shape[0]);
    experts += tensor.shape[0];
    ++stacks;
  }
  const double total = shared + of_expert;
  constexpr std::pair<double, char> kUnits[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}};
  double scale = 1e3;
  char unit = 'K';
  for (const auto& [above, letter] : kUnits) {
    if (total <= above) continue;
    scale = above;
    unit = letter;
    break;
  }
  const double scaled = total * (1 / scale);
  const double rounded = std::nearbyint(scaled);
  const int digits = rounded == 0 ? 2 : rounded < 10 ? 1 : 0;
  const std::string size = fmt::format("{:.{}f}{}", scaled, digits, unit);
  return stacks > 0 ? fmt::format("{}x{}", experts / stacks, size) : size;
}

}  // namespace ferry::converters
