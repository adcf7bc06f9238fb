// Projectors of towers of SigLIP and InternViT, whose pictures become tiles: SmolVLM and Idefics3,
// Gemma 3, InternVL, LFM2-VL.
#include <fmt/format.h>

#include <cmath>

#include "dialects/gguf/projector/projector.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

// Returns the rows of features that a tile becomes.
Result<int64_t> rows_of_tile(const ProjectorReading& file, int64_t factor) {
  const int64_t side = file.vision["image_size"].get<int64_t>();
  const int64_t patch = file.vision["patch_size"].get<int64_t>();
  const int64_t rows = side / patch / factor;
  if (rows >= 1 && rows * patch * factor == side && rows <= 256) return rows * rows;
  return file.fields.bad(
      "clip.vision.image_size",
      fmt::format("is {}, not 1 to 256 blocks of {} x {} pixels", side, factor, patch));
}

// -- SmolVLM, Idefics3

constexpr const char* kLongestEdge = "clip.vision.preproc_image_size";
constexpr ProjectorName kIdefics3Connector[] = {
    {"mm.model.fc.weight", "vision.connector.w1.weight"}};

Status read_idefics3(ProjectorReading& file) {
  FERRY_RETURN_IF_ERROR(read_projector_sizes(file));
  FERRY_RETURN_IF_ERROR(file.want_activation("gelu", "gelu_pytorch_tanh"));
  const int64_t factor = FERRY_TRY(file.size("projector.scale_factor"));
  // Older files do not have the longest edge of a picture.
  const auto longest = FERRY_TRY(file.fields.integer(kLongestEdge, {1, 1 << 16}));
  if (!longest && !file.has_processor) {
    return file.fields.bad(kLongestEdge,
                           "is missing: processor files beside a config.json can state it");
  }
  file.outer["scale_factor"] = factor;
  file.outer["image_token_id"] = FERRY_TRY(file.token("<image>"));
  file.processor["processor_class"] = "SmolVLMProcessor";
  file.processor["image_seq_len"] = FERRY_TRY(rows_of_tile(file, factor));
  file.pixels["image_processor_type"] = "SmolVLMImageProcessor";
  file.pixels["size"] = {{"longest_edge", longest.value_or(1)}};
  file.pixels["max_image_size"] = {{"longest_edge", file.vision["image_size"]}};
  file.pixels["do_image_splitting"] = true;
  return {};
}

Status write_idefics3(ProjectorWriting& file) {
  FERRY_RETURN_IF_ERROR(file.want_activation(Activation::kGeluTanh));
  file.set("projector_type", std::string("idefics3"));
  file.set_epsilon(file.vision().norm_eps);
  file.set_number("vision.projector.scale_factor", file.vision().shuffle);
  file.set("use_gelu", true);
  int64_t longest = file.vision().image_size;
  if (const auto size = file.processor.find("size");
      size != file.processor.end() && size->is_object()) {
    const auto edge = size->find("longest_edge");
    if (edge != size->end() && edge->is_number_unsigned()) longest = edge->get<int64_t>();
  }
  file.set_number("vision.preproc_image_size", longest);
  return {};
}

// -- Gemma 3

constexpr int64_t kGemma3Factor = 4;  // where no key states it
constexpr const char* kGemma3Image = "<image_soft_token>";

constexpr ProjectorName kGemma3Connector[] = {
    {"mm.soft_emb_norm.weight", "vision.connector.norm.weight"},
    {"mm.input_projection.weight", "vision.connector.w1.weight", ProjectorForm::kTransposed}};

Status read_gemma3(ProjectorReading& file) {
  FERRY_RETURN_IF_ERROR(read_projector_sizes(file));
  FERRY_RETURN_IF_ERROR(file.want_activation("gelu", "gelu_pytorch_tanh"));
  const int64_t factor = FERRY_TRY(file.size_or("projector.scale_factor", kGemma3Factor));
  const int64_t rows = FERRY_TRY(rows_of_tile(file, factor));
  file.vision["model_type"] = "siglip_vision_model";
  file.outer["mm_tokens_per_image"] = rows;
  file.outer["image_token_index"] = FERRY_TRY(file.token(kGemma3Image));
  file.processor["processor_class"] = "Gemma3Processor";
  file.processor["image_seq_length"] = rows;
  file.pixels["image_processor_type"] = "Gemma3ImageProcessor";
  file.pixels["size"] = {{"height", file.vision["image_size"]},
                         {"width", file.vision["image_size"]}};
  file.special = {{"image_token", kGemma3Image},
                  {"boi_token", "<start_of_image>"},
                  {"eoi_token", "<end_of_image>"}};
  return {};
}

Status write_gemma3(ProjectorWriting& file) {
  FERRY_RETURN_IF_ERROR(file.want_activation(Activation::kGeluTanh));
  file.set("projector_type", std::string("gemma3"));
  file.set_epsilon(file.vision().norm_eps);
  file.set("use_gelu", true);
  if (file.vision().shuffle != kGemma3Factor) {
    file.set_number("vision.projector.scale_factor", file.vision().shuffle);
  }
  return {};
}

