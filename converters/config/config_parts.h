// The parts of parse_model_config (private to config/). Each reads one topic of config.json into
// `config`, and needs what its comment names to have been read.
#pragma once

#include <initializer_list>
#include <string_view>

#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"
#include "converters/config/model_type.h"
#include "converters/family.h"

namespace ferry::converters {

// Reads the activation that `key` names; `otherwise` names it where the key is absent.
Result<Activation> read_activation(const JsonFields& fields, std::string_view key,
                                   std::string_view otherwise);

// Returns the activation of this name, which is part of the value of `key`.
Result<Activation> activation_named(const JsonFields& fields, std::string_view key,
                                    std::string_view name);

// Checks what the config of every encoder-decoder must say about itself.
Status check_encoder_decoder(const JsonFields& fields);
// Refuses a flag that is stated and not true, without which the model is no encoder-decoder.
Status check_states_true(const JsonFields& fields, std::string_view key);
// Reads the text encoder of a config that describes it apart (ModelType::source_part), and what the
// config itself says of token ids. `config` is the decoder, which must have been read.
Status read_source_part(const JsonFields& outer, const ModelType& type, ModelConfig& config);
// Reads the token that answers of an encoder-decoder begin with: the first of
// decoder_start_token_id and bos_token_id that one of the objects states. Nothing is set where none
// does.
Status read_start(std::initializer_list<const JsonFields*> objects, ModelConfig& config);

// Reads what describes layers: sizes, biases, experts, layer types, RoPE, token ids.
Status read_text_part(const JsonFields& fields, const ModelType& type, ModelConfig& config);
// Reads bos_token_id and eos_token_id.
Status read_token_ids(const JsonFields& fields, ModelConfig& config);
// Returns the object that describes the layers. An absent one has the defaults of its class.
Result<JsonFields> layer_part(const JsonFields& outer, const ConfigPart& part);

// Reads a number, or a list of equal numbers for the layers.
Result<int64_t> required_of_layers(const JsonFields& fields, std::string_view key, IntRange range);

// Whether use_bidirectional_attention asks for attention in both directions.
Result<bool> asks_both_ways(const JsonFields& fields, const ModelType& type);

// Needs num_layers and the activation.
Status read_experts(const JsonFields& fields, const ModelType& type, ModelConfig& config);
// Reads layer types, windows, layers without RoPE, and the sizes of linear layers. Needs
// num_layers.
Status read_layer_types(const JsonFields& fields, const ModelType& type, ModelConfig& config);
// Needs head_dim and the layer types.
Status read_rope(const JsonFields& fields, const ModelType& type, ModelConfig& config);

// Reads the vision tower: the sizes that all towers have, then the keys of its type. Checks that
// the sizes fit together.
Status read_vision(const JsonFields& outer, const JsonFields& vision, const VisionMatch& match,
                   VisionConfig& config);

// Returns the tower that vision_config names, or the one of the type. kUnsupported for another.
Result<VisionTower> tower_of(const JsonFields& vision, const VisionType& type);

// Reads what all towers over images of any shape have: image_token_id, hidden_act, whose default is
// `activation` and which may also be quick_gelu, sizes of patches, RoPE. Needs hidden_size and
// any_shape.
Status read_any_shape(const JsonFields& outer, const JsonFields& vision,
                      std::string_view activation, VisionConfig& config);
// Reads a tower of Pixtral, without what is behind it.
Status read_pixtral(const JsonFields& vision, VisionConfig& config);
// Reads a MobileNet-v5 of timm: `architecture` and `model_args` of the tower, and the number of
// rows of a picture, under this key of the outer config. kUnsupported, by name, for other
// architectures and arguments.
Status read_mobilenet(const JsonFields& outer, std::string_view rows_key, const JsonFields& vision,
                      VisionConfig& config);
// Reads what audio encoders of Gemma 3n and 4 have: hidden_size and the number of heads, under this
// key, and what follows from them. Needs to_rows.
Status read_usm_widths(const JsonFields& fields, std::string_view heads_key, AudioConfig& audio);
// Refuses sizes for which the tables of such an encoder would take more than 64 MiB each.
Status check_usm_tables(const JsonFields& fields, const AudioConfig& audio);
// Reads a side of a square: a number, or a list of two equal ones.
Result<int64_t> read_side(const JsonFields& fields, std::string_view key, IntRange range);
// Reads vision_feature_layer: the states that are features, a number or a list. Negative numbers
// count from the last. Needs num_layers.
Status read_feature_layers(const JsonFields& outer, VisionConfig& config);
// Reads the placeholder of images, which has two names. image_token_id counts where both are there.
Status read_image_token(const JsonFields& outer, VisionConfig& config);
// Reads hidden_size, intermediate_size and out_hidden_size.
Status read_tower_widths(const JsonFields& vision, VisionConfig& config);
// Reads mrope_section. Needs read_rope().
Status read_rope_axes(const JsonFields& text, const RopeSections& otherwise, ModelConfig& config);

// Whether `key` is about training, sampling, notes or the parts of a multimodal model that are
// dropped. Such keys do not change what a text decoder computes, and are not reported as unused.
bool is_inert_key(std::string_view key);

}  // namespace ferry::converters
