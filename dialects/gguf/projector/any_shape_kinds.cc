// Projectors of towers over pictures of any shape: Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5,
// Pixtral and Mistral Small 3.1.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dialects/gguf/projector/projector.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

// -- Qwen-VL

constexpr const char* kQwenImage = "<|image_pad|>";
constexpr int64_t kQwenMerge = 2;                                // where no key states it
constexpr int64_t kQwenLeastTokens = 8, kQwenMostTokens = 4096;  // of a picture, in llama.cpp
constexpr int64_t kQwenWindow = 112;                             // likewise: pixels of a window
constexpr int64_t kQwen2ImageSize = 560;  // that files state, whatever pictures there are
constexpr int64_t kTwoFrames = 2;
constexpr double kQwenEpsilon = 1e-6;  // of the reference, for all norms of the tower

constexpr ProjectorName kQwen2Connector[] = {{"v.post_ln.weight", "vision.connector.norm.weight"},
                                             {"v.post_ln.bias", "vision.connector.norm.bias"},
                                             {"mm.0.weight", "vision.connector.w1.weight"},
                                             {"mm.0.bias", "vision.connector.w1.bias"},
                                             {"mm.2.weight", "vision.connector.w2.weight"},
                                             {"mm.2.bias", "vision.connector.w2.bias"}};

constexpr ProjectorName kQwen3Names[] = {
    {"v.blk.{i}.attn_qkv.weight", "vision.layers.{i}.attention.{p}.weight", ProjectorForm::kQkv},
    {"v.blk.{i}.attn_qkv.bias", "vision.layers.{i}.attention.{p}.bias", ProjectorForm::kQkv},
    {"v.blk.{i}.attn_out.weight", "vision.layers.{i}.attention.wo.weight"},
    {"v.blk.{i}.attn_out.bias", "vision.layers.{i}.attention.wo.bias"},
    {"v.deepstack.{i}.norm.weight", "vision.deepstack.{i}.norm.weight"},
    {"v.deepstack.{i}.norm.bias", "vision.deepstack.{i}.norm.bias"},
    {"v.deepstack.{i}.fc1.weight", "vision.deepstack.{i}.w1.weight"},
    {"v.deepstack.{i}.fc1.bias", "vision.deepstack.{i}.w1.bias"},
    {"v.deepstack.{i}.fc2.weight", "vision.deepstack.{i}.w2.weight"},
    {"v.deepstack.{i}.fc2.bias", "vision.deepstack.{i}.w2.bias"}};

// Reads what the three kinds have in common.
Status read_qwen(ProjectorReading& file, const char* processor) {
  FERRY_RETURN_IF_ERROR(read_projector_sizes(file));
  const int64_t merge = FERRY_TRY(file.size_or("spatial_merge_size", kQwenMerge));
  const int64_t patch = file.vision["patch_size"].get<int64_t>();
  if (merge > 16 || patch > 256) {
    return file.fields.bad("clip.vision.patch_size",
                           fmt::format("is {}, with blocks of {} patches", patch, merge));
  }
  file.vision["depth"] = file.vision["num_hidden_layers"];
  file.vision["num_heads"] = file.vision["num_attention_heads"];
  if (file.vision["layer_norm_eps"] != kQwenEpsilon) {
    return file.fields.error(ErrorCode::kUnsupported, "clip.vision.attention.layer_norm_epsilon",
                             "is not 1e-6, that of the reference: not supported");
  }
  for (const char* key :
       {"num_hidden_layers", "num_attention_heads", "image_size", "layer_norm_eps"}) {
    file.vision.erase(key);
  }
  file.vision["spatial_merge_size"] = merge;
  file.vision["temporal_patch_size"] = kTwoFrames;
  file.vision["out_hidden_size"] = file.hidden_size;
  file.outer["image_token_id"] = FERRY_TRY(file.token(kQwenImage));
  file.processor["processor_class"] = processor;
  file.pixels["image_processor_type"] = "Qwen2VLImageProcessor";
  file.pixels["patch_size"] = patch;
  file.pixels["temporal_patch_size"] = kTwoFrames;
  file.pixels["merge_size"] = merge;
  const int64_t token = patch * patch * merge * merge;
  file.pixels["size"] = {{"shortest_edge", kQwenLeastTokens * token},
                         {"longest_edge", kQwenMostTokens * token}};
  return {};
}

