// FamilySpec: everything that Ferry knows about one model family. Each family declares one in a
// file of its own under families/; families/families.def lists them. Callers use all_families(), or
// ModelConfig::family of a parsed config.
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
#include "converters/family_gguf.h"
#include "converters/keys/key_rule.h"
#include "core/program_interface.h"

namespace ferry::converters {

// A part of a model that has programs of its own.
struct Component {
  std::string_view role = kTextDecoderRole;
  // The prefixes that keys of the component may have in a checkpoint. A checkpoint of a base model,
  // saved without its head, may lack the first.
  std::vector<std::string> prefixes = {"model."};
  std::vector<std::string> heads = {"lm_head.weight"};  // the keys that the head may have
  // Returns the rules of the keys behind `prefix`, without the head.
  std::vector<KeyRule> (*rules)(const ModelConfig&, const std::string& prefix) = nullptr;
  Result<Methods> (*build)(const ModelConfig&, const BuildOptions&);
};

// Keys of parts that Ferry does not build.
struct DroppedKeys {
  const char* pattern;  // pattern like KeyRule::source
  const char* reason;
};

// The keys that params.json of Meta's checkpoints states for a family beyond those of Llama.
// Source: ExecuTorch, examples/models/llama/model_args.py.
struct MetaParams {
  bool qkv_bias = false;  // where the config has attention_bias
  bool qk_norm = false;
};

struct FamilySpec {
  std::vector<ModelType> types;  // the values of model_type that the family serves; at least one
  std::vector<Component> components;  // the first is the text decoder
  std::vector<DroppedKeys> dropped = {};
  std::vector<GgufArchitecture> gguf = {};  // the GGUF architectures of the family's models
  std::optional<MetaParams> meta = {};  // set if Meta's checkpoints can hold the family's models

  std::string_view name() const { return types.front().name; }
  const Component& text_decoder() const { return components.front(); }
};

// A model_type, and the family that serves it.
struct FamilyMatch {
  const FamilySpec* family;
  const ModelType* type;  // type of the text decoder
  bool multimodal;        // model_type is the wrapper of `type`
};

// Finds the family of a model_type. `text_type` decides between the types of one wrapper.
std::optional<FamilyMatch> find_family(FamilyTable families, std::string_view model_type,
                                       std::string_view text_type = {});
// Returns the values of model_type that the families serve, sorted.
std::vector<std::string_view> supported_types(FamilyTable families);
// Returns the types that are spelled most like `model_type`, nearest first, or all where they are
// few: "llama, gemma and 59 more (README.md lists them)".
std::string nearest_types(FamilyTable families, std::string_view model_type);

}  // namespace ferry::converters
