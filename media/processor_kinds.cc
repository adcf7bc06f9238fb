#include "media/processor_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/json.h"
#include "core/text.h"

namespace ferry::media {
namespace {

using nlohmann::json;

Failure unsupported(const json& value) {
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return fail(ErrorCode::kUnsupported, "the value " + quoted(text, 60) + " is not supported");
}

Status no_effect(const json&, Settings&) { return {}; }

Status always_true(const json& value, Settings&) {
  if (value != true) return unsupported(value);
  return {};
}

Status always_false(const json& value, Settings&) {
  if (value != false) return unsupported(value);
  return {};
}

Status always_null(const json& value, Settings&) {
  if (!value.is_null()) return unsupported(value);
  return {};
}

Status set_bool(const json& value, bool& out) {
  if (!value.is_boolean()) return bad_input("not true or false");
  out = value.get<bool>();
  return {};
}

Status set_int(const json& value, int most, int& out) {
  if (!value.is_number_unsigned() || value == 0U || value.get<uint64_t>() > uint64_t(most)) {
    return bad_input(fmt::format("not a whole number from 1 to {}", most));
  }
  out = value.get<int>();
  return {};
}

Status set_three(const json& value, bool positive, std::array<double, 3>& out) {
  const auto good = [&](const json& v) { return v.is_number() && (!positive || v > 0); };
  if (!value.is_array() || value.size() != 3 || !std::all_of(value.begin(), value.end(), good)) {
    return bad_input(positive ? "not three positive numbers" : "not three numbers");
  }
  for (size_t i = 0; i < 3; ++i) out[i] = value[i].get<double>();
  return {};
}

Status mean(const json& value, Settings& s) { return set_three(value, false, s.mean); }
Status deviation(const json& value, Settings& s) { return set_three(value, true, s.std); }

Status rescale(const json& value, Settings& s) {
  const double factor = value.is_number() ? value.get<double>() : 0;
  if (!(factor > 1e-6 && factor <= 1)) return bad_input("not a number from 0.000001 to 1");
  s.rescale = factor;
  return {};
}

Status resample(const json& value, Settings& s) {
  // The numbers of Pillow's Resampling.
  constexpr std::pair<int, Filter> kFilters[] = {
      {1, Filter::kLanczos}, {2, Filter::kBilinear}, {3, Filter::kBicubic}};
  for (const auto& [number, filter] : kFilters) {
    if (value != number) continue;
    s.filter = filter;
    return {};
  }
  return unsupported(value);
}

bool has_members(const json& value, std::initializer_list<const char*> names) {
  return value.is_object() && value.size() == names.size() &&
         std::all_of(names.begin(), names.end(), [&](auto name) { return value.contains(name); });
}

Status idefics3_target(const json& value, Settings& s) {
  if (has_members(value, {"longest_edge"})) {
    return set_int(value["longest_edge"], kMaxLongestEdge, s.longest_edge);
  }
  if (!has_members(value, {"height", "width"})) return unsupported(value);
  FERRY_RETURN_IF_ERROR(set_int(value["height"], kMaxLongestEdge, s.fixed.height));
  return set_int(value["width"], kMaxLongestEdge, s.fixed.width);
}

Status idefics3_tile(const json& value, Settings& s) {
  if (!has_members(value, {"longest_edge"})) return unsupported(value);
  return set_int(value["longest_edge"], kMaxTile, s.tile);
}

Status split(const json& value, Settings& s) { return set_bool(value, s.split); }

Status square(const json& value, Settings& s) {
  if (!has_members(value, {"height", "width"})) return unsupported(value);
  if (value["height"] != value["width"]) return unsupported(value);
  return set_int(value["height"], kMaxTile, s.tile);
}

Status least(const json& value, Settings& s) {
  return set_int(value, kMaxPatches, s.least_patches);
}
Status most(const json& value, Settings& s) { return set_int(value, kMaxPatches, s.most_patches); }

// InternVLProcessor crops images whatever the file of its image processor says.
Status crop(const json& value, Settings&) {
  bool stated = false;
  return set_bool(value, stated);
}

Status frames(const json& value, Settings& s) { return set_int(value, 16, s.frames); }
Status blocks(const json& value, Settings& s) { return set_int(value, 16, s.merge); }
Status least_pixels(const json& value, Settings& s) {
  return set_int(value, kMostPixels, s.least_pixels);
}
Status most_pixels(const json& value, Settings& s) {
  return set_int(value, kMostPixels, s.most_pixels);
}

// The edges are numbers of pixels here. Those of min_pixels and max_pixels, which are applied after
// this field, win. Older files have these names inside of it, where they have no effect.
Status pixel_range(const json& value, Settings& s) {
  if (has_members(value, {"min_pixels", "max_pixels"})) {
    s.least_pixels = s.most_pixels = 0;
    return {};
  }
  if (!has_members(value, {"shortest_edge", "longest_edge"})) return unsupported(value);
  FERRY_RETURN_IF_ERROR(least_pixels(value["shortest_edge"], s));
  return most_pixels(value["longest_edge"], s);
}
Status patch_side(const json& value, Settings& s) { return set_int(value, kMaxPatchSide, s.patch); }
Status merge(const json& value, Settings& s) { return set_int(value, kMaxPatchSide, s.merge); }
Status tile_side(const json& value, Settings& s) { return set_int(value, kMaxTile, s.tile); }
Status least_tokens(const json& value, Settings& s) {
  return set_int(value, kMaxTilePatches, s.least_tokens);
}
Status most_tokens(const json& value, Settings& s) {
  return set_int(value, kMaxTilePatches, s.most_tokens);
}
Status thumbnail(const json& value, Settings& s) { return set_bool(value, s.thumbnail); }
Status tolerance(const json& value, Settings& s) {
  const double times = value.is_number() ? value.get<double>() : 0;
  if (!(times > 0 && times <= 1e6)) return bad_input("not a number up to 1000000");
  s.tolerance = times;
  return {};
}

// Fields that both kinds have. The reference also saves fields that are null or have no effect.
constexpr Field kCommonFields[] = {
    {"do_resize", always_true},
    {"do_rescale", always_true},
    {"do_normalize", always_true},
    {"do_convert_rgb", always_true},
    {"image_mean", mean},
    {"image_std", deviation},
    {"rescale_factor", rescale},
    {"resample", resample},
    {"image_processor_type", no_effect},
    {"processor_class", no_effect},
    {"data_format", no_effect},
    {"default_to_square", no_effect},
    {"crop_size", always_null},
    {"device", always_null},
    {"disable_grouping", always_null},
    {"do_center_crop", always_null},
    {"input_data_format", always_null},
    {"pad_size", always_null},
    {"return_tensors", always_null},
};
constexpr Field kIdefics3Fields[] = {
    {"size", idefics3_target}, {"max_image_size", idefics3_tile},  {"do_image_splitting", split},
    {"do_pad", always_true},   {"return_row_col_info", no_effect}, {"video_sampling", no_effect},
};
constexpr Field kGotOcr2Fields[] = {
    {"size", square},       {"crop_to_patches", crop}, {"max_patches", most},
    {"min_patches", least}, {"do_pad", always_null},
};

// The processor class has values of its own for pan and scan, whatever the file says.
constexpr Field kGemma3Fields[] = {
    {"size", square},
    {"do_pan_and_scan", no_effect},
    {"pan_and_scan_min_crop_size", no_effect},
    {"pan_and_scan_max_num_crops", no_effect},
    {"pan_and_scan_min_ratio_to_activate", no_effect},
    {"do_pad", always_null},
    {"image_seq_length", no_effect},
};

// min_pixels and max_pixels come last, because they win over `size`.
constexpr Field kQwen2VlFields[] = {
    {"size", pixel_range},       {"patch_size", patch_side}, {"temporal_patch_size", frames},
    {"merge_size", blocks},      {"do_pad", always_null},    {"min_pixels", least_pixels},
    {"max_pixels", most_pixels},
};

Status clip_target(const json& value, Settings& s) {
  s.shortest_edge = 0;
  if (has_members(value, {"shortest_edge"})) {
    return set_int(value["shortest_edge"], kMaxTile, s.shortest_edge);
  }
  return square(value, s);
}

Status centre(const json& value, Settings& s) {
  if (!has_members(value, {"height", "width"})) return unsupported(value);
  FERRY_RETURN_IF_ERROR(set_int(value["height"], kMaxTile, s.centre.height));
  return set_int(value["width"], kMaxTile, s.centre.width);
}

Status crops(const json& value, Settings& s) { return set_bool(value, s.crop); }
Status pad_square(const json& value, Settings& s) { return set_bool(value, s.pad_square); }

constexpr Field kClipFields[] = {
    {"size", clip_target},
    {"crop_size", centre},
    {"do_center_crop", crops},
    {"do_pad", always_false},
};
Status normalize(const json& value, Settings& s) { return set_bool(value, s.normalize); }
Status tile_tokens(const json& value, Settings& s) {
  return set_int(value, 1 << 16, s.tile_tokens);
}

constexpr Field kSiglipFields[] = {
    {"size", clip_target},
    {"crop_size", centre},
    {"do_center_crop", crops},
    {"do_pad", always_false},
    {"image_seq_length", tile_tokens},
};
// Older files have the fields of the feature extractor of sounds beside these.
constexpr Field kGemma3nFields[] = {
    {"size", square},
    {"do_normalize", normalize},
    {"do_pad", always_false},
    {"image_seq_length", no_effect},
    {"audio_seq_length", no_effect},
    {"dither", no_effect},
    {"feature_extractor_type", no_effect},
    {"feature_size", no_effect},
    {"fft_length", no_effect},
    {"fft_overdrive", no_effect},
    {"frame_length", no_effect},
    {"frame_length_ms", no_effect},
    {"hop_length", no_effect},
    {"hop_length_ms", no_effect},
    {"input_scale_factor", no_effect},
    {"max_frequency", no_effect},
    {"mel_floor", no_effect},
    {"min_frequency", no_effect},
    {"padding_side", no_effect},
    {"padding_value", no_effect},
    {"per_bin_mean", no_effect},
    {"per_bin_stddev", no_effect},
    {"preemphasis", no_effect},
    {"preemphasis_htk_flavor", no_effect},
    {"return_attention_mask", no_effect},
    {"sampling_rate", no_effect},
};
constexpr Field kLlavaFields[] = {
    {"size", clip_target},
    {"crop_size", centre},
    {"do_center_crop", crops},
    {"do_pad", pad_square},
};

// The reference computes max_num_patches anew, whatever the file says.
constexpr Field kLfm2VlFields[] = {
    {"size", no_effect},
    {"do_pad", always_true},
    {"return_row_col_info", no_effect},
    {"max_num_patches", no_effect},
    {"encoder_patch_size", patch_side},
    {"downsample_factor", merge},
    {"tile_size", tile_side},
    {"do_image_splitting", split},
    {"min_tiles", least},
    {"max_tiles", most},
    {"use_thumbnail", thumbnail},
    {"min_image_tokens", least_tokens},
    {"max_image_tokens", most_tokens},
    {"max_pixels_tolerance", tolerance},
};

// A longest edge, or the largest height and width.
Status largest(const json& value, Settings& s) {
  if (has_members(value, {"longest_edge"})) {
    FERRY_RETURN_IF_ERROR(set_int(value["longest_edge"], kMaxPictureSide, s.fixed.width));
    s.fixed.height = s.fixed.width;
    return {};
  }
  if (!has_members(value, {"height", "width"})) return unsupported(value);
  FERRY_RETURN_IF_ERROR(set_int(value["height"], kMaxPictureSide, s.fixed.height));
  return set_int(value["width"], kMaxPictureSide, s.fixed.width);
}

// The processor has patches of its own, whatever the file of its image processor says.
constexpr Field kPixtralFields[] = {
    {"size", largest},
    {"patch_size", no_effect},
    {"do_pad", always_true},
};

// The budgets that the reference knows.
Status budget(const json& value, Settings& s) {
  constexpr int kBudgets[] = {70, 140, 280, 560, 1120};
  for (const int tokens : kBudgets) {
    if (value != tokens) continue;
    s.most_tokens = tokens;
    return {};
  }
  return bad_input("not one of 70, 140, 280, 560 and 1120");
}

constexpr Field kGemma4Fields[] = {
    {"size", no_effect},
    {"do_normalize", normalize},
    {"do_pad", always_null},
    {"patch_size", patch_side},
    {"pooling_kernel_size", merge},
    {"max_soft_tokens", budget},
    {"image_seq_length", no_effect},
};

// A tile has this side; its shortest edge, where the file states that.
Status tile_edge(const json& value, Settings& s) {
  if (!has_members(value, {"shortest_edge"})) return square(value, s);
  return set_int(value["shortest_edge"], kMaxTile, s.tile);
}

Status set_pinpoint(const json& sides, Extent& size) {
  if (!sides.is_array() || sides.size() != 2) return bad_input("has a size that is no pair");
  int height = 0, width = 0;
  FERRY_RETURN_IF_ERROR(set_int(sides[0], kMaxResolutionSide, height));
  FERRY_RETURN_IF_ERROR(set_int(sides[1], kMaxResolutionSide, width));
  size = {height, width};
  return {};
}

// A list of heights and widths.
Status pinpoints(const json& value, Settings& s) {
  if (!value.is_array() || value.empty() || value.size() > kMaxResolutions) {
    return bad_input(fmt::format("not a list of 1 to {} sizes", kMaxResolutions));
  }
  s.pinpoints.clear();
  for (const json& sides : value) {
    FERRY_RETURN_IF_ERROR(set_pinpoint(sides, s.pinpoints.emplace_back()));
  }
  return {};
}

constexpr Field kPinpointFields[] = {
    {"size", tile_edge},
    {"crop_size", centre},
    {"do_center_crop", crops},
    {"do_pad", always_true},
    {"image_grid_pinpoints", pinpoints},
    {"aspect_ratio_setting", no_effect},
};

// The defaults of the classes in transformers 5.23, without what they have in common.
constexpr std::array<double, 3> kHalf = {0.5, 0.5, 0.5};
constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipDeviation = {0.26862954, 0.26130258, 0.27577711};

constexpr Settings kIdefics3 = {
    .filter = Filter::kLanczos, .tile = 364, .mean = kHalf, .std = kHalf};
constexpr Settings kGotOcr2 = {.kind = ProcessorKind::kGotOcr2,
                               .filter = Filter::kBicubic,
                               .tile = 384,
                               .mean = kClipMean,
                               .std = kClipDeviation};
constexpr Settings kGemma3 = {.kind = ProcessorKind::kGemma3,
                              .filter = Filter::kBilinear,
                              .tile = 224,
                              .mean = kHalf,
                              .std = kHalf};
constexpr Settings kGemma4 = {.kind = ProcessorKind::kGemma4,
                              .filter = Filter::kBicubic,
                              .mean = {0.0, 0.0, 0.0},
                              .std = {1.0, 1.0, 1.0},
                              .normalize = false,
                              .split = false,
                              .patch = 16,
                              .merge = 3,
                              .least_tokens = 1,
                              .most_tokens = 280};
constexpr Settings kQwen2Vl = {.kind = ProcessorKind::kQwen2Vl,
                               .filter = Filter::kBicubic,
                               .mean = kClipMean,
                               .std = kClipDeviation};
constexpr Settings kClip = {.kind = ProcessorKind::kClip,
                            .filter = Filter::kBicubic,
                            .tile = 224,
                            .mean = kClipMean,
                            .std = kClipDeviation,
                            .shortest_edge = 224,
                            .centre = {224, 224}};
constexpr Settings kSiglip = {.kind = ProcessorKind::kClip,
                              .filter = Filter::kBicubic,
                              .tile = 224,
                              .mean = kHalf,
                              .std = kHalf,
                              .crop = false};
constexpr Settings kLfm2Vl = {.kind = ProcessorKind::kLfm2Vl,
                              .filter = Filter::kBilinear,
                              .tile = 512,
                              .mean = kHalf,
                              .std = kHalf,
                              .least_patches = 2,
                              .most_patches = 10,
                              .patch = 16};
constexpr Settings kPixtral = {.kind = ProcessorKind::kPixtral,
                               .filter = Filter::kBicubic,
                               .mean = kClipMean,
                               .std = kClipDeviation,
                               .fixed = {1024, 1024},
                               .patch = 16,
                               .merge = 1,
                               .frames = 1};

constexpr Settings kLlavaNext = {.kind = ProcessorKind::kPinpoints,
                                 .filter = Filter::kBicubic,
                                 .tile = 224,
                                 .mean = kClipMean,
                                 .std = kClipDeviation,
                                 .centre = {224, 224}};
constexpr Settings kLlavaOnevision = {.kind = ProcessorKind::kPinpoints,
                                      .filter = Filter::kBicubic,
                                      .tile = 384,
                                      .mean = kClipMean,
                                      .std = kClipDeviation,
                                      .crop = false,
                                      .pads_many = true};

constexpr std::string_view kIdefics3Processors[] = {"Idefics3Processor", "SmolVLMProcessor"};
constexpr std::string_view kInternVlProcessors[] = {"InternVLProcessor"};
constexpr std::string_view kGemma3Processors[] = {"Gemma3Processor"};
constexpr std::string_view kGemma4Processors[] = {"Gemma4Processor"};
constexpr std::string_view kQwenProcessors[] = {"Qwen2VLProcessor", "Qwen2_5_VLProcessor",
                                                "Qwen3VLProcessor"};
constexpr std::string_view kLlavaProcessors[] = {"LlavaProcessor"};
constexpr std::string_view kSiglipProcessors[] = {"LlavaProcessor", "PaliGemmaProcessor"};
constexpr std::string_view kGemma3nProcessors[] = {"Gemma3nProcessor"};
constexpr std::string_view kLfm2VlProcessors[] = {"Lfm2VlProcessor"};
constexpr std::string_view kLlavaNextProcessors[] = {"LlavaNextProcessor"};
constexpr std::string_view kLlavaOnevisionProcessors[] = {"LlavaOnevisionProcessor"};
constexpr std::string_view kPixtralProcessors[] = {"PixtralProcessor"};

constexpr Kind kKinds[] = {
    {"Idefics3ImageProcessor", kIdefics3Processors, kIdefics3Fields, kIdefics3},
    {"SmolVLMImageProcessor", kIdefics3Processors, kIdefics3Fields, kIdefics3},
    {"GotOcr2ImageProcessor", kInternVlProcessors, kGotOcr2Fields, kGotOcr2},
    {"CLIPImageProcessor", kLlavaProcessors, kClipFields, kClip},
    {"LlavaImageProcessor", kLlavaProcessors, kLlavaFields, kClip},
    {"SiglipImageProcessor", kSiglipProcessors, kSiglipFields, kSiglip},
    {"SiglipImageProcessor", kGemma3nProcessors, kGemma3nFields, kSiglip},
    {"Gemma3ImageProcessor", kGemma3Processors, kGemma3Fields, kGemma3},
    {"Gemma4ImageProcessor", kGemma4Processors, kGemma4Fields, kGemma4},
    {"Qwen2VLImageProcessor", kQwenProcessors, kQwen2VlFields, kQwen2Vl},
    {"Lfm2VlImageProcessor", kLfm2VlProcessors, kLfm2VlFields, kLfm2Vl},
    {"LlavaNextImageProcessor", kLlavaNextProcessors, kPinpointFields, kLlavaNext},
    {"LlavaOnevisionImageProcessor", kLlavaOnevisionProcessors, kPinpointFields, kLlavaOnevision},
    {"PixtralImageProcessor", kPixtralProcessors, kPixtralFields, kPixtral},
};

}  // namespace

std::span<const Field> common_fields() { return kCommonFields; }

const Kind* find_kind(std::string_view name, std::string_view processor) {
  constexpr std::string_view kFast = "Fast";  // of the same class in older versions
  if (name.ends_with(kFast)) name.remove_suffix(kFast.size());
  const Kind* found = nullptr;
  for (const Kind& kind : kKinds) {
    if (kind.name != name) continue;
    if (std::ranges::count(kind.processors, processor) > 0) return &kind;
    if (found == nullptr) found = &kind;
  }
  return found;
}

}  // namespace ferry::media
