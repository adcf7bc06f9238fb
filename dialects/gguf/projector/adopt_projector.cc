#include "dialects/gguf/projector/adopt_projector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "converters/config/json_fields.h"
#include "converters/family.h"
#include "core/json.h"
#include "core/text.h"
#include "dialects/gguf/projector/projector.h"
#include "dialects/gguf/projector/projector_tensors.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

constexpr const char* kTextPart = "text_config";
constexpr const char* kTowerPart = "vision_config";
constexpr const char* kTies = "tie_word_embeddings";
constexpr std::string_view kModelPrefix = "model.";
constexpr std::string_view kHeadKey = "lm_head.weight";
// Keys that say nothing about what is computed, or that have been read when a kind is found.
constexpr std::string_view kKnownKeys[] = {"clip.has_vision_encoder",  "clip.has_audio_encoder",
                                           "clip.projector_type",      "clip.vision.projector_type",
                                           "clip.has_llava_projector", "clip.has_text_encoder",
                                           "clip.has_qwen2vl_merger"};
constexpr std::string_view kSoundKeys = "clip.audio.";

std::string text_of(const json& document) {
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

// Whether a family's text decoders are in files of this architecture.
bool has_architecture(const FamilySpec& family, std::string_view name) {
  return family.gguf_shared == name ||
         std::ranges::count(family.gguf, name, &GgufArchitecture::name) > 0;
}

class ProjectorAdopter {
 public:
  ProjectorAdopter(const ProjectorInput& input, AdoptedGguf& text)
      : input_(input),
        text_(text),
        path_(printable(input.source->path())),
        file_{.fields = JsonFields(*input.metadata, path_, ""), .source = input.source} {
    file_.fields.record_in(log_);
  }

  Result<AdoptedProjector> run() {
    FERRY_RETURN_IF_ERROR(find_kind());
    FERRY_RETURN_IF_ERROR(find_model());
    FERRY_RETURN_IF_ERROR(read());
    FERRY_RETURN_IF_ERROR(put_together());
    const ModelConfig config = FERRY_TRY(parsed(text_.config));
    AdoptedProjector out;
    out.tensors = FERRY_TRY(key_projector_tensors(*input_.source, 0, *kind_, config));
    name_text_tensors();
    FERRY_RETURN_IF_ERROR(name_tokens());
    file_.processor["image_processor"] = file_.pixels;
    out.processor = text_of(file_.processor);
    out.notes = std::move(notes_);
    return out;
  }

 private:
  Result<ModelConfig> parsed(const std::string& config) const {
    return parse_model_config(config, text_.generation, text_.config_name, nullptr, all_families(),
                              Inputs{.images = true});
  }

  // -- the kind and the model

  Status find_kind() {
    if (!FERRY_TRY(file_.fields.flag_or("clip.has_vision_encoder", false))) {
      return file_.fields.error(ErrorCode::kUnsupported, "clip.has_vision_encoder",
                                "is not true: projectors of images are supported");
    }
    std::string_view key = "clip.projector_type";
    if (!file_.fields.find(key)) key = "clip.vision.projector_type";
    const auto type = FERRY_TRY(file_.fields.text(key));
    if (!type) return file_.fields.bad("clip.projector_type", "is missing");
    std::vector<std::string_view> types;
    for (const ProjectorKind* kind : projector_kinds()) {
      if (std::ranges::count(types, kind->type) == 0) types.push_back(kind->type);
      if (kind_ != nullptr || kind->type != *type) continue;
      const bool signed_so = kind->sign.empty() || file_.has(kind->sign);
      if (signed_so && (kind->fits == nullptr || kind->fits(file_))) kind_ = kind;
    }
    if (kind_ != nullptr) return {};
    return file_.fields.error(
        ErrorCode::kUnsupported, key,
        fmt::format("is {}; supported are {}", quoted(*type, 40), fmt::join(types, ", ")));
  }

  // Finds the model type whose text decoder the other file has.
  Status find_model() {
    text_config_ = FERRY_TRY(parse_json(text_.config, text_.config_name));
    const std::string architecture = input_.text_metadata->value("general.architecture", "");
    const std::string stated = text_config_.value("model_type", "");
    for (const std::string_view name : kind_->model_types) {
      const VisionType& type = *find_vision_family(name)->type;
      const auto text = find_family(all_families(), type.text_type);
      if (!text || !has_architecture(*text->family, architecture)) continue;
      model_ = find_vision_family(name);
      const auto own = find_family(all_families(), stated);
      const bool other = std::ranges::count(model_->family->text_types, stated) > 0 && own &&
                         own->family != text->family;
      if (!other) text_config_["model_type"] = type.text_type;
      return {};
    }
    for (const std::string_view name : kind_->model_types) {
      const VisionMatch match = *find_vision_family(name);
      if (std::ranges::count(match.family->text_types, stated) == 0) continue;
      model_ = match;
      return {};
    }
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: projectors of the type '{}' have text decoders of {}, and the "
                            "architecture of the text decoder is {}",
                            path_, kind_->type, fmt::join(kind_->model_types, " or "),
                            quoted(architecture)));
  }

  // -- the metadata

  Status read() {
    file_.text = input_.text_metadata;
    file_.has_processor = input_.has_processor;
    const auto width = text_config_.find("hidden_size");
    if (width != text_config_.end() && width->is_number_integer()) {
      file_.hidden_size = width->get<int64_t>();
    }
    FERRY_RETURN_IF_ERROR(kind_->read(file_));
    const bool sound = FERRY_TRY(file_.fields.flag_or("clip.has_audio_encoder", false));
    if (sound) notes_.push_back(path_ + ": its audio encoder is left out");
    for (const auto& [key, value] : input_.metadata->items()) {
      if (!key.starts_with("clip.") || log_.contains(key)) continue;
      if (std::ranges::count(kKnownKeys, key) > 0 || (sound && key.starts_with(kSoundKeys))) {
        continue;
      }
      return file_.fields.error(
          ErrorCode::kUnsupported, key,
          fmt::format("is not known of projectors of the type '{}'", kind_->type));
    }
    return {};
  }

  // -- config.json

  Status put_together() {
    for (const auto& [key, value] : file_.text_part.items()) {
      if (!text_config_.contains(key)) text_config_[key] = value;
    }
    FERRY_RETURN_IF_ERROR(add_sections());
    json whole = file_.outer;
    whole["model_type"] = model_->type->name;
    whole[std::string(model_->type->text_key)] = text_config_;
    whole[kTowerPart] = file_.vision;
    if (text_config_.contains(kTies)) whole[kTies] = text_config_[kTies];
    if (input_.user_config.empty()) {
      text_.config = text_of(whole);
      return {};
    }
    const ModelConfig own = FERRY_TRY(parsed(text_of(whole)));
    FERRY_RETURN_IF_ERROR(overlay_user_config(whole));
    if (kind_->layers_behind) FERRY_RETURN_IF_ERROR(take_user_features(own, whole));
    text_.config = text_of(whole);
    return check_agreement(own, FERRY_TRY(parsed(text_.config)));
  }

  // The pairs of dimensions of RoPE that each of the places of a patch turns. Texts do not need
  // them, so that the config of the text decoder does not have them.
  Status add_sections() {
    const json* stated = file_.of_text("rope.dimension_sections");
    if (stated == nullptr || model_->type->sections == nullptr) return {};
    const bool fits = stated->is_array() && stated->size() >= 3 && stated->size() <= 4;
    if (!fits || (stated->size() == 4 && (*stated)[3] != 0)) {
      return file_.fields.error(ErrorCode::kUnsupported, "rope.dimension_sections",
                                "of the text decoder are not three numbers");
    }
    const json sections = {(*stated)[0], (*stated)[1], (*stated)[2]};
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const auto rope = text_config_.find(key);
      if (rope == text_config_.end() || !rope->is_object() || rope->empty()) continue;
      (*rope)["mrope_section"] = sections;
      return {};
    }
    text_config_["rope_scaling"] = {{"rope_type", "default"}, {"mrope_section", sections}};
    return {};
  }

  // Takes what the user states. text_config_ has that of the text part already.
  Status overlay_user_config(json& whole) const {
    const std::string name = printable(input_.user_name);
    json user = FERRY_TRY(parse_json(input_.user_config, name));
    const auto type = user.find("model_type");
    const bool of_kind =
        type != user.end() && type->is_string() &&
        std::ranges::count(kind_->model_types, type->get_ref<const std::string&>()) > 0;
    const auto has_part = [&user](const char* part) {
      const auto found = user.find(part);
      return found != user.end() && found->is_object();
    };
    if (!of_kind || !has_part(kTextPart) || !has_part(kTowerPart)) {
      return fail(ErrorCode::kBadInput,
                  fmt::format("{}: is not the config of a model of {} with {} and {}", name,
                              fmt::join(kind_->model_types, " or "), kTextPart, kTowerPart));
    }
    user.erase(kTextPart);
    json tower = whole[kTowerPart];
    tower.update(user[kTowerPart]);
    whole.update(user);
    whole[kTowerPart] = std::move(tower);
    return {};
  }

  // The user's config counts layers that the file may lack, because no feature needs them. A file
  // that does not state its features has those that the user states.
  Status take_user_features(const ModelConfig& own, json& whole) const {
    const ModelConfig stated = FERRY_TRY(parsed(text_of(whole)));
    const VisionConfig& user = *stated.vision;
    const std::vector<int64_t>& features = own.vision->feature_layers;
    const bool fits =
        file_.states_features ? user.feature_layers == features : user.depth() <= file_.layers;
    if (!fits) {
      return bad_input(
          fmt::format("{}: the features are of the layers {} of the tower, but {} has {}",
                      printable(input_.user_name), fmt::join(user.feature_layers, ", "), path_,
                      file_.states_features ? fmt::format("those of {}", fmt::join(features, ", "))
                                            : fmt::format("{} layers", file_.layers)));
    }
    whole["vision_feature_layer"] = user.feature_layers;
    whole[kTowerPart]["num_hidden_layers"] = user.depth();
    return {};
  }

  Status check_agreement(const ModelConfig& own, const ModelConfig& stated) const {
    const VisionConfig &a = *own.vision, &b = *stated.vision;
    const struct {
      const char* name;
      int64_t file, user;
    } sizes[] = {
        {"hidden_size", a.hidden_size, b.hidden_size},
        {"intermediate_size", a.intermediate_size, b.intermediate_size},
        {"num_hidden_layers", kind_->layers_behind ? b.num_layers : a.num_layers, b.num_layers},
        {"num_attention_heads", a.num_heads, b.num_heads},
        {"image_size", a.image_size, b.image_size},
        {"patch_size", a.patch_size, b.patch_size},
        {"the factor of the connector", a.shuffle, b.shuffle}};
    for (const auto& size : sizes) {
      if (size.file == size.user) continue;
      return bad_input(fmt::format("{}: {} of the tower is {}, but {} has {}",
                                   printable(input_.user_name), size.name, size.user, path_,
                                   size.file));
    }
    if (a.activation == b.activation && std::abs(a.norm_eps - b.norm_eps) <= 1e-6 * a.norm_eps) {
      return {};
    }
    return bad_input(fmt::format("{}: the tower has another activation or epsilon than {}",
                                 printable(input_.user_name), path_));
  }

  // -- keys and tokens

  // The text decoder's keys are those of a model of its own. In the whole they have a prefix.
  std::string key_in_whole(const std::string& key) const {
    if (key == kHeadKey) return model_->family->heads.front();
    if (!key.starts_with(kModelPrefix)) return key;
    return model_->family->text_prefixes.front() + key.substr(kModelPrefix.size());
  }

  void name_text_tensors() {
    for (KeyedTensor& tensor : text_.tensors.tensors) tensor.key = key_in_whole(tensor.key);
    std::unordered_map<std::string, std::string> names;
    for (const auto& [key, name] : text_.tensors.names) names.emplace(key_in_whole(key), name);
    text_.tensors.names = std::move(names);
  }

  Status name_tokens() {
    if (text_.tokenizer.tokenizer_config.empty() || file_.special.empty()) return {};
    json config = FERRY_TRY(parse_json(text_.tokenizer.tokenizer_config, path_));
    for (const auto& [name, token] : file_.special.items()) config[name] = token;
    text_.tokenizer.tokenizer_config = text_of(config);
    return {};
  }

  const ProjectorInput& input_;
  AdoptedGguf& text_;
  std::string path_;
  KeyLog log_;  // keys that were asked for
  ProjectorReading file_;
  const ProjectorKind* kind_ = nullptr;
  std::optional<VisionMatch> model_;
  json text_config_;
  std::vector<std::string> notes_;
};

}  // namespace

bool is_projector(const json& metadata) {
  const auto found = metadata.find("general.architecture");
  return found != metadata.end() && *found == "clip";
}

Result<AdoptedProjector> adopt_projector(const ProjectorInput& input, AdoptedGguf& text) {
  return ProjectorAdopter(input, text).run();
}

}  // namespace ferry::converters
