// component_of() says which part of a model a tensor belongs to, by its name: the names of Hugging
// Face checkpoints, GGUF, Keras, and of our own bundles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry::audit {

struct Component {
  std::string name;  // "attn.q", "vision.mlp.up"; "other" where no rule fits
  std::optional<int64_t> layer = {};
};
Component component_of(std::string_view tensor_name);

// Whether some name can have this component: for those who ask for one.
bool is_component(std::string_view name);

}  // namespace ferry::audit
