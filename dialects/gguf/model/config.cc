#include "dialects/gguf/model/adopt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "converters/config/json_fields.h"
#include "converters/family.h"
#include "core/json.h"
#include "core/text.h"
#include "dialects/gguf/model/architecture.h"
#include "dialects/gguf/model/reading.h"
#include "dialects/gguf/model/rope.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

constexpr IntRange kLayers = {1, 1 << 17};
constexpr size_t kMaxShownKeys = 6;
constexpr FloatRange kRealsOrNone = {0, 1e15};
constexpr double kDefaultTheta = 10000.0;  // base that readers of GGUF assume
constexpr const char* kPartialFactor = "partial_rotary_factor";
constexpr double kConfigTolerance = 1e-6;  // numbers are f32 in GGUF

class ConfigMaker {
 public:
  explicit ConfigMaker(const GgufConfigInput& input)
      : input_(input),
        path_(printable(input.tensors->path())),
        keys_{{*input.metadata, path_, ""}, std::string(input.architecture->name) + "."},
        fields_(keys_.fields),
        tensors_(gguf_tensor_names(*input.tensors)) {
    reading_.keys = &keys_;
    reading_.architecture = input.architecture;
    reading_.type = find_family(all_families(), input.architecture->model_type)->type;
    reading_.tensors = &tensors_;
    reading_.config = &config_;
  }

  Result<GgufConfig> run() {
    FERRY_RETURN_IF_ERROR(read_metadata());
    GgufConfig out;
    out.name = input_.user_config.empty() ? path_ + " (metadata)" : printable(input_.user_name);
    if (!input_.user_config.empty()) {
      FERRY_RETURN_IF_ERROR(overlay_user_config());
    } else if (!reading_.missing.empty()) {
      return Failure(Error{.code = ErrorCode::kBadInput,
                           .message = fmt::format("{}: the metadata lack {}; config can state them",
                                                  path_, missing_keys()),
                           .field = "config"});
    }
    out.text = config_.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
    out.parsed = FERRY_TRY(parse_model_config(out.text, "", out.name));
    FERRY_RETURN_IF_ERROR(check_agreement(out));
    return out;
  }

 private:
  std::string key(std::string_view name) const { return keys_.name(name); }

  // Returns "a, b and 5 more".
  std::string missing_keys() const {
    const std::vector<std::string>& all = reading_.missing;
    const size_t shown = std::min(all.size(), kMaxShownKeys);
    std::string text = fmt::format("{}", fmt::join(std::span(all).first(shown), ", "));
    if (shown < all.size()) text += fmt::format(" and {} more", all.size() - shown);
    return text;
  }

  // -- from the metadata

  Status read_metadata() {
    const GgufArchitecture& architecture = *input_.architecture;
    FERRY_RETURN_IF_ERROR(refuse_unread_keys(keys_, architecture));
    config_ = {{"model_type", architecture.model_type}};
    for (const auto& table : gguf_number_tables(architecture))
      FERRY_RETURN_IF_ERROR(read_numbers(table));
    if (config_.value("sliding_window", -1) == 0) config_.erase("sliding_window");
    FERRY_RETURN_IF_ERROR(read_layer_count());
    if (!architecture.states_alone) FERRY_RETURN_IF_ERROR(read_head_dim());
    if (reading_.type->rope != RopeRule::kNone) FERRY_RETURN_IF_ERROR(read_rope());
    if (architecture.gemma) write_query_scale();
    if (architecture.no_rope_interval > 0) {
      config_["no_rope_layer_interval"] = architecture.no_rope_interval;
    }
    FERRY_RETURN_IF_ERROR(read_gguf_layer_types(reading_));
    if (architecture.linear_attention) FERRY_RETURN_IF_ERROR(read_linear_sizes());
    FERRY_RETURN_IF_ERROR(read_gguf_experts(reading_));
    read_tables();
    FERRY_RETURN_IF_ERROR(read_gguf_own_keys(reading_));
    read_tensors();
    FERRY_RETURN_IF_ERROR(check_vocabulary());
    FERRY_RETURN_IF_ERROR(read_token_ids());
    name_as_the_type_does();
    return read_activation();
  }

