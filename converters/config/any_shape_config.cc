// read_any_shape() and read_rope_axes() read what towers over images of any shape have, and their
// text decoders. Source: transformers, models/qwen2_vl, qwen2_5_vl and qwen3_vl.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "converters/config/config_parts.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr IntRange kPatchRange = {1, 256};
constexpr IntRange kMergeRange = {1, 16};
constexpr IntRange kFrameRange = {1, 16};

Result<Activation> read_tower_activation(const JsonFields& vision, std::string_view otherwise) {
  const std::string name = FERRY_TRY(vision.text("hidden_act")).value_or(std::string(otherwise));
  if (name == "quick_gelu") return Activation::kQuickGelu;
  return read_activation(vision, "hidden_act", otherwise);
}

// A key that has a second name, which counts where the first is absent.
Result<int64_t> either(const JsonFields& fields, std::string_view name, std::string_view other,
                       IntRange range) {
  const bool by_other = !fields.states(name) && fields.states(other);
  return fields.required(by_other ? other : name, range);
}

// Returns the object with the keys of RoPE: rope_scaling where it is not empty, else
// rope_parameters.
Result<std::optional<JsonFields>> rope_object(const JsonFields& fields) {
  auto scaling = FERRY_TRY(fields.object("rope_scaling"));
  if (scaling && scaling->size() > 0) return scaling;
  return fields.object_or_default("rope_parameters");
}

// The places of patches turn the pairs of dimensions of a head, half of them by row and half by
// column.
Status read_patch_rope(const JsonFields& vision, VisionConfig& config) {
  AnyShapeConfig& shape = *config.any_shape;
  shape.rope_theta = FERRY_TRY(vision.number_or("rope_theta", kThetaRange, 10000.0));
  const auto object = FERRY_TRY(rope_object(vision));
  if (!object) return {};
  shape.rope_theta = FERRY_TRY(object->number_or("rope_theta", kThetaRange, shape.rope_theta));
  const std::string_view key = object->states("rope_type") ? "rope_type" : "type";
  const std::string type = FERRY_TRY(object->text(key)).value_or("default");
  if (type == "default" || type == "axial") return {};
  return object->error(ErrorCode::kUnsupported, key,
                       fmt::format("is {}; axial is supported", quoted(type)));
}

Status check_patch_heads(const JsonFields& vision, std::string_view key,
                         const VisionConfig& config) {
  if (config.hidden_size % config.num_heads != 0 || config.head_dim() % 4 != 0) {
    return vision.bad(key, fmt::format("is {}: heads of {} / {} dimensions are not whole "
                                       "quarters, which RoPE by row and column needs",
                                       config.num_heads, config.hidden_size, config.num_heads));
  }
  const auto head = FERRY_TRY(vision.integer("head_dim", kHeadDimRange));
  if (!head || *head == config.head_dim()) return {};
  return vision.error(ErrorCode::kUnsupported, "head_dim",
                      fmt::format("is {}, where a head has {}", *head, config.head_dim()));
}

// The pairs of a section behind the other: as many as its size, dimension after dimension.
std::vector<int64_t> axes_behind(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> axes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    axes.insert(axes.end(), static_cast<size_t>(sizes[i]), static_cast<int64_t>(i % 3));
  }
  return axes;
}

// Pairs in turn: height has pairs 1, 4, 7, ... below three times its size, width 2, 5, 8, ...
// likewise, and time the others.
std::vector<int64_t> axes_in_turn(const std::vector<int64_t>& sizes, int64_t pairs) {
  std::vector<int64_t> axes(static_cast<size_t>(pairs), 0);
  for (int64_t axis = 1; axis < 3; ++axis) {
    const int64_t end = std::min(pairs, 3 * sizes[static_cast<size_t>(axis)]);
    for (int64_t pair = axis; pair < end; pair += 3) axes[static_cast<size_t>(pair)] = axis;
  }
  return axes;
}

}  // namespace

Status read_tower_widths(const JsonFields& vision, VisionConfig& config) {
  config.hidden_size = FERRY_TRY(vision.required("hidden_size", kSizeRange));
  config.intermediate_size = FERRY_TRY(vision.required("intermediate_size", kSizeRange));
  config.any_shape->output_size = FERRY_TRY(vision.required("out_hidden_size", kSizeRange));
  return {};
}

