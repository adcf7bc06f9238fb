// component_of() derives from a tensor's name the part of the model that the tensor belongs to. The
// names may be those of Hugging Face checkpoints, GGUF, Keras or Ferry's bundles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry::audit {

struct Component {
  std::string name;  // such as "attn.q" or "vision.mlp.up"; "other" if no rule fits
  std::optional<int64_t> layer = {};
};
Component component_of(std::string_view tensor_name);

// Returns whether some leaf can have this component: a result of component_of(), or "program",
// "files" or "padding".
bool is_component(std::string_view name);

}  // namespace ferry::audit