  // Files of Ferry say which GELU a model has where readers compute one whatever it has.
  Status read_activation() {
    if (!input_.architecture->hides_gelu()) return {};
    const auto stated = FERRY_TRY(fields_.text(key(kGgufActivation)));
    if (stated) config_[std::string(reading_.type->activation_key)] = *stated;
    return {};
  }

  bool has_kinds_of_layers() const {
    const GgufOwnKeys own = input_.architecture->own_keys;
    return own == GgufOwnKeys::kKindsOfLayers || own == GgufOwnKeys::kMimo;
  }

  // Returns the number of a row whose key is in the file.
  Result<double> real_of(const GgufNumber& row) const {
    return *FERRY_TRY(fields_.number(key(row.gguf), row.zero_is_none ? kRealsOrNone : kGgufReals));
  }

  Status read_numbers(std::span<const GgufNumber> rows) {
    for (const GgufNumber& row : rows) {
      if (row.by_kind && has_kinds_of_layers()) continue;
      const std::string name = key(row.gguf);
      if (!fields_.find(name)) {
        const bool replaced = !row.unless.empty() && reading_.states(row.unless);
        if (row.required && !replaced) reading_.missing.push_back(name);
      } else if (row.real) {
        const double value = FERRY_TRY(real_of(row));
        config_[std::string(row.hf)] = row.zero_is_none && value == 0 ? json() : json(value);
      } else {
        config_[std::string(row.hf)] = *FERRY_TRY(reading_.integer(row.gguf, kGgufCounts));
      }
    }
    return {};
  }

  // Layers for multi-token prediction count as blocks, but are not part of the model.
  Status read_layer_count() {
    const auto blocks = FERRY_TRY(fields_.integer(key("block_count"), kLayers));
    if (!blocks) {
      reading_.missing.push_back(key("block_count"));
      return {};
    }
    const int64_t predicting =
        FERRY_TRY(fields_.integer_or(key("nextn_predict_layers"), kGgufCounts, 0));
    if (predicting >= *blocks) {
      return fields_.bad(key("nextn_predict_layers"), "leaves no layer of the model");
    }
    reading_.layers = *blocks - predicting;
    config_["num_hidden_layers"] = reading_.layers;
    if (predicting > 0) config_["num_nextn_predict_layers"] = predicting;
    return {};
  }

  // Always states the size of a head, because model types have defaults of their own that GGUF does
  // not know.
  Status read_head_dim() {
    if (input_.architecture->latent) return read_turned_dim();
    const auto keys = FERRY_TRY(fields_.integer(key("attention.key_length"), kGgufSizes));
    const auto values = FERRY_TRY(fields_.integer(key("attention.value_length"), kGgufSizes));
    const auto hidden = FERRY_TRY(fields_.integer(key("embedding_length"), kGgufSizes));
    const auto heads = FERRY_TRY(reading_.integer("attention.head_count", kGgufSizes));
    if (!keys && (!hidden || !heads)) return {};
    if (!keys && *hidden % *heads != 0) {
      return fields_.bad(key("attention.head_count"), "does not divide the embedding length");
    }
    reading_.head_dim = keys ? *keys : *hidden / *heads;
    const bool narrow = input_.architecture->own_keys == GgufOwnKeys::kMimo;
    if (values && *values != reading_.head_dim && !narrow) {
      return keys_.unsupported("attention.value_length", "differs from the length of keys");
    }
    config_["head_dim"] = reading_.head_dim;
    if (!fields_.find(key("attention.head_count_kv")) && heads) {
      config_["num_key_value_heads"] = *heads;
    }
    return {};
  }

