// FamilySpec and VisionFamily: everything that Ferry knows about one model family, or about one
// kind of vision-language model. Each is declared in a file of its own under families/;
// families/families.def and families/vision_families.def list them. Callers use all_families(), or
// ModelConfig::family of a parsed config. components_of() lists the parts of a model that have
// programs of their own; key_rules() gives the key rules of its checkpoints.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "converters/blocks/blocks.h"
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

// Whether a checkpoint has a key that ends with this text.
using HasKey = std::function<bool(std::string_view ending)>;

struct FamilySpec {
  std::vector<ModelType> types;  // the values of model_type that the family serves; at least one
  // The first is the text decoder. That of an encoder-decoder is followed by the source encoder,
  // the rules of both being those of the first.
  std::vector<Component> components;
  std::vector<DroppedKeys> dropped = {};
  std::vector<ClassifierClass> classifiers = {};  // classes with a head of labels
  std::vector<GgufArchitecture> gguf = {};        // the GGUF architectures of the family's models
  // The architecture of another family that GGUF writers give its models too; or none.
  std::string_view gguf_shared = {};
  std::vector<KerasArchitecture> keras = {};  // how KerasHub stores the family's models
  // Sets what follows from the keys of a checkpoint and not from its config; may be null.
  void (*observe)(const HasKey&, ModelConfig&) = nullptr;
  std::optional<MetaParams> meta = {};  // set if Meta's checkpoints can hold the family's models

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

// The pairs of rotary dimensions that each of the three positions turns, where the config does not
// say so in mrope_section. They are one behind the other, or in turn.
struct RopeSections {
  std::vector<int64_t> sizes;
  bool in_turn = false;
};

// A kind of vision tower: the model_type of vision_config, and the defaults of its class as JSON.
struct VisionTower {
  std::string_view name, defaults;
  bool any_shape = false;  // takes images of any shape; VisionType::read then reads all of it
};

// How the config of one model_type is read. Defaults are those of transformers 5.23.0.
struct VisionType {
  std::string_view name;                      // the value of model_type
  std::string_view text_key = "text_config";  // the part of the config with the text decoder
  std::string_view text_type;                 // model_type of the text part where it states none
  // Default of tie_word_embeddings; nullopt: the text part decides.
  std::optional<bool> tied = false;
  // Defaults of vision_config and of the outer config, as JSON objects.
  std::string_view vision_defaults = "{}", defaults = "{}";
  // nullptr where the model takes no images.
  Status (*read)(const JsonFields& outer, const JsonFields& vision, VisionConfig& config) = nullptr;
  // Reads the audio encoder, whose output becomes rows of the text decoder; nullptr where the model
  // takes no sound.
  Status (*read_sound)(const JsonFields& outer, ModelConfig& config) = nullptr;
  // Reads what is said of the placeholders of all kinds; may be null.
  Status (*read_rows)(const JsonFields& outer, ModelConfig& config) = nullptr;
  // Defaults of the text part beside those of its own class, as a JSON object.
  std::string_view text_defaults = "{}";
  // The towers that vision_config may name, the default first; in place of vision_defaults.
  std::vector<VisionTower> towers = {};
  // Tiles are lists of patches of any number of rows and columns; vision_config states the number
  // of positions, the square of a number, in place of image_size.
  bool patch_lists = false;
  bool reads_all = false;            // `read` reads all of the tower
  std::vector<KeyNames> names = {};  // other names of keys of the outer config
  // Each tower is built only where images or sounds are asked for. Without both the FamilySpec
  // whose wrapper has this name serves the text part alone.
  bool by_choice = false;
  // As in WrapperType: the outer config describes the text decoder where it has no `text_key`, and
  // tie_word_embeddings ties in the text part too.
  bool flat = false, text_ties = false;
  // The head is a weight of its own, whatever the configs say of ties.
  bool never_ties = false;
  // Logits are those of the head alone, whatever the config of the text part says of them.
  bool plain_head = false;
  // The text decoder gets its masks from the model around it, whatever its own config says of
  // attention in both directions, and its positions begin at this number.
  bool gives_masks = false;
  int64_t first_position = 0;
  // Set where the tower takes images of any shape, which have places in three dimensions in the
  // text decoder. `read` then reads all of the tower.
  const RopeSections* sections = nullptr;
};

// A model whose text decoder takes rows of images or sounds among its embeddings.
struct VisionFamily {
  std::vector<VisionType> types;
  // The families that a text decoder may be of: model types whose decoders take embeddings as the
  // token embedding gives them.
  std::vector<std::string_view> text_types;
  std::vector<std::string> text_prefixes, heads;  // like Component::prefixes and heads
  // The rules of the vision tower and the audio encoder with what is behind them.
  std::vector<KeyRule> (*rules)(const ModelConfig&);

  std::string_view name() const { return types.front().name; }
};

std::span<const VisionFamily* const> all_vision_families();

struct VisionMatch {
  const VisionFamily* family;
  const VisionType* type;
};
std::optional<VisionMatch> find_vision_family(std::string_view model_type);

// Returns the components in the order of execution. A text model is a text decoder or a text
// encoder; a vision-language model is a vision encoder, a token embedding and a text decoder; where
// it takes rows of sound, an audio encoder too or instead; a model of speech is an audio encoder,
// and a text decoder whose family has the rules of both, unless the encoder gives the outputs of
// labels itself; an encoder-decoder is a source encoder and a text decoder. `config` must have been
// parsed.
std::vector<Component> components_of(const ModelConfig& config);

// Returns all rules of the checkpoints of the model.
std::vector<KeyRule> key_rules(const ModelConfig& config);

// Sets what follows from the keys of a checkpoint (FamilySpec::observe).
void observe_keys(const KeyedTensors& keyed, ModelConfig& config);

// Returns the prefix of the keys of a model that was saved with its head. A model that was saved
// without its head lacks the prefix.
std::string base_prefix(const ModelConfig& config);

// Returns the name of the family that read the config, a model_type.
std::string_view family_name(const ModelConfig& config);

}  // namespace ferry::converters