// -- InternVL

constexpr const char* kInternVlImage = "<IMG_CONTEXT>";
// Readers take the one model with these sizes to have RMS norms, and no other.
constexpr int64_t kRmsWidth = 3200, kRmsLayers = 45;
constexpr int64_t kInternVlMostTiles = 12;  // where no key states it

constexpr ProjectorName kInternVlNames[] = {
    {"v.class_embd", "vision.class_token", ProjectorForm::kRow},
    {"v.position_embd.weight", "vision.positions.weight", ProjectorForm::kRow},
    {"v.blk.{i}.attn_q_norm.weight", "vision.layers.{i}.attention.q_norm.weight"},
    {"v.blk.{i}.attn_k_norm.weight", "vision.layers.{i}.attention.k_norm.weight"},
    {"v.blk.{i}.ls1.weight", "vision.layers.{i}.attention.scale"},
    {"v.blk.{i}.ls2.weight", "vision.layers.{i}.feed_forward.scale"},
    {"mm.model.mlp.0.weight", "vision.connector.norm.weight"},
    {"mm.model.mlp.0.bias", "vision.connector.norm.bias"},
    {"mm.model.mlp.1.weight", "vision.connector.w1.weight"},
    {"mm.model.mlp.1.bias", "vision.connector.w1.bias"},
    {"mm.model.mlp.3.weight", "vision.connector.w2.weight"},
    {"mm.model.mlp.3.bias", "vision.connector.w2.bias"}};

Status read_internvl(ProjectorReading& file) {
  FERRY_RETURN_IF_ERROR(read_projector_sizes(file));
  const std::string activation = FERRY_TRY(file.activation());
  FERRY_RETURN_IF_ERROR(file.want_activation(activation == "silu" ? "silu" : "gelu",
                                             activation == "silu" ? "silu" : "gelu"));
  const int64_t factor = FERRY_TRY(file.size("projector.scale_factor"));
  const bool normed = file.has("v.blk.0.attn_q_norm.weight");
  constexpr double kNormedEpsilon = 1e-6;  // of the norms of q and k in the reference
  if (normed && file.vision["layer_norm_eps"] != kNormedEpsilon) {
    return file.fields.error(ErrorCode::kUnsupported, "clip.vision.attention.layer_norm_epsilon",
                             "is not 1e-6, that of the norms of q and k: not supported");
  }
  file.vision["norm_type"] = file.has("v.blk.0.ln1.bias") ? "layer_norm" : "rms_norm";
  file.vision["attention_bias"] = file.has("v.blk.0.attn_q.bias");
  file.vision["use_qk_norm"] = normed;
  file.outer["downsample_ratio"] = 1.0 / static_cast<double>(factor);
  file.outer["image_token_id"] = FERRY_TRY(file.token(kInternVlImage));
  file.processor["processor_class"] = "InternVLProcessor";
  file.processor["image_seq_length"] = FERRY_TRY(rows_of_tile(file, factor));
  file.pixels["image_processor_type"] = "GotOcr2ImageProcessor";
  file.pixels["size"] = {{"height", file.vision["image_size"]},
                         {"width", file.vision["image_size"]}};
  file.pixels["min_patches"] = FERRY_TRY(file.size_or("preproc_min_tiles", 1));
  file.pixels["max_patches"] = FERRY_TRY(file.size_or("preproc_max_tiles", kInternVlMostTiles));
  file.special = {{"context_image_token", kInternVlImage},
                  {"start_image_token", "<img>"},
                  {"end_image_token", "</img>"},
                  {"video_token", "<video>"}};
  return {};
}

// Sets the least or the most tiles of a picture, where config.json of OpenGVLab or the processor
// states them.
void set_tiles(ProjectorWriting& file, const char* outer, const char* processor, const char* key) {
  for (const auto& [object, name] :
       {std::pair(&file.outer, outer), std::pair(&file.processor, processor)}) {
    const auto found = object->find(name);
    if (found == object->end() || !found->is_number_unsigned() || *found == 0U) continue;
    file.set_number(key, found->get<int64_t>());
    return;
  }
}

Status write_internvl(ProjectorWriting& file) {
  const VisionConfig& vision = file.vision();
  const bool rms = vision.hidden_size == kRmsWidth && vision.num_layers == kRmsLayers;
  if (vision.rms_norm != rms) {
    return file.cannot_say("vision_config.norm_type", "is that of another size of model");
  }
  if (vision.connector_activation != Activation::kGelu) {
    return file.cannot_say("projector_hidden_act", "is not gelu");
  }
  const bool silu = vision.activation == Activation::kSilu;
  if (!silu) FERRY_RETURN_IF_ERROR(file.want_activation(Activation::kGelu));
  file.set("projector_type", std::string("internvl"));
  file.set_epsilon(vision.norm_eps);
  file.set(silu ? "use_silu" : "use_gelu", true);
  file.set_number("vision.projector.scale_factor", vision.shuffle);
  set_tiles(file, "min_dynamic_patch", "min_patches", "vision.preproc_min_tiles");
  set_tiles(file, "max_dynamic_patch", "max_patches", "vision.preproc_max_tiles");
  return {};
}