Status read_qwen2(ProjectorReading& file) {
  FERRY_RETURN_IF_ERROR(read_qwen(file, "Qwen2VLProcessor"));
  FERRY_RETURN_IF_ERROR(file.want_activation("", "quick_gelu"));
  // The key of the width of MLPs has another number.
  const int64_t width = file.vision["hidden_size"].get<int64_t>();
  const int64_t inner = FERRY_TRY(file.dimension("v.blk.0.ffn_up.weight", 0));
  if (inner % width != 0) {
    return file.fields.bad(
        "clip.vision.embedding_length",
        fmt::format("is {}, which does not divide {}, the width of an MLP", width, inner));
  }
  file.vision["embed_dim"] = width;
  file.vision["mlp_ratio"] = inner / width;
  file.vision["hidden_size"] = file.hidden_size;
  for (const char* key : {"intermediate_size", "out_hidden_size"}) file.vision.erase(key);
  return {};
}

Status read_qwen2_5(ProjectorReading& file) {
  FERRY_RETURN_IF_ERROR(read_qwen(file, "Qwen2_5_VLProcessor"));
  FERRY_RETURN_IF_ERROR(file.want_activation("silu", "silu"));
  const int64_t every = FERRY_TRY(file.size("n_wa_pattern"));
  std::vector<int64_t> full;
  const int64_t depth = file.vision["depth"].get<int64_t>();
  for (int64_t layer = every - 1; layer < std::min<int64_t>(depth, 1 << 16); layer += every) {
    full.push_back(layer);
  }
  file.vision["fullatt_block_indexes"] = full;
  file.vision["window_size"] = kQwenWindow;
  return {};
}

// Returns the layers that the key marks.
Result<std::vector<int64_t>> marked_layers(const ProjectorReading& file) {
  constexpr const char* kKey = "clip.vision.is_deepstack_layers";
  std::vector<int64_t> layers;
  const json* marks = file.fields.find(kKey);
  if (marks == nullptr) return layers;
  const bool fits = marks->is_array() && file.vision["depth"] == marks->size();
  for (size_t i = 0; fits && i < marks->size(); ++i) {
    if (!(*marks)[i].is_boolean()) return file.fields.bad(kKey, "is not a list of flags");
    if ((*marks)[i].get<bool>()) layers.push_back(static_cast<int64_t>(i));
  }
  if (fits) return layers;
  return file.fields.bad(kKey, "is not a list of a flag for each layer");
}

Status read_qwen3(ProjectorReading& file) {
  FERRY_RETURN_IF_ERROR(read_qwen(file, "Qwen3VLProcessor"));
  FERRY_RETURN_IF_ERROR(file.want_activation("gelu", "gelu_pytorch_tanh"));
  file.vision["num_position_embeddings"] = FERRY_TRY(file.dimension("v.position_embd.weight", 0));
  const std::vector<int64_t> deep = FERRY_TRY(marked_layers(file));
  const json* in_text = file.of_text("n_deepstack_layers");
  if ((in_text == nullptr ? json(0) : *in_text) != deep.size()) {
    return file.fields.bad("clip.vision.is_deepstack_layers",
                           fmt::format("marks {} layers, and the text decoder takes rows of other "
                                       "layers",
                                       deep.size()));
  }
  file.vision["deepstack_visual_indexes"] = deep;
  return {};
}

Status want_two_frames(const ProjectorWriting& file) {
  if (file.vision().any_shape->temporal_patch_size == kTwoFrames) return {};
  return file.cannot_say("vision_config.temporal_patch_size", "is not 2");
}

Status want_patch_rope(const ProjectorWriting& file, double theta) {
  if (file.vision().any_shape->rope_theta == theta) return {};
  return file.cannot_say("vision_config.rope_theta", fmt::format("is not {}", theta));
}

Status want_qwen(const ProjectorWriting& file) {
  FERRY_RETURN_IF_ERROR(want_two_frames(file));
  if (file.vision().shuffle != kQwenMerge) {  // whatever a key says
    return file.cannot_say("vision_config.spatial_merge_size", "is not 2");
  }
  return want_patch_rope(file, 10000.0);
}

Status write_qwen2(ProjectorWriting& file) {
  FERRY_RETURN_IF_ERROR(want_qwen(file));
  FERRY_RETURN_IF_ERROR(file.want_activation(Activation::kQuickGelu));
  file.set("projector_type", std::string("qwen2vl_merger"));
  file.set_epsilon(file.vision().norm_eps);
  return {};
}

