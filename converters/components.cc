#include "converters/components.h"

#include "converters/blocks/decoder.h"
#include "converters/blocks/sentence.h"
#include "converters/blocks/vision_encoder.h"
#include "converters/keys/standard_keys.h"
#include "converters/vision_family.h"

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

std::vector<Component> components_of(const ModelConfig& config) {
  if (config.is_encoder) {
    Component encoder = config.family->text_decoder();
    encoder.role = kTextEncoderRole;
    return {std::move(encoder)};
  }
  if (config.vision_family == nullptr) return config.family->components;
  Component decoder = config.family->text_decoder();
  decoder.prefixes = config.vision_family->text_prefixes;
  decoder.heads = config.vision_family->heads;
  return {
      {.role = kVisionEncoderRole, .prefixes = {}, .heads = {}, .build = build_vision_encoder},
      {.role = kTokenEmbeddingRole, .prefixes = {}, .heads = {}, .build = build_token_embedding},
      std::move(decoder)};
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
  if (config.vision_family != nullptr) return rules;
  for (const DroppedKeys& keys : config.family->dropped) {
    rules.push_back(drop_rule(keys.pattern, keys.reason));
  }
  return rules;
}

std::string base_prefix(const ModelConfig& config) {
  return config.vision_family != nullptr ? "model."
                                         : config.family->text_decoder().prefixes.front();
}

std::string_view family_name(const ModelConfig& config) {
  return config.vision_family != nullptr ? config.vision_family->name() : config.family->name();
}

}  // namespace ferry::converters