  // With latent attention, only the dimensions of a head that have RoPE are read here.
  Status read_turned_dim() {
    FERRY_RETURN_IF_ERROR(reading_.take("rope.dimension_count", "head_dim", kGgufSizes));
    reading_.head_dim = config_.value("head_dim", int64_t{0});
    return {};
  }

  Status read_rope() {
    theta_ = config_.value("rope_theta", kDefaultTheta);
    config_.erase("rope_theta");
    rope_ = FERRY_TRY(
        read_gguf_rope({.keys = &keys_,
                        .architecture = input_.architecture,
                        .tensors = input_.tensors,
                        .theta = theta_,
                        .head_dim = reading_.head_dim,
                        .max_positions = config_.value("max_position_embeddings", int64_t{0})}));
    config_["rope_parameters"] = rope_.parameters;
    // For a scaled RoPE, the key beside the object counts.
    if (rope_.parameters.contains(kPartialFactor)) {
      config_[kPartialFactor] = rope_.parameters[kPartialFactor];
    }
    if (rope_.original_positions) {
      config_["original_max_position_embeddings"] = *rope_.original_positions;
    }
    reading_.missing.insert(reading_.missing.end(), rope_.missing.begin(), rope_.missing.end());
    return {};
  }

  // Sizes of linear attention mean nothing where no layer has it: those of a config stay as they
  // are, and those of the file, which may be 0, do not count.
  Status read_linear_sizes() {
    if (!has_linear_attention()) {
      for (const GgufNumber& row : gguf_linear_numbers()) config_.erase(std::string(row.hf));
      return {};
    }
    const auto inner = FERRY_TRY(fields_.integer(key("ssm.inner_size"), kGgufSizes));
    const auto heads = FERRY_TRY(fields_.integer(key("ssm.time_step_rank"), kGgufSizes));
    if (!inner) reading_.missing.push_back(key("ssm.inner_size"));
    if (inner && heads) {
      if (*inner % *heads != 0) {
        return fields_.bad(key("ssm.inner_size"), "is not a multiple of the number of V heads");
      }
      config_["linear_value_head_dim"] = *inner / *heads;
    }
    return {};
  }

  bool has_linear_attention() const {
    const auto types = config_.find("layer_types");
    return types != config_.end() && std::ranges::count(*types, "linear_attention") > 0;
  }

  // No key has this scale. Readers of GGUF recognise the one model where it is not head_dim by its
  // number of layers.
  void write_query_scale() {
    const int64_t heads = config_.value("num_attention_heads", int64_t{0});
    const bool by_hidden =
        reading_.layers == input_.architecture->layers_scaled_by_hidden && heads > 0;
    config_["query_pre_attn_scalar"] =
        by_hidden ? config_.value("hidden_size", int64_t{0}) / heads : reading_.head_dim;
  }

  // Reads sizes that no key states: those of the tables of encoders, and a rank of gemma3n.
  void read_tables() {
    const bool bert = input_.architecture->own_keys == GgufOwnKeys::kBert;
    for (const TensorEntry& entry : input_.tensors->entries()) {
      if (entry.shape.size() != 2) continue;
      if (entry.name == "token_types.weight") config_["type_vocab_size"] = entry.shape[0];
      if (entry.name == "blk.0.laurel_l.weight") config_["laurel_rank"] = entry.shape[0];
      if (bert && entry.name == "position_embd.weight") config_["position_rows"] = entry.shape[0];
    }
  }

