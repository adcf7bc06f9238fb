// VisionFamily: everything that Ferry knows about one kind of vision-language model. Its text
// decoder is that of another family (family.h). Each vision family is declared in a file of its own
// under families/; families/vision_families.def lists them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "converters/blocks/graph_names.h"
#include "converters/build_options.h"
#include "converters/config/model_config.h"
#include "converters/config/model_type.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// How the config of one model_type is read. Defaults are those of transformers 5.23.0.
struct VisionType {
  std::string_view name;                      // the value of model_type
  std::string_view text_key = "text_config";  // the part of the config with the text decoder
  std::string_view text_type;                 // model_type of the text part where it states none
  // Default of tie_word_embeddings; nullopt: the text part decides.
  std::optional<bool> tied = false;
  // Defaults of vision_config and of the outer config, as JSON objects.
  std::string_view vision_defaults = "{}", defaults = "{}";
  Status (*read)(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) = nullptr;
};

struct VisionFamily {
  std::vector<VisionType> types;
  // The families that a text decoder may be of: model types without experts, scaling of embeddings
  // or states, whose decoders take embeddings as they are.
  std::vector<std::string_view> text_types;
  std::vector<std::string> text_prefixes, heads;      // like Component::prefixes and heads
  std::vector<KeyRule> (*rules)(const ModelConfig&);  // rules of the vision tower and its connector

  std::string_view name() const { return types.front().name; }
};

std::span<const VisionFamily* const> all_vision_families();

struct VisionMatch {
  const VisionFamily* family;
  const VisionType* type;
};
std::optional<VisionMatch> find_vision_family(std::string_view model_type);

}  // namespace ferry::converters
