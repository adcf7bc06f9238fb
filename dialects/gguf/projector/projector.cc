#include "dialects/gguf/projector/projector.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr IntRange kClipSizes = {1, 1 << 24};

std::string vision_key(std::string_view key) { return fmt::format("clip.vision.{}", key); }

const TensorEntry* clip_entry(const TensorSource& source, std::string_view name) {
  const auto found = std::ranges::find(source.entries(), name, &TensorEntry::name);
  return found == source.entries().end() ? nullptr : &*found;
}

constexpr ProjectorName kNormNames[] = {
    {"v.blk.{i}.ln1.weight", "vision.layers.{i}.attention_norm.weight"},
    {"v.blk.{i}.ln1.bias", "vision.layers.{i}.attention_norm.bias"},
    {"v.blk.{i}.ln2.weight", "vision.layers.{i}.ffn_norm.weight"},
    {"v.blk.{i}.ln2.bias", "vision.layers.{i}.ffn_norm.bias"}};
constexpr ProjectorName kAttentionNames[] = {
    {"v.blk.{i}.attn_q.weight", "vision.layers.{i}.attention.wq.weight"},
    {"v.blk.{i}.attn_q.bias", "vision.layers.{i}.attention.wq.bias"},
    {"v.blk.{i}.attn_k.weight", "vision.layers.{i}.attention.wk.weight"},
    {"v.blk.{i}.attn_k.bias", "vision.layers.{i}.attention.wk.bias"},
    {"v.blk.{i}.attn_v.weight", "vision.layers.{i}.attention.wv.weight"},
    {"v.blk.{i}.attn_v.bias", "vision.layers.{i}.attention.wv.bias"},
    {"v.blk.{i}.attn_out.weight", "vision.layers.{i}.attention.wo.weight"},
    {"v.blk.{i}.attn_out.bias", "vision.layers.{i}.attention.wo.bias"}};
constexpr ProjectorName kPlainMlpNames[] = {
    {"v.blk.{i}.ffn_up.weight", "vision.layers.{i}.feed_forward.w1.weight"},
    {"v.blk.{i}.ffn_up.bias", "vision.layers.{i}.feed_forward.w1.bias"},
    {"v.blk.{i}.ffn_down.weight", "vision.layers.{i}.feed_forward.w2.weight"},
    {"v.blk.{i}.ffn_down.bias", "vision.layers.{i}.feed_forward.w2.bias"}};
constexpr ProjectorName kGatedMlpNames[] = {
    {"v.blk.{i}.ffn_gate.weight", "vision.layers.{i}.feed_forward.w1.weight"},
    {"v.blk.{i}.ffn_gate.bias", "vision.layers.{i}.feed_forward.w1.bias"},
    {"v.blk.{i}.ffn_up.weight", "vision.layers.{i}.feed_forward.w3.weight"},
    {"v.blk.{i}.ffn_up.bias", "vision.layers.{i}.feed_forward.w3.bias"},
    {"v.blk.{i}.ffn_down.weight", "vision.layers.{i}.feed_forward.w2.weight"},
    {"v.blk.{i}.ffn_down.bias", "vision.layers.{i}.feed_forward.w2.bias"}};
constexpr ProjectorName kClipPatches[] = {
    {"v.patch_embd.weight", "vision.patches.weight", ProjectorForm::kPatches},
    {"v.patch_embd.bias", "vision.patches.bias"}};
constexpr ProjectorName kClipFrames[] = {
    {"v.patch_embd.weight", "vision.patches.weight", ProjectorForm::kFrame0},
    {"v.patch_embd.weight.1", "vision.patches.weight", ProjectorForm::kFrame1},
    {"v.patch_embd.bias", "vision.patches.bias"}};
constexpr ProjectorName kClipPositions[] = {{"v.position_embd.weight", "vision.positions.weight"}};
constexpr ProjectorName kClipNorm[] = {{"v.post_ln.weight", "vision.norm.weight"},
                                       {"v.post_ln.bias", "vision.norm.bias"}};

// Kinds with a sign, and those that not every file of the type fits, come before others of it.
constexpr std::array kProjectorKinds = {
    &kIdefics3Projector, &kGemma3Projector,   &kInternVlProjector,     &kLfm2Projector,
    &kQwen2VlProjector,  &kQwen25VlProjector, &kQwen3VlProjector,      &kMistral3Projector,
    &kPixtralProjector,  &kGemma4Projector,   &kSwappedLlavaProjector, &kLlavaProjector};

}  // namespace

const ProjectorNames kLayerNorms = kNormNames, kSplitAttention = kAttentionNames,
                     kPlainMlp = kPlainMlpNames, kGatedMlp = kGatedMlpNames,
                     kPatchNames = kClipPatches, kFrameNames = kClipFrames,
                     kPositionNames = kClipPositions, kFinalNorm = kClipNorm;

std::span<const ProjectorKind* const> projector_kinds() { return kProjectorKinds; }

const ProjectorKind* projector_kind_of(const ModelConfig& config) {
  if (!config.vision) return nullptr;
  for (const ProjectorKind* kind : kProjectorKinds) {
    if (std::ranges::count(kind->model_types, config.model_type) == 0) continue;
    if (kind->writes == nullptr || kind->writes(config)) return kind;
  }
  return nullptr;
}

// -- reading

bool ProjectorReading::has(std::string_view tensor) const {
  return clip_entry(*source, tensor) != nullptr;
}

Result<int64_t> ProjectorReading::size(std::string_view key) const {
  return fields.required(vision_key(key), kClipSizes);
}