  // Reads facts from the tensors: the vocabulary, a tied head, biases, norms of heads.
  void read_tensors() {
    const auto any = [&](std::initializer_list<std::string_view> names) {
      return std::ranges::any_of(names, [&](std::string_view name) { return reading_.has(name); });
    };
    config_["tie_word_embeddings"] = !reading_.has("output.weight");
    if (reading_.type->attention_bias) {
      config_["attention_bias"] = any({"blk.{i}.attn_q.bias", "blk.{i}.attn_qkv.bias",
                                       "blk.{i}.attn_kv_a_mqa.bias", "blk.{i}.attn_output.bias"});
    }
    if (reading_.type->mlp_bias) config_["mlp_bias"] = any({"blk.{i}.ffn_up.bias"});
    for (const GgufFlag& flag : input_.architecture->flags) {
      config_[std::string(flag.hf)] = reading_.has(flag.gguf);
    }
    for (const TensorEntry& entry : input_.tensors->entries()) {
      if (entry.shape.size() != 2) continue;
      if (entry.name == "per_layer_token_embd.weight") {
        config_["vocab_size_per_layer_input"] = entry.shape[0];
      }
      if (entry.name != "token_embd.weight") continue;
      rows_ = entry.shape[0];
      config_["vocab_size"] = rows_;
    }
    if (rows_ == 0) reading_.missing.push_back("token_embd.weight");
  }

  // Readers of GGUF use the key `vocab_size` where no tokens are listed.
  Status check_vocabulary() const {
    const auto size = FERRY_TRY(fields_.integer(key("vocab_size"), kGgufCounts));
    if (!size || rows_ == 0 || *size == rows_ || fields_.find("tokenizer.ggml.tokens")) return {};
    return fields_.bad(key("vocab_size"),
                       fmt::format("is {}, 'token_embd.weight' has {} rows", *size, rows_));
  }