Status write_qwen2_5(ProjectorWriting& file) {
  const VisionConfig& vision = file.vision();
  FERRY_RETURN_IF_ERROR(want_qwen(file));
  FERRY_RETURN_IF_ERROR(file.want_activation(Activation::kSilu));
  const std::vector<int64_t>& full = vision.any_shape->full;
  const int64_t every = full.empty() ? 0 : full.front() + 1;
  std::vector<int64_t> regular;
  for (int64_t layer = every - 1; every > 0 && layer < vision.num_layers; layer += every) {
    regular.push_back(layer);
  }
  if (full.empty() || full != regular) {
    return file.cannot_say("vision_config.fullatt_block_indexes", "is not every n-th layer");
  }
  if (vision.any_shape->window != kQwenWindow / vision.patch_size / vision.shuffle) {
    return file.cannot_say("vision_config.window_size",
                           fmt::format("is not that of {} pixels", kQwenWindow));
  }
  file.set("projector_type", std::string("qwen2.5vl_merger"));
  file.set("use_silu", true);
  file.set_number("vision.n_wa_pattern", every);
  file.set_epsilon(vision.norm_eps);
  return {};
}

Status write_qwen3(ProjectorWriting& file) {
  const VisionConfig& vision = file.vision();
  FERRY_RETURN_IF_ERROR(want_qwen(file));
  FERRY_RETURN_IF_ERROR(file.want_activation(Activation::kGeluTanh));
  file.set("projector_type", std::string("qwen3vl_merger"));
  file.set("use_gelu", true);
  file.set_number("vision.spatial_merge_size", vision.shuffle);
  file.set_epsilon(vision.norm_eps);
  std::vector<bool> deep(static_cast<size_t>(vision.num_layers), false);
  for (const int64_t layer : vision.any_shape->deepstack) deep[static_cast<size_t>(layer)] = true;
  file.set("vision.is_deepstack_layers", deep);
  return {};
}

int64_t qwen2_image_size(const ProjectorWriting&) { return kQwen2ImageSize; }
// Files have the width of the features in the place of that of MLPs.
int64_t qwen2_feed_forward(const ProjectorWriting& file) {
  return file.vision().any_shape->output_size;
}
// The side of a picture whose patches have the whole table of positions.
int64_t qwen3_image_size(const ProjectorWriting& file) {
  return file.vision().any_shape->table * file.vision().patch_size;
}

// -- Pixtral, Mistral Small 3.1

constexpr double kPixtralEpsilon = 1e-5;  // of the reference, for all norms of the tower
constexpr int64_t kPixtralImageSize = 1024;
constexpr const char* kMergerName = "mm.patch_merger.weight";
constexpr const char* kBreakName = "v.token_embd.img_break";

constexpr ProjectorName kPixtralNames[] = {
    {"v.pre_ln.weight", "vision.pre_norm.weight"},
    {"v.blk.{i}.attn_q.weight", "vision.layers.{i}.attention.wq.weight", ProjectorForm::kTurned},
    {"v.blk.{i}.attn_k.weight", "vision.layers.{i}.attention.wk.weight", ProjectorForm::kTurned},
    {"v.blk.{i}.attn_v.weight", "vision.layers.{i}.attention.wv.weight"},
    {"v.blk.{i}.attn_out.weight", "vision.layers.{i}.attention.wo.weight"},
    {"mm.1.weight", "vision.connector.w1.weight"},
    {"mm.1.bias", "vision.connector.w1.bias"},
    {"mm.2.weight", "vision.connector.w2.weight"},
    {"mm.2.bias", "vision.connector.w2.bias"}};
constexpr ProjectorName kMergerNames[] = {{"mm.input_norm.weight", "vision.connector.norm.weight"},
                                          {kMergerName, "vision.connector.merger.weight"}};

Status read_pixtral_file(ProjectorReading& file, int64_t merge) {
  FERRY_RETURN_IF_ERROR(read_projector_sizes(file));
  const std::string activation = FERRY_TRY(file.activation());
  FERRY_RETURN_IF_ERROR(file.want_activation(activation == "silu" ? "silu" : "gelu",
                                             activation == "silu" ? "silu" : "gelu"));
  if (file.vision["layer_norm_eps"] != kPixtralEpsilon) {
    return file.fields.error(ErrorCode::kUnsupported, "clip.vision.attention.layer_norm_epsilon",
                             "is not 1e-5, that of the reference: not supported");
  }
  const json side = file.vision["image_size"];
  file.vision.erase("layer_norm_eps");
  file.vision["model_type"] = "pixtral";
  file.outer["image_token_index"] = FERRY_TRY(file.token("[IMG]"));
  file.outer["vision_feature_layer"] = -1;
  file.outer["multimodal_projector_bias"] = file.has("mm.1.bias");
  file.outer["projector_hidden_act"] = "gelu";
  file.processor = {
      {"processor_class", "PixtralProcessor"}, {"patch_size", file.vision["patch_size"]},
      {"spatial_merge_size", merge},           {"image_token", "[IMG]"},
      {"image_break_token", "[IMG_BREAK]"},    {"image_end_token", "[IMG_END]"}};
  file.pixels["image_processor_type"] = "PixtralImageProcessor";
  file.pixels["size"] = {{"longest_edge", side}};
  file.pixels["patch_size"] = file.vision["patch_size"];
  return {};
}