// -- LFM2-VL: tiles are lists of patches, and the table of positions is a square

constexpr int64_t kLfm2ImageSize = 256;  // that files state, whatever the table is
constexpr int64_t kLfm2LeastTokens = 64, kLfm2MostTokens = 256, kLfm2Tile = 512;

constexpr ProjectorName kLfm2Names[] = {
    {"v.patch_embd.weight", "vision.patches.weight", ProjectorForm::kPatchesLast},
    {"v.patch_embd.bias", "vision.patches.bias"},
    {"mm.input_norm.weight", "vision.connector.norm.weight"},
    {"mm.input_norm.bias", "vision.connector.norm.bias"},
    {"mm.1.weight", "vision.connector.w1.weight"},
    {"mm.1.bias", "vision.connector.w1.bias"},
    {"mm.2.weight", "vision.connector.w2.weight"},
    {"mm.2.bias", "vision.connector.w2.bias"}};

Status read_lfm2(ProjectorReading& file) {
  FERRY_RETURN_IF_ERROR(read_projector_sizes(file));
  FERRY_RETURN_IF_ERROR(file.want_activation("gelu", "gelu_pytorch_tanh"));
  const int64_t factor = FERRY_TRY(file.size("projector.scale_factor"));
  file.vision.erase("image_size");
  file.vision["model_type"] = "siglip2_vision_model";
  file.vision["num_patches"] = FERRY_TRY(file.dimension("v.position_embd.weight", 0));
  file.outer["downsample_factor"] = factor;
  file.outer["image_token_id"] = FERRY_TRY(file.token("<image>"));
  file.outer["projector_use_layernorm"] = file.has("mm.input_norm.weight");
  file.outer["projector_bias"] = file.has("mm.1.bias");
  file.outer["projector_hidden_size"] = FERRY_TRY(file.dimension("mm.1.weight", 0));
  file.processor["processor_class"] = "Lfm2VlProcessor";
  file.pixels["image_processor_type"] = "Lfm2VlImageProcessor";
  file.pixels["encoder_patch_size"] = file.vision["patch_size"];
  file.pixels["downsample_factor"] = factor;
  file.pixels["do_image_splitting"] = true;
  file.pixels["min_image_tokens"] = kLfm2LeastTokens;
  file.pixels["max_image_tokens"] = kLfm2MostTokens;
  file.pixels["tile_size"] = kLfm2Tile;
  file.pixels["min_tiles"] = 2;
  file.pixels["max_tiles"] = 10;
  file.pixels["max_pixels_tolerance"] = 2.0;
  file.pixels["use_thumbnail"] = true;
  return {};
}

Status write_lfm2(ProjectorWriting& file) {
  FERRY_RETURN_IF_ERROR(file.want_activation(Activation::kGeluTanh));
  if (file.vision().connector_activation != Activation::kGelu) {
    return file.cannot_say("projector_hidden_act", "is not gelu");
  }
  file.set("projector_type", std::string("lfm2"));
  file.set_epsilon(file.vision().norm_eps);
  file.set_number("vision.projector.scale_factor", file.vision().shuffle);
  file.set("use_gelu", true);
  return {};
}

int64_t lfm2_image_size(const ProjectorWriting&) { return kLfm2ImageSize; }

}  // namespace

const ProjectorKind kIdefics3Projector = {
    .type = "idefics3",
    .model_types = {"smolvlm", "idefics3"},
    .tables = {kPatchNames, kPositionNames, kLayerNorms, kSplitAttention, kPlainMlp, kFinalNorm,
               kIdefics3Connector},
    .read = read_idefics3,
    .write = write_idefics3,
    .f32 = {"v.patch_embd.weight", "v.position_embd.weight"}};

const ProjectorKind kGemma3Projector = {
    .type = "gemma3",
    .model_types = {"gemma3"},
    .tables = {kPatchNames, kPositionNames, kLayerNorms, kSplitAttention, kPlainMlp, kFinalNorm,
               kGemma3Connector},
    .read = read_gemma3,
    .write = write_gemma3,
    .f32 = {"v.patch_embd.weight", "v.position_embd.weight"},
    .f16 = {"mm.input_projection.weight"}};

const ProjectorKind kInternVlProjector = {
    .type = "internvl",
    .model_types = {"internvl", "internvl_chat"},
    .tables = {kPatchNames, kLayerNorms, kSplitAttention, kPlainMlp, kInternVlNames},
    .read = read_internvl,
    .write = write_internvl};

const ProjectorKind kLfm2Projector = {
    .type = "lfm2",
    .model_types = {"lfm2_vl"},
    .tables = {kPositionNames, kLayerNorms, kSplitAttention, kPlainMlp, kFinalNorm, kLfm2Names},
    .read = read_lfm2,
    .write = write_lfm2,
    .image_size = lfm2_image_size};

}  // namespace ferry::converters
