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
#include "converters/family_keras.h"
#include "converters/keys/key_rule.h"
#include "core/program_interface.h"

namespace ferry::converters {

// A part of a model that has programs of its own.
struct Component {
  std::string_view role = kTextDecoderRole;
  // What precedes the keys of the component in a checkpoint: one of these. A checkpoint of a base
  // model, saved without its head, may lack the first.
  std::vector<std::string> prefixes = {"model."};
  std::vector<std::string> heads = {"lm_head.weight"};  // the keys that the head may have
  // The rules of the keys that follow `prefix`, without the head.
  std::vector<KeyRule> (*rules)(const ModelConfig&, const std::string& prefix) = nullptr;
  Result<Methods> (*build)(const ModelConfig&, const BuildOptions&);
};

// Keys of parts that Ferry does not build.
struct DroppedKeys {
  const char* pattern;  // as KeyRule::source
  const char* reason;
};

// The params.json of Meta's checkpoints states these of a family beyond what it states of Llama.
// Source: ExecuTorch, examples/models/llama/model_args.py.
struct MetaParams {
  bool qkv_bias = false;  // where the config has attention_bias
  bool qk_norm = false;
};

struct FamilySpec {
  std::vector<ModelType> types;       // the values of model_type that it serves; at least one
  std::vector<Component> components;  // the first is the text decoder
  std::vector<DroppedKeys> dropped = {};
  std::vector<GgufArchitecture> gguf = {};  // the architectures that its models have there
  // The architecture of another family that GGUF writers give its models too; or none.
  std::string_view gguf_shared = {};
  std::vector<KerasArchitecture> keras = {};  // how KerasHub stores its models
  std::optional<MetaParams> meta = {};        // whether Meta's checkpoints can hold its models

  std::string_view name() const { return types.front().name; }
  // The model_type of the text part that `architecture`, one of this family's, has in KerasHub.
  std::string_view type_of(const KerasArchitecture& architecture) const {
    return architecture.model_type.empty() ? name() : architecture.model_type;
  }
  const Component& text_decoder() const { return components.front(); }
};

// A model_type, and the family that serves it.
struct FamilyMatch {
  const FamilySpec* family;
  const ModelType* type;  // of the text decoder
  bool multimodal;        // model_type is the wrapper of `type`
};

// `text_type` decides between the types of one wrapper.
std::optional<FamilyMatch> find_family(FamilyTable families, std::string_view model_type,
                                       std::string_view text_type = {});
// The values of model_type that the families serve, sorted.
std::vector<std::string_view> supported_types(FamilyTable families);
// "llama, gemma and 59 more (README.md lists them)": those that are written most like `model_type`,
// nearest first, or all where they are few.
std::string nearest_types(FamilyTable families, std::string_view model_type);

}  // namespace ferry::converters