Status read_pixtral_alone(ProjectorReading& file) {
  const int64_t merge = FERRY_TRY(file.size_or("spatial_merge_size", 1));
  if (merge != 1) {
    return file.fields.error(ErrorCode::kUnsupported, "clip.vision.spatial_merge_size",
                             fmt::format("is {} without {}", merge, kMergerName));
  }
  file.outer["vision_feature_select_strategy"] = "full";
  return read_pixtral_file(file, merge);
}

Status read_mistral3(ProjectorReading& file) {
  const int64_t merge = FERRY_TRY(file.size("spatial_merge_size"));
  file.outer["spatial_merge_size"] = merge;
  file.text_part["sliding_window"] = nullptr;  // of which text files say nothing
  return read_pixtral_file(file, merge);
}

Status write_pixtral_file(ProjectorWriting& file) {
  const VisionConfig& vision = file.vision();
  FERRY_RETURN_IF_ERROR(want_patch_rope(file, 10000.0));
  if (vision.depth() != vision.num_layers) {
    return file.cannot_say("vision_feature_layer", "is not the last layer");
  }
  if (vision.feature_layers.size() > 1) {
    return file.cannot_say("vision_feature_layer", "has several layers");
  }
  if (vision.connector_activation != Activation::kGelu) {
    return file.cannot_say("projector_hidden_act", "is not gelu");
  }
  const bool silu = vision.activation == Activation::kSilu;
  if (!silu) FERRY_RETURN_IF_ERROR(file.want_activation(Activation::kGelu));
  file.set("projector_type", std::string("pixtral"));
  file.set_epsilon(vision.norm_eps);
  file.set(silu ? "use_silu" : "use_gelu", true);
  if (vision.connector == Connector::kLinearMerger) {
    if (file.config->rms_norm_eps != kPixtralEpsilon) {
      return file.cannot_say("text_config.rms_norm_eps",
                             "is not 1e-5, which the connector has too");
    }
    file.set_number("vision.spatial_merge_size", vision.shuffle);
  }
  return {};
}

int64_t pixtral_image_size(const ProjectorWriting& file) {
  const auto stated = file.tower.find("image_size");
  const bool has = stated != file.tower.end() && stated->is_number_unsigned();
  return has ? stated->get<int64_t>() : kPixtralImageSize;
}

bool has_pixtral_tower(const ModelConfig& config) { return config.vision->any_shape.has_value(); }

}  // namespace

const ProjectorKind kQwen2VlProjector = {
    .type = "qwen2vl_merger",
    .model_types = {"qwen2_vl"},
    .tables = {kFrameNames, kLayerNorms, kSplitAttention, kPlainMlp, kQwen2Connector},
    .read = read_qwen2,
    .write = write_qwen2,
    .image_size = qwen2_image_size,
    .feed_forward = qwen2_feed_forward};

const ProjectorKind kQwen25VlProjector = {
    .type = "qwen2.5vl_merger",
    .model_types = {"qwen2_5_vl"},
    .tables = {kFrameNames, kLayerNorms, kSplitAttention, kGatedMlp, kQwen2Connector},
    .read = read_qwen2_5,
    .write = write_qwen2_5,
    .image_size = qwen2_image_size};

const ProjectorKind kQwen3VlProjector = {
    .type = "qwen3vl_merger",
    .model_types = {"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"},
    .tables = {kFrameNames, kPositionNames, kLayerNorms, kPlainMlp, kQwen2Connector, kQwen3Names},
    .read = read_qwen3,
    .write = write_qwen3,
    .image_size = qwen3_image_size};

const ProjectorKind kMistral3Projector = {
    .type = "pixtral",
    .sign = kMergerName,
    .model_types = {"mistral3"},
    .tables = {kPatchNames, kLayerNorms, kGatedMlp, kPixtralNames, kMergerNames},
    .read = read_mistral3,
    .write = write_pixtral_file,
    .image_size = pixtral_image_size,
    .copied_token = "[IMG_BREAK]",
    .copied_row = kBreakName};

const ProjectorKind kPixtralProjector = {
    .type = "pixtral",
    .model_types = {"llava"},
    .tables = {kPatchNames, kLayerNorms, kGatedMlp, kPixtralNames},
    .read = read_pixtral_alone,
    .write = write_pixtral_file,
    .writes = has_pixtral_tower,
    .image_size = pixtral_image_size,
    .copied_token = "[IMG_BREAK]",
    .copied_row = kBreakName};

}  // namespace ferry::converters
