// Translates the description of a KerasHub backbone (config.json of a preset) into the text of a
// Hugging Face config.json. After that a preset is a checkpoint like any other.
//
// Source: the backbones' constructors and get_config of KerasHub 0.31 and 0.32 and of KerasNLP
// 0.12. Values that they fix in code and do not store (Gemma's tied head, the layer pattern and
// RoPE bases of Gemma 3) are fixed here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::converters {

// Returns the classes of backbones whose options are read: those that the families state
// (KerasArchitecture::classes).
std::vector<std::string_view> keras_classes();

// Returns whether the text is a serialised Keras object ("class_name" and "config") and no Hugging
// Face config ("model_type"). Text that is no JSON object is neither.
bool is_keras_config(const std::string& config_json);

// `own_head` says that the weights have an output matrix beside the embedding. Llama backbones do
// not store whether they are tied, so their weights decide; other classes must agree with their
// weights. Returns kUnsupported for unknown classes, options and keys that would change the output;
// kBadInput for numbers that are missing, of the wrong kind or out of range. `name` begins the
// messages, which name the key in its Keras spelling.
Result<std::string> hugging_face_config_of_keras(const std::string& config_json, bool own_head,
                                                 const std::string& name);

}  // namespace ferry::converters
