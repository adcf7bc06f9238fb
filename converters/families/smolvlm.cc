// SmolVLM and Idefics3: a SigLIP tower over square images, a pixel shuffle, one linear, and a Llama
// decoder. Source: transformers, models/idefics3/modeling_idefics3.py and
// models/smolvlm/modeling_smolvlm.py.

#include "converters/config/json_fields.h"
#include "converters/families/vision_families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"

namespace ferry::converters::families::smolvlm {
namespace {

constexpr const char* kVisionDefaults =
    R"({"hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 16, "num_channels": 3, "image_size": 224, "patch_size": 32,
        "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6})";
constexpr const char* kDefaults = R"({"image_token_id": 128257, "scale_factor": 2})";

Status read(const JsonFields& outer, const JsonFields&, VisionConfig& config) {
  config.shuffle = FERRY_TRY(outer.required("scale_factor", IntRange{1, 64}));
  config.image_token_id = FERRY_TRY(outer.required("image_token_id", IntRange{0, INT32_MAX}));
  config.final_norm = true;
  config.connector_bias = false;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat(
      {siglip_rules("model.vision_model.", *config.vision),
       tower_renames("model.connector.", 0,
                     {{"modality_projection.proj.weight", "vision.connector.w1.weight"}})});
}

}  // namespace

const VisionFamily kFamily = {.types = {{.name = "smolvlm",
                                         .text_type = "llama",
                                         .vision_defaults = kVisionDefaults,
                                         .defaults = kDefaults,
                                         .read = read},
                                        {.name = "idefics3",
                                         .text_type = "llama",
                                         .vision_defaults = kVisionDefaults,
                                         .defaults = kDefaults,
                                         .read = read}},
                              .text_types = {"llama"},
                              .text_prefixes = {"model.text_model."},
                              .heads = {"lm_head.weight"},
                              .rules = rules};

}  // namespace ferry::converters::families::smolvlm
