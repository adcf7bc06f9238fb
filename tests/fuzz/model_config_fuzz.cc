// Input: the text of config.json. Text after a NUL byte is generation_config.json.

#include "converters/config/model_config.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "converters/blocks/rope.h"
#include "converters/family.h"
#include "tests/fuzz/require.h"

namespace ferry::model_config_fuzz {
namespace {

using ferry::converters::ModelConfig;
using ferry::converters::RopeConfig;

void require_attention(const ModelConfig& config) {
  ferry::require(config.num_heads % config.num_kv_heads == 0);
  ferry::require(config.rotary_dim() >= 2 && config.rotary_dim() % 2 == 0);
  ferry::require(config.rotary_dim() <= config.head_dim);
  for (const RopeConfig& rope : {config.rope, config.sliding_rope}) {
    const std::vector<float> rates =
        ferry::converters::rope_inverse_frequencies(rope, config.rotary_dim());
    ferry::require(std::ssize(rates) == config.rotary_dim() / 2);
    for (const float rate : rates) ferry::require(std::isfinite(rate));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t nul = text.find('\0');
  const std::string generation = nul == std::string::npos ? "" : text.substr(nul + 1);
  const std::string stated = text.substr(0, nul);
  const auto images =
      converters::parse_model_config(stated, generation, "f", nullptr, converters::all_families(),
                                     {.images = true, .sounds = true});
  if (!images) require_good_message(images.error());
  if (images && images->vision && images->vision->any_shape) {
    require(images->vision->head_dim() % 4 == 0 && images->vision->patch_size >= 1);
    require(std::ssize(images->rope.axes) == images->rotary_dim() / 2);
  }
  const auto config = converters::parse_model_config(stated, generation, "f");
  if (!config) {
    require_good_message(config.error());
    return 0;
  }
  // The families rely on these properties.
  require(config->num_layers >= 1 && std::ssize(config->layer_types) == config->num_layers);
  require(std::ssize(config->rope_layers) == config->num_layers);
  bool attends = false;
  for (const converters::LayerType type : config->layer_types) {
    if (type == converters::LayerType::kLinearAttention) require(config->linear.groups() >= 1);
    if (type == converters::LayerType::kSlidingAttention)
      require(config->sliding_window.has_value());
    attends |= type == converters::LayerType::kFullAttention ||
               type == converters::LayerType::kSlidingAttention;
  }
  if (attends) require_attention(*config);
  return 0;
}

}  // namespace ferry::model_config_fuzz