  Status read_token_ids() {
    constexpr std::pair<const char*, const char*> kIds[] = {
        {"tokenizer.ggml.bos_token_id", "bos_token_id"},
        {"tokenizer.ggml.eos_token_id", "eos_token_id"},
        {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
    for (const auto& [gguf, hf] : kIds) {
      if (const auto id = FERRY_TRY(fields_.integer(gguf, kGgufCounts))) config_[hf] = *id;
    }
    return {};
  }

  // Renames members to the first name under which a config of the type states them. Members that
  // such a config cannot state are removed.
  void name_as_the_type_does() {
    const json read = config_;
    for (const KeyNames& names : reading_.type->names) config_.erase(std::string(names.key));
    for (const std::string_view key : reading_.type->unread) config_.erase(std::string(key));
    for (const KeyNames& names : reading_.type->names) {
      const std::string member(names.key);
      if (names.stated[0].empty() || !read.contains(member)) continue;
      config_[std::string(names.stated[0])] = read[member];
    }
  }

  // -- the user's config

  Status overlay_user_config() {
    const std::string name = printable(input_.user_name);
    json user = FERRY_TRY(parse_json(input_.user_config, name));
    if (!user.is_object()) return bad_input(name + ": not a JSON object");
    if (user.contains("text_config") && user["text_config"].is_object()) {
      // A GGUF file holds only the text part of a multimodal config.
      json text = user["text_config"];
      for (const char* shared : {"tie_word_embeddings", "bos_token_id", "eos_token_id"}) {
        if (user.contains(shared)) text[shared] = user[shared];
      }
      user = std::move(text);
    }
    FERRY_RETURN_IF_ERROR(check_type(user, name));
    // RoPE has three names in configs.
    for (const char* rope : {"rope_theta", "rope_scaling", "rope_parameters"}) {
      if (!user.contains(rope) || user[rope].is_null()) continue;
      config_.erase("rope_parameters");
      config_.erase("original_max_position_embeddings");
      config_.erase(kPartialFactor);
      config_["rope_theta"] = theta_;
    }
    if (user.contains("full_attention_interval") || user.contains("sliding_window_pattern") ||
        user.contains("_sliding_window_pattern")) {
      config_.erase("layer_types");
    }
    for (const KeyNames& names : reading_.type->names) {
      const bool states = std::ranges::any_of(names.stated, [&](std::string_view stated) {
        return user.contains(std::string(stated));
      });
      if (!states) continue;
      for (const std::string_view stated : names.stated) config_.erase(std::string(stated));
    }
    if (input_.architecture->cuts_vocabulary && user.value("vocab_size", json(0)) > rows_) {
      user.erase("vocab_size");
    }
    config_.update(user);
    return {};
  }

  Status check_type(const json& user, const std::string& name) const {
    const auto type = FERRY_TRY(JsonFields(user, name, "").text("model_type"));
    const GgufArchitecture& architecture = *input_.architecture;
    if (!type || *type == architecture.model_type ||
        std::ranges::count(architecture.other_types, *type) > 0) {
      return {};
    }
    return bad_input(fmt::format("{}: 'model_type' is {}, but {} has the architecture '{}'", name,
                                 quoted(*type), path_, architecture.name));
  }

  // -- config and file

  Status check_agreement(const GgufConfig& config) const {
    const ModelConfig& parsed = config.parsed;
    for (const auto& table : gguf_number_tables(*input_.architecture)) {
      const bool linear = table.data() == gguf_linear_numbers().data();
      if (linear && parsed.linear.key_heads == 0) continue;  // no layer has linear attention
      FERRY_RETURN_IF_ERROR(check_numbers(table, config));
    }
    const int64_t layers = parsed.source ? parsed.source->num_layers : parsed.num_layers;
    FERRY_RETURN_IF_ERROR(agree(config, "num_hidden_layers", static_cast<double>(layers),
                                static_cast<double>(reading_.layers), "block_count"));
    FERRY_RETURN_IF_ERROR(agree(config, "vocab_size", static_cast<double>(parsed.vocab_size),
                                static_cast<double>(rows_), "rows of token_embd.weight"));
    if (const auto rotary = FERRY_TRY(fields_.integer(key("rope.dimension_count"), kGgufSizes))) {
      FERRY_RETURN_IF_ERROR(agree(config, "partial_rotary_factor",
                                  static_cast<double>(parsed.rotary_dim()),
                                  static_cast<double>(*rotary), key("rope.dimension_count")));
    }
    if (agrees_with(parsed.rope, parsed.rotary_dim(), rope_)) return {};
    return bad_input(fmt::format("{}: the RoPE scaling is not the one of {} (tensor {})",
                                 config.name, path_, quoted(rope_.tensor)));
  }

  Status check_numbers(std::span<const GgufNumber> rows, const GgufConfig& config) const {
    for (const GgufNumber& row : rows) {
      if (!row.of || !fields_.find(key(row.gguf))) continue;
      if (input_.architecture->latent && !row.latent) continue;
      if (row.by_kind && has_kinds_of_layers()) continue;
      const double stated =
          row.real ? FERRY_TRY(real_of(row))
                   : static_cast<double>(*FERRY_TRY(reading_.integer(row.gguf, kGgufCounts)));
      if (row.or_of && row.or_of(config.parsed) == stated) continue;
      FERRY_RETURN_IF_ERROR(agree(config, row.hf, row.of(config.parsed), stated, key(row.gguf)));
    }
    return {};
  }

  // `ours` is the value of the config, `stated` that of the file; 0 where the file says nothing.
  Status agree(const GgufConfig& config, std::string_view name, double ours, double stated,
               const std::string& where) const {
    if (stated == 0 || std::abs(ours - stated) <= kConfigTolerance * std::abs(stated)) return {};
    return bad_input(fmt::format("{}: '{}' is {}, but {} has {} ({})", config.name, name, ours,
                                 path_, stated, where));
  }

  const GgufConfigInput& input_;
  std::string path_;
  GgufKeys keys_;
  const JsonFields& fields_;  // fields of keys_
  GgufTensorNames tensors_;
  json config_;
  GgufReading reading_;
  int64_t rows_ = 0;  // rows of the embedding; 0 where the file does not say
  double theta_ = kDefaultTheta;
  GgufRope rope_;
};

}  // namespace

Result<GgufConfig> make_gguf_config(const GgufConfigInput& input) {
  return ConfigMaker(input).run();
}

}  // namespace ferry::converters
