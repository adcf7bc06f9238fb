// The projector of Gemma 4: tiles are lists of patches, with positions and RoPE by column and row.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "dialects/gguf/projector/projector.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

constexpr const char* kGemma4Image = "<|image|>";
constexpr int64_t kGemma4Pool = 3, kGemma4ImageSize = 224, kGemma4Tokens = 280;
constexpr double kGemma4Theta = 100.0;
// Text decoders of these widths have images whose rows do not attend to later ones.
constexpr int64_t kCausalWidths[] = {1536, 2560};

constexpr ProjectorName kGemma4Names[] = {
    {"v.patch_embd.weight", "vision.patches.weight", ProjectorForm::kPatchesLast},
    {"v.position_embd.weight", "vision.{p}_positions.weight", ProjectorForm::kPlaces},
    {"v.blk.{i}.ln1.weight", "vision.layers.{i}.attention_norm.weight"},
    {"v.blk.{i}.attn_post_norm.weight", "vision.layers.{i}.post_attention_norm.weight"},
    {"v.blk.{i}.ln2.weight", "vision.layers.{i}.ffn_norm.weight"},
    {"v.blk.{i}.ffn_post_norm.weight", "vision.layers.{i}.post_ffn_norm.weight"},
    {"v.blk.{i}.attn_q_norm.weight", "vision.layers.{i}.attention.q_norm.weight"},
    {"v.blk.{i}.attn_k_norm.weight", "vision.layers.{i}.attention.k_norm.weight"},
    {"v.blk.{i}.attn_q.weight", "vision.layers.{i}.attention.wq.weight"},
    {"v.blk.{i}.attn_q.input_min", "vision.layers.{i}.attention.wq.input_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_q.input_max", "vision.layers.{i}.attention.wq.input_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_q.output_min", "vision.layers.{i}.attention.wq.output_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_q.output_max", "vision.layers.{i}.attention.wq.output_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_k.weight", "vision.layers.{i}.attention.wk.weight"},
    {"v.blk.{i}.attn_k.input_min", "vision.layers.{i}.attention.wk.input_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_k.input_max", "vision.layers.{i}.attention.wk.input_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_k.output_min", "vision.layers.{i}.attention.wk.output_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_k.output_max", "vision.layers.{i}.attention.wk.output_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_v.weight", "vision.layers.{i}.attention.wv.weight"},
    {"v.blk.{i}.attn_v.input_min", "vision.layers.{i}.attention.wv.input_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_v.input_max", "vision.layers.{i}.attention.wv.input_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_v.output_min", "vision.layers.{i}.attention.wv.output_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_v.output_max", "vision.layers.{i}.attention.wv.output_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_out.weight", "vision.layers.{i}.attention.wo.weight"},
    {"v.blk.{i}.attn_out.input_min", "vision.layers.{i}.attention.wo.input_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_out.input_max", "vision.layers.{i}.attention.wo.input_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_out.output_min", "vision.layers.{i}.attention.wo.output_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.attn_out.output_max", "vision.layers.{i}.attention.wo.output_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_gate.weight", "vision.layers.{i}.feed_forward.w1.weight"},
    {"v.blk.{i}.ffn_gate.input_min", "vision.layers.{i}.feed_forward.w1.input_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_gate.input_max", "vision.layers.{i}.feed_forward.w1.input_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_gate.output_min", "vision.layers.{i}.feed_forward.w1.output_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_gate.output_max", "vision.layers.{i}.feed_forward.w1.output_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_up.weight", "vision.layers.{i}.feed_forward.w3.weight"},
    {"v.blk.{i}.ffn_up.input_min", "vision.layers.{i}.feed_forward.w3.input_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_up.input_max", "vision.layers.{i}.feed_forward.w3.input_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_up.output_min", "vision.layers.{i}.feed_forward.w3.output_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_up.output_max", "vision.layers.{i}.feed_forward.w3.output_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_down.weight", "vision.layers.{i}.feed_forward.w2.weight"},
    {"v.blk.{i}.ffn_down.input_min", "vision.layers.{i}.feed_forward.w2.input_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_down.input_max", "vision.layers.{i}.feed_forward.w2.input_max",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_down.output_min", "vision.layers.{i}.feed_forward.w2.output_min",
     ProjectorForm::kScalar},
    {"v.blk.{i}.ffn_down.output_max", "vision.layers.{i}.feed_forward.w2.output_max",
     ProjectorForm::kScalar},
    {"v.std_bias", "vision.features.shift"},
    {"v.std_scale", "vision.features.scale"},
    {"mm.input_projection.weight", "vision.connector.w1.weight"}};