Result<int64_t> ProjectorReading::size_or(std::string_view key, int64_t otherwise) const {
  return fields.integer_or(vision_key(key), kClipSizes, otherwise);
}

Result<double> ProjectorReading::epsilon() const {
  const std::string key = vision_key("attention.layer_norm_epsilon");
  const auto value = FERRY_TRY(fields.number(key, kEpsRange));
  if (value) return *value;
  return fields.bad(key, "is missing");
}

Result<int64_t> ProjectorReading::dimension(std::string_view tensor, size_t axis) const {
  const TensorEntry* entry = clip_entry(*source, tensor);
  if (entry != nullptr && axis < entry->shape.size()) return entry->shape[axis];
  return bad_input(fmt::format("{}: {} {}", printable(source->path()),
                               entry == nullptr ? "has no tensor" : "expected more dimensions of",
                               quoted(tensor)));
}

std::optional<int64_t> ProjectorReading::find_token(std::string_view token) const {
  const auto tokens = text->find("tokenizer.ggml.tokens");
  if (tokens == text->end() || !tokens->is_array()) return std::nullopt;
  for (size_t i = 0; i < tokens->size(); ++i) {
    const nlohmann::json& one = (*tokens)[i];
    if (one.is_string() && one.get_ref<const std::string&>() == token) {
      return static_cast<int64_t>(i);
    }
  }
  return std::nullopt;
}

Result<int64_t> ProjectorReading::token(std::string_view text_of_it) const {
  if (const auto id = find_token(text_of_it)) return *id;
  return bad_input(fmt::format("{}: the text decoder has no token {}, the placeholder of an image",
                               printable(source->path()), quoted(text_of_it)));
}

const nlohmann::json* ProjectorReading::of_text(std::string_view key) const {
  const auto architecture = text->find("general.architecture");
  if (architecture == text->end() || !architecture->is_string()) return nullptr;
  const auto found = text->find(fmt::format("{}.{}", architecture->get<std::string>(), key));
  return found == text->end() ? nullptr : &*found;
}

Result<std::string> ProjectorReading::activation() const {
  const bool gelu = FERRY_TRY(fields.flag_or("clip.use_gelu", false));
  const bool silu = FERRY_TRY(fields.flag_or("clip.use_silu", false));
  if (gelu && silu) return fields.bad("clip.use_gelu", "is true beside clip.use_silu");
  return std::string(gelu ? "gelu" : silu ? "silu" : "");
}

Status ProjectorReading::want_activation(std::string_view stated, const char* means) {
  const std::string found = FERRY_TRY(activation());
  if (found == stated) {
    vision["hidden_act"] = means;
    return {};
  }
  return fields.error(ErrorCode::kUnsupported, "clip.use_gelu",
                      fmt::format("and clip.use_silu state {}, where this kind has {}",
                                  found.empty() ? "neither" : found, means));
}

Status check_projector_width(const ProjectorReading& file, std::string_view stated, int64_t width) {
  if (width == file.hidden_size) return {};
  return file.fields.bad(
      stated,
      fmt::format("is {}, and the hidden size of the text decoder is {}: the two files do not "
                  "belong together",
                  width, file.hidden_size));
}

Status read_projector_sizes(ProjectorReading& file) {
  const int64_t width = FERRY_TRY(file.size("projection_dim"));
  FERRY_RETURN_IF_ERROR(check_projector_width(file, "clip.vision.projection_dim", width));
  return read_tower_sizes(file);
}

Status read_tower_sizes(ProjectorReading& file) {
  file.vision["hidden_size"] = FERRY_TRY(file.size("embedding_length"));
  file.vision["intermediate_size"] = FERRY_TRY(file.size("feed_forward_length"));
  file.vision["num_hidden_layers"] = FERRY_TRY(file.size("block_count"));
  file.vision["num_attention_heads"] = FERRY_TRY(file.size("attention.head_count"));
  file.vision["patch_size"] = FERRY_TRY(file.size("patch_size"));
  file.vision["image_size"] = FERRY_TRY(file.size("image_size"));
  file.vision["layer_norm_eps"] = FERRY_TRY(file.epsilon());
  for (const char* key : {"image_mean", "image_std"}) {
    const auto values = FERRY_TRY(file.fields.numbers(vision_key(key), {-1e3, 1e3}));
    if (!values || values->size() != 3) {
      return file.fields.bad(vision_key(key), "is not a list of three numbers");
    }
    file.pixels[key] = *values;
  }
  return {};
}

// -- writing

void ProjectorWriting::set(std::string_view key, GgufValue value) {
  std::string name = fmt::format("clip.{}", key);
  const auto found = std::ranges::find(keys, name, &GgufKeyValue::key);
  if (found == keys.end()) {
    keys.push_back({std::move(name), std::move(value)});
  } else {
    found->value = std::move(value);
  }
}

void ProjectorWriting::set_number(std::string_view key, int64_t value) {
  set(key, static_cast<uint32_t>(value));
}

void ProjectorWriting::set_epsilon(double value) {
  set("vision.attention.layer_norm_epsilon", static_cast<float>(value));
}

Failure ProjectorWriting::cannot_say(std::string_view field, std::string_view why) const {
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: '{}' {}: readers of projectors assume otherwise",
                          printable(config_name), field, why));
}

Status ProjectorWriting::want_activation(Activation activation) const {
  if (vision().activation == activation) return {};
  return cannot_say("vision_config.hidden_act", "is another activation");
}

}  // namespace ferry::converters
