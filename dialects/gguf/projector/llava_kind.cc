// Projectors of LLaVA 1.5 ("mlp"): a tower of CLIP or SigLIP over one square picture, of which any
// layers give the features, and an MLP. llama.cpp's converter does not write them; its script for
// older models does (tools/mtmd/legacy-models), which swaps the names of the two linears of MLPs.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "dialects/gguf/projector/projector.h"

namespace ferry::converters {
namespace {

constexpr const char* kLlavaFeatures = "clip.vision.feature_layer";
constexpr const char* kLlavaImage = "<image>";

constexpr ProjectorName kLlavaNames[] = {
    {"v.class_embd", "vision.class_token", ProjectorForm::kRow},
    {"v.position_embd.weight", "vision.positions.weight", ProjectorForm::kRow},
    {"v.pre_ln.weight", "vision.pre_norm.weight"},
    {"v.pre_ln.bias", "vision.pre_norm.bias"},
    {"mm.0.weight", "vision.connector.w1.weight"},
    {"mm.0.bias", "vision.connector.w1.bias"},
    {"mm.2.weight", "vision.connector.w2.weight"},
    {"mm.2.bias", "vision.connector.w2.bias"}};
constexpr ProjectorName kSwappedMlp[] = {
    {"v.blk.{i}.ffn_down.weight", "vision.layers.{i}.feed_forward.w1.weight"},
    {"v.blk.{i}.ffn_down.bias", "vision.layers.{i}.feed_forward.w1.bias"},
    {"v.blk.{i}.ffn_up.weight", "vision.layers.{i}.feed_forward.w2.weight"},
    {"v.blk.{i}.ffn_up.bias", "vision.layers.{i}.feed_forward.w2.bias"}};

// Readers take the names to be swapped where "down" takes rows of the tower's width. So they do
// where both linears are square.
bool reads_swapped(const ProjectorReading& file) {
  const auto width = file.size("embedding_length");
  const auto taken = file.dimension("v.blk.0.ffn_down.weight", 1);
  return width && taken && *width == *taken;
}

bool is_square_tower(const ModelConfig& config) { return !config.vision->any_shape; }
bool writes_swapped(const ModelConfig& config) {
  return is_square_tower(config) && config.vision->intermediate_size == config.vision->hidden_size;
}

// kUnsupported for tensors of models that have the type too.
Status check_llava_tensors(const ProjectorReading& file) {
  const std::pair<const char*, const char*> others[] = {
      {"mm.3.weight", "an MLP with norms"},
      {"model.image_newline", "tiles of a picture (LLaVA-NeXT)"},
      {"v.post_ln.weight", "a norm behind the features"}};
  for (const auto& [tensor, means] : others) {
    if (!file.has(tensor)) continue;
    return file.fields.error(ErrorCode::kUnsupported, "clip.projector_type",
                             fmt::format("is mlp with {}, {}: not supported", tensor, means));
  }
  return {};
}

// Reads the states that are features, 0 for the input of the first layer. Where no key states them
// llama.cpp takes those before the last layer of the file.
Status read_llava_features(ProjectorReading& file) {
  const int64_t layers = file.vision["num_hidden_layers"].get<int64_t>();
  const auto stated = FERRY_TRY(file.fields.integers(kLlavaFeatures, {0, layers}));
  file.layers = layers;
  file.states_features = stated.has_value();
  const std::vector<int64_t> features = stated.value_or(std::vector<int64_t>{layers - 1});
  if (!stated) file.vision["num_hidden_layers"] = layers - 1;
  if (features.empty() || features.back() < 1 ||
      std::ranges::adjacent_find(features, std::greater_equal<>()) != features.end()) {
    return file.fields.bad(
        stated ? kLlavaFeatures : "clip.vision.block_count",
        "does not state layers in ascending order, of which the last is above 0");
  }
  file.outer["vision_feature_layer"] = features;
  return {};
}

Status read_llava(ProjectorReading& file) {
  FERRY_RETURN_IF_ERROR(check_llava_tensors(file));
  // The width in the keys is that of another matrix of CLIP.
  FERRY_TRY(file.size("projection_dim"));
  const int64_t width = FERRY_TRY(file.dimension("mm.2.weight", 0));
  FERRY_TRY(file.dimension("mm.0.bias", 0));
  FERRY_RETURN_IF_ERROR(check_projector_width(file, "mm.2.weight", width));
  FERRY_RETURN_IF_ERROR(read_tower_sizes(file));
  FERRY_RETURN_IF_ERROR(read_llava_features(file));
  const bool clip = file.has("v.class_embd");
  const std::string activation = FERRY_TRY(file.activation());
  if (activation == "silu") return file.want_activation("gelu", "gelu");
  file.vision["hidden_act"] = activation.empty() ? "quick_gelu"
                              : clip             ? "gelu"
                                                 : "gelu_pytorch_tanh";
  file.vision["model_type"] = clip ? "clip_vision_model" : "siglip_vision_model";
  file.outer["image_token_index"] = FERRY_TRY(file.token(kLlavaImage));
  file.outer["vision_feature_select_strategy"] = clip ? "default" : "full";
  file.outer["multimodal_projector_bias"] = true;
  file.outer["projector_hidden_act"] = "gelu";
  file.processor = {{"processor_class", "LlavaProcessor"},
                    {"patch_size", file.vision["patch_size"]},
                    {"vision_feature_select_strategy", clip ? "default" : "full"},
                    {"num_additional_image_tokens", clip ? 1 : 0},
                    {"image_token", kLlavaImage}};
  const nlohmann::json side = file.vision["image_size"];
  file.pixels["image_processor_type"] = "CLIPImageProcessor";
  file.pixels["size"] = {{"shortest_edge", side}};
  file.pixels["crop_size"] = {{"height", side}, {"width", side}};
  file.pixels["do_center_crop"] = true;
  file.special["image_token"] = kLlavaImage;
  return {};
}

Status check_llava(const ProjectorWriting& file) {
  const VisionConfig& vision = file.vision();
  if (vision.drops_first != vision.class_token) {
    return file.cannot_say("vision_feature_select_strategy",
                           vision.class_token ? "keeps the class token" : "drops the first patch");
  }
  if (!vision.connector_bias) return file.cannot_say("multimodal_projector_bias", "is false");
  if (vision.connector_activation != Activation::kGelu) {
    return file.cannot_say("projector_hidden_act", "is not gelu");
  }
  const std::vector<int64_t>& features = vision.feature_layers;
  if (std::ranges::adjacent_find(features, std::greater_equal<>()) != features.end()) {
    return file.cannot_say("vision_feature_layer", "is not in ascending order");
  }
  return {};
}

Status write_llava(ProjectorWriting& file) {
  FERRY_RETURN_IF_ERROR(check_llava(file));
  const VisionConfig& vision = file.vision();
  const bool quick = vision.activation == Activation::kQuickGelu;
  if (!quick) {
    FERRY_RETURN_IF_ERROR(
        file.want_activation(vision.class_token ? Activation::kGelu : Activation::kGeluTanh));
  }
  std::vector<int32_t> features;
  for (const int64_t layer : vision.feature_layers) features.push_back(static_cast<int32_t>(layer));
  file.set_number("vision.block_count", vision.depth());
  file.set("projector_type", std::string("mlp"));
  file.set_epsilon(vision.norm_eps);
  file.set("vision.feature_layer", std::move(features));
  file.set("use_gelu", !quick);
  return {};
}

}  // namespace

const ProjectorKind kSwappedLlavaProjector = {
    .type = "mlp",
    .fits = reads_swapped,
    .model_types = {"llava"},
    .tables = {kPatchNames, kLayerNorms, kSplitAttention, kSwappedMlp, kLlavaNames},
    .read = read_llava,
    .write = write_llava,
    .writes = writes_swapped,
    .layers_behind = true};

const ProjectorKind kLlavaProjector = {
    .type = "mlp",
    .model_types = {"llava"},
    .tables = {kPatchNames, kLayerNorms, kSplitAttention, kPlainMlp, kLlavaNames},
    .read = read_llava,
    .write = write_llava,
    .writes = is_square_tower,
    .layers_behind = true};

}  // namespace ferry::converters