// Placeholders of videos and sounds have the embedding of the padding token too.
Status read_placeholders(ProjectorReading& file) {
  file.outer["image_token_id"] = FERRY_TRY(file.token(kGemma4Image));
  const std::pair<const char*, const char*> others[] = {{"video_token_id", "<|video|>"},
                                                        {"audio_token_id", "<|audio|>"}};
  for (const auto& [key, token] : others) {
    const auto id = file.find_token(token);
    file.outer[key] = id ? json(*id) : json();
  }
  file.special = {
      {"image_token", kGemma4Image}, {"boi_token", "<|image>"}, {"eoi_token", "<image|>"}};
  return {};
}

Status read_gemma4(ProjectorReading& file) {
  FERRY_RETURN_IF_ERROR(read_projector_sizes(file));
  json& vision = file.vision;
  if (const std::string activation = FERRY_TRY(file.activation()); activation == "silu") {
    return file.fields.error(ErrorCode::kUnsupported, "clip.use_silu", "is true: not supported");
  }
  const int64_t pool = FERRY_TRY(file.size_or("projector.scale_factor", kGemma4Pool));
  const int64_t head = FERRY_TRY(file.dimension("v.blk.0.attn_q_norm.weight", 0));
  const int64_t key_rows = FERRY_TRY(file.dimension("v.blk.0.attn_k.weight", 0));
  if (head < 1 || key_rows % head != 0) {
    return bad_input(
        fmt::format("{}: {} rows of keys are no heads of {}", file.source->path(), key_rows, head));
  }
  vision["model_type"] = "gemma4_vision";
  vision["head_dim"] = head;
  vision["num_key_value_heads"] = key_rows / head;
  vision["rms_norm_eps"] = vision["layer_norm_eps"];
  vision["pooling_kernel_size"] = pool;
  vision["position_embedding_size"] = FERRY_TRY(file.dimension("v.position_embd.weight", 1));
  vision["use_clipped_linears"] = file.has("v.blk.0.attn_q.input_min");
  vision["standardize"] = file.has("v.std_bias");
  for (const char* key : {"image_size", "layer_norm_eps"}) vision.erase(key);
  FERRY_RETURN_IF_ERROR(read_placeholders(file));
  const bool causal = std::ranges::count(kCausalWidths, file.hidden_size) > 0;
  const auto pad = file.text->find("tokenizer.ggml.padding_token_id");
  if (pad != file.text->end()) file.text_part["pad_token_id"] = *pad;
  file.text_part["use_bidirectional_attention"] = causal ? json() : json("vision");
  file.processor["processor_class"] = "Gemma4Processor";
  const bool plain = file.pixels["image_mean"] == json({0.0, 0.0, 0.0}) &&
                     file.pixels["image_std"] == json({1.0, 1.0, 1.0});
  file.pixels["image_processor_type"] = "Gemma4ImageProcessor";
  file.pixels["do_normalize"] = !plain;
  file.pixels["patch_size"] = vision["patch_size"];
  file.pixels["pooling_kernel_size"] = pool;
  file.pixels["max_soft_tokens"] = kGemma4Tokens;
  return {};
}

Status write_gemma4(ProjectorWriting& file) {
  const Gemma4TowerConfig& tower = *file.vision().gemma4;
  FERRY_RETURN_IF_ERROR(file.want_activation(Activation::kGeluTanh));
  if (tower.rope_theta != kGemma4Theta) {
    return file.cannot_say("vision_config.rope_parameters.rope_theta", "is not 100");
  }
  const bool causal = std::ranges::count(kCausalWidths, file.config->hidden_size) > 0;
  if (file.vision().two_way_images == causal) {
    return file.cannot_say("text_config.use_bidirectional_attention",
                           causal ? "is vision" : "is not vision");
  }
  file.set("vision.projector_type", std::string("gemma4v"));
  file.set_epsilon(file.vision().norm_eps);
  if (file.vision().shuffle != kGemma4Pool) {
    file.set_number("vision.projector.scale_factor", file.vision().shuffle);
  }
  return {};
}

int64_t gemma4_image_size(const ProjectorWriting&) { return kGemma4ImageSize; }

}  // namespace

const ProjectorKind kGemma4Projector = {.type = "gemma4v",
                                        .model_types = {"gemma4"},
                                        .tables = {kGemma4Names},
                                        .read = read_gemma4,
                                        .write = write_gemma4,
                                        .image_size = gemma4_image_size,
                                        .f32 = {"v.position_embd.weight"}};

}  // namespace ferry::converters
