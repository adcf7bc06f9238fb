#include "converters/family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "converters/blocks/audio_encoder.h"
#include "converters/blocks/classifier.h"
#include "converters/blocks/decoder.h"
#include "converters/blocks/sentence.h"
#include "converters/blocks/vision_encoder.h"
#include "converters/families/families.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

// An encoder has no head, even if the checkpoint has one.
void drop_head(std::vector<KeyRule>& rules) {
  for (KeyRule& rule : rules) {
    const bool head = rule.targets.size() == 1 && rule.targets.front().name.starts_with("output.");
    if (head) rule = drop_rule(rule.source, "head: an encoder gives states, not logits");
  }
}

}  // namespace

FamilyTable all_families() {
  static constexpr const FamilySpec* kTable[] = {
#define FERRY_FAMILY(name) &families::name::kFamily,
#include "converters/families/families.def"
#undef FERRY_FAMILY
  };
  return kTable;
}

std::optional<FamilyMatch> find_family(FamilyTable families, std::string_view model_type,
                                       std::string_view text_type) {
  if (model_type.empty()) return std::nullopt;
  std::optional<FamilyMatch> wrapped;
  for (const FamilySpec* family : families) {
    for (const ModelType& type : family->types) {
      if (type.name == model_type) return FamilyMatch{family, &type, false};
      if (type.wrapper.name != model_type) continue;
      if (!wrapped || type.name == text_type) wrapped = FamilyMatch{family, &type, true};
    }
  }
  return wrapped;
}

std::vector<std::string_view> supported_types(FamilyTable families) {
  std::vector<std::string_view> types;
  for (const FamilySpec* family : families) {
    for (const ModelType& type : family->types) {
      types.push_back(type.name);
      if (!type.wrapper.name.empty()) types.push_back(type.wrapper.name);
    }
  }
  const std::vector<std::string_view> text_types = types;
  for (const VisionFamily* family : all_vision_families()) {
    const bool has_decoder =
        std::ranges::find_first_of(text_types, family->text_types) != text_types.end();
    if (!has_decoder) continue;
    for (const VisionType& type : family->types) types.push_back(type.name);
  }
  std::ranges::sort(types);
  types.erase(std::unique(types.begin(), types.end()), types.end());
  return types;
}

std::string nearest_types(FamilyTable families, std::string_view model_type) {
  constexpr size_t kShown = 5, kLongest = 64;
  std::vector<std::string_view> types = supported_types(families);
  const std::string_view given = model_type.substr(0, kLongest);
  // A common beginning counts for more than letters that happen to be equal.
  const auto distance = [&](std::string_view type) {
    const auto [end, other] = std::ranges::mismatch(given, type);
    const auto common = static_cast<size_t>(end - given.begin());
    const size_t edits = edit_distance(given, type);
    return static_cast<int64_t>(edits) - 2 * static_cast<int64_t>(common);
  };
  std::ranges::stable_sort(types, {}, distance);
  if (types.size() <= kShown + 1) return fmt::format("{}", fmt::join(types, ", "));
  const size_t more = types.size() - kShown;
  types.resize(kShown);
  return fmt::format("{} and {} more (docs/families.md lists them)", fmt::join(types, ", "), more);
}

std::span<const VisionFamily* const> all_vision_families() {
  static constexpr const VisionFamily* kTable[] = {
#define FERRY_VISION_FAMILY(name) &families::name::kFamily,
#include "converters/families/vision_families.def"
#undef FERRY_VISION_FAMILY
  };
  return kTable;
}

std::optional<VisionMatch> find_vision_family(std::string_view model_type) {
  for (const VisionFamily* family : all_vision_families()) {
    for (const VisionType& type : family->types) {
      if (type.name == model_type) return VisionMatch{family, &type};
    }
  }
  return std::nullopt;
}

std::vector<Component> components_of(const ModelConfig& config) {
  if (config.audio && config.audio->conformer) return config.family->components;
  if (config.is_encoder) {
    Component encoder = config.family->text_decoder();
    encoder.role = kTextEncoderRole;
    return {std::move(encoder)};
  }
  if (config.audio && !config.hears_rows()) {
    return {{.role = kAudioEncoderRole, .prefixes = {}, .heads = {}, .build = build_audio_encoder},
            config.family->text_decoder()};
  }
  if (config.source) return {config.family->components[1], config.family->text_decoder()};
  if (config.vision_family == nullptr) return config.family->components;
  Component decoder = config.family->text_decoder();
  decoder.prefixes = config.vision_family->text_prefixes;
  decoder.heads = config.vision_family->heads;
  std::vector<Component> parts;
  const auto add = [&](std::string_view role, auto build) {
    parts.push_back({.role = role, .prefixes = {}, .heads = {}, .build = build});
  };
  if (config.vision) add(kVisionEncoderRole, build_vision_encoder);
  if (config.hears_rows()) add(kAudioEncoderRole, build_audio_encoder);
  add(kTokenEmbeddingRole, build_token_embedding);
  parts.push_back(std::move(decoder));
  return parts;
}

std::vector<KeyRule> key_rules(const ModelConfig& config) {
  std::vector<KeyRule> rules;
  if (config.vision_family != nullptr) rules = config.vision_family->rules(config);
  for (const Component& component : components_of(config)) {
    for (const std::string& prefix : component.prefixes) {
      rules = concat({rules, component.rules(config, prefix)});
    }
    for (const std::string& head : component.heads) rules.push_back(head_rule(head));
  }
  if (config.is_encoder) drop_head(rules);
  if (config.sentence) rules = concat({rules, sentence_rules(*config.sentence)});
  if (config.classifier) rules = concat({rules, classifier_rules(*config.classifier)});
  if (config.vision && config.vision->row_marks) add_row_marks(rules);
  if (config.vision_family != nullptr) return rules;
  for (const DroppedKeys& keys : config.family->dropped) {
    if (config.classifier && has_head_key(*config.classifier, keys.pattern)) continue;
    rules.push_back(drop_rule(keys.pattern, keys.reason));
  }
  return rules;
}

void observe_keys(const KeyedTensors& keyed, ModelConfig& config) {
  if (config.family->observe == nullptr) return;
  const HasKey has = [&](std::string_view ending) {
    return std::ranges::any_of(
        keyed.tensors, [&](const KeyedTensor& tensor) { return tensor.key.ends_with(ending); });
  };
  config.family->observe(has, config);
}

std::string base_prefix(const ModelConfig& config) {
  return config.vision_family != nullptr ? "model."
                                         : config.family->text_decoder().prefixes.front();
}

std::string_view family_name(const ModelConfig& config) {
  return config.vision_family != nullptr ? config.vision_family->name() : config.family->name();
}

}  // namespace ferry::converters