Status read_any_shape(const JsonFields& outer, const JsonFields& vision,
                      std::string_view activation, VisionConfig& config) {
  AnyShapeConfig& shape = *config.any_shape;
  config.connector = Connector::kMerger;
  config.image_token_id = FERRY_TRY(outer.required("image_token_id", IntRange{0, INT32_MAX}));
  config.video_token_id = FERRY_TRY(outer.integer("video_token_id", IntRange{0, INT32_MAX}));
  config.activation = FERRY_TRY(read_tower_activation(vision, activation));
  config.num_layers = FERRY_TRY(either(vision, "depth", "num_hidden_layers", kLayerRange));
  config.num_heads = FERRY_TRY(either(vision, "num_heads", "num_attention_heads", kHeadRange));
  config.channels = FERRY_TRY(vision.required("in_channels", IntRange{1, 64}));
  if (config.channels != 3) {
    return vision.error(ErrorCode::kUnsupported, "in_channels",
                        fmt::format("is {}: images have 3 channels", config.channels));
  }
  config.patch_size = FERRY_TRY(vision.required("patch_size", kPatchRange));
  shape.temporal_patch_size = FERRY_TRY(vision.required("temporal_patch_size", kFrameRange));
  config.shuffle = FERRY_TRY(vision.required("spatial_merge_size", kMergeRange));
  if (config.shuffle * config.shuffle * config.hidden_size > kSizeRange.max) {
    return vision.bad("spatial_merge_size",
                      fmt::format("is {}: blocks of patches of {} are too wide", config.shuffle,
                                  config.hidden_size));
  }
  config.norm_eps = 1e-6;  // whatever the config says
  FERRY_RETURN_IF_ERROR(check_patch_heads(vision, "num_heads", config));
  return read_patch_rope(vision, config);
}

// The epsilons of norms are those of the reference, whatever the config says. image_size has no
// effect there.
Status read_pixtral(const JsonFields& vision, VisionConfig& config) {
  AnyShapeConfig& shape = config.any_shape.emplace();
  shape.temporal_patch_size = 1;
  shape.gated_mlp = shape.rope_in_turn = true;
  shape.bias = config.qkv_bias = false;
  config.rms_norm = config.pre_norm = true;
  config.norm_eps = 1e-5;
  config.hidden_size = FERRY_TRY(vision.required("hidden_size", kSizeRange));
  config.intermediate_size = FERRY_TRY(vision.required("intermediate_size", kSizeRange));
  config.num_layers = FERRY_TRY(vision.required("num_hidden_layers", kLayerRange));
  config.num_heads = FERRY_TRY(vision.required("num_attention_heads", kHeadRange));
  config.channels = FERRY_TRY(vision.required("num_channels", IntRange{1, 64}));
  if (config.channels != 3) {
    return vision.error(ErrorCode::kUnsupported, "num_channels",
                        fmt::format("is {}: images have 3 channels", config.channels));
  }
  config.patch_size = FERRY_TRY(read_side(vision, "patch_size", kPatchRange));
  config.activation = FERRY_TRY(read_activation(vision, "hidden_act", "gelu"));
  FERRY_RETURN_IF_ERROR(check_patch_heads(vision, "num_attention_heads", config));
  return read_patch_rope(vision, config);
}

Status read_rope_axes(const JsonFields& text, const RopeSections& otherwise, ModelConfig& config) {
  constexpr const char* kSections = "mrope_section";
  if (config.rope.type == RopeConfig::Type::kLongRope) {
    return text.error(ErrorCode::kUnsupported, "rope_scaling",
                      "is longrope in a model whose images have places in three dimensions: not "
                      "supported");
  }
  std::vector<int64_t> sizes = otherwise.sizes;
  const auto object = FERRY_TRY(rope_object(text));
  const JsonFields& stating = object ? *object : text;
  if (object && object->states(kSections)) {
    const auto stated = FERRY_TRY(object->integers(kSections, IntRange{0, 1 << 15}));
    if (!stated) return object->bad(kSections, "is null");
    sizes = *stated;
  }
  if (sizes.size() < 3 || sizes.size() > 64) {
    return stating.bad(kSections, fmt::format("has {} numbers, expected 3", sizes.size()));
  }
  const int64_t pairs = config.rotary_dim() / 2;
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (!otherwise.in_turn && sum != pairs) {
    return stating.bad(kSections, fmt::format("has {} pairs of dimensions, where heads have {} for "
                                              "RoPE",
                                              sum, pairs));
  }
  config.rope.axes = otherwise.in_turn ? axes_in_turn(sizes, pairs) : axes_behind(sizes);
  config.sliding_rope.axes = config.rope.axes;
  return {};
}

}  // namespace ferry::converters
