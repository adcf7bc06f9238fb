#include "media/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::media {
namespace {

using nlohmann::json;

constexpr const char* kPreprocessorFile = "preprocessor_config.json";
constexpr const char* kProcessorFile = "processor_config.json";
constexpr uint64_t kMaxConfigBytes = 1 << 20;

// Applies the value of a field to `s`, or returns what is wrong with the value.
using Rule = Result<void> (*)(const json& value, Settings& s);

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

struct Field {
  std::string_view name;
  Rule rule;
};

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

struct Kind {
  ProcessorKind kind;
  std::span<const std::string_view> image_classes, processors;
  std::span<const Field> fields;
  Filter filter;
  int tile;
  std::array<double, 3> mean, std;
  int least_patches = 1, most_patches = 12;
  int shortest_edge = 0;
  Size centre{};
  int patch = 14;
};

constexpr std::string_view kIdefics3Classes[] = {
    "Idefics3ImageProcessor", "Idefics3ImageProcessorFast", "SmolVLMImageProcessor",
    "SmolVLMImageProcessorFast"};
constexpr std::string_view kIdefics3Processors[] = {"Idefics3Processor", "SmolVLMProcessor"};
constexpr std::string_view kGotOcr2Classes[] = {"GotOcr2ImageProcessor",
                                                "GotOcr2ImageProcessorFast"};
constexpr std::string_view kGotOcr2Processors[] = {"InternVLProcessor"};
constexpr std::string_view kGemma3Classes[] = {"Gemma3ImageProcessor", "Gemma3ImageProcessorFast"};
constexpr std::string_view kGemma3Processors[] = {"Gemma3Processor"};
constexpr std::string_view kQwen2VlClasses[] = {"Qwen2VLImageProcessor",
                                                "Qwen2VLImageProcessorFast"};
constexpr std::string_view kQwen2VlProcessors[] = {"Qwen2VLProcessor", "Qwen2_5_VLProcessor",
                                                   "Qwen3VLProcessor"};
constexpr std::string_view kClipClasses[] = {"CLIPImageProcessor", "CLIPImageProcessorFast"};
constexpr std::string_view kLlavaClasses[] = {"LlavaImageProcessor", "LlavaImageProcessorFast"};
constexpr std::string_view kSiglipClasses[] = {"SiglipImageProcessor", "SiglipImageProcessorFast"};
constexpr std::string_view kLlavaProcessors[] = {"LlavaProcessor"};
constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipDeviation = {0.26862954, 0.26130258, 0.27577711};
constexpr std::string_view kLfm2VlClasses[] = {"Lfm2VlImageProcessor", "Lfm2VlImageProcessorFast"};
constexpr std::string_view kLfm2VlProcessors[] = {"Lfm2VlProcessor"};

// The defaults are those of the classes in transformers 5.12.1.
constexpr Kind kKinds[] = {
    {ProcessorKind::kIdefics3,
     kIdefics3Classes,
     kIdefics3Processors,
     kIdefics3Fields,
     Filter::kLanczos,
     364,
     {0.5, 0.5, 0.5},
     {0.5, 0.5, 0.5}},
    {ProcessorKind::kGotOcr2, kGotOcr2Classes, kGotOcr2Processors, kGotOcr2Fields, Filter::kBicubic,
     384, kClipMean, kClipDeviation},
    {ProcessorKind::kClip,
     kClipClasses,
     kLlavaProcessors,
     kClipFields,
     Filter::kBicubic,
     224,
     kClipMean,
     kClipDeviation,
     1,
     1,
     224,
     {224, 224}},
    {ProcessorKind::kClip,
     kLlavaClasses,
     kLlavaProcessors,
     kLlavaFields,
     Filter::kBicubic,
     224,
     kClipMean,
     kClipDeviation,
     1,
     1,
     224,
     {224, 224}},
    {ProcessorKind::kClip,
     kSiglipClasses,
     kLlavaProcessors,
     kClipFields,
     Filter::kBicubic,
     224,
     {0.5, 0.5, 0.5},
     {0.5, 0.5, 0.5}},
    {ProcessorKind::kGemma3,
     kGemma3Classes,
     kGemma3Processors,
     kGemma3Fields,
     Filter::kBilinear,
     224,
     {0.5, 0.5, 0.5},
     {0.5, 0.5, 0.5}},
    {ProcessorKind::kQwen2Vl, kQwen2VlClasses, kQwen2VlProcessors, kQwen2VlFields, Filter::kBicubic,
     0, kClipMean, kClipDeviation},
    {ProcessorKind::kLfm2Vl,
     kLfm2VlClasses,
     kLfm2VlProcessors,
     kLfm2VlFields,
     Filter::kBilinear,
     512,
     {0.5, 0.5, 0.5},
     {0.5, 0.5, 0.5},
     2,
     10,
     0,
     {},
     16},
};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<std::string> class_in(const json& object, const char* field, const std::string& where) {
  if (!object.contains(field) || object[field].is_null()) return std::string();
  if (object[field].is_string()) return object[field].get<std::string>();
  return bad_input(fmt::format("{}: field '{}': not a name", where, field));
}

Result<const Kind*> kind_of(const std::string& name, const std::string& where) {
  if (name.empty()) return bad_input(where + ": no field 'image_processor_type'");
  for (const Kind& kind : kKinds) {
    if (contains(kind.image_classes, name)) return &kind;
  }
  return fail(ErrorCode::kUnsupported,
              where + ": image_processor_type " + quoted(name) + " is not supported");
}

const Field* find_field(const Kind& kind, std::string_view name) {
  for (const std::span<const Field> fields : {kind.fields, std::span<const Field>(kCommonFields)}) {
    const auto found =
        std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
    if (found != fields.end()) return &*found;
  }
  return nullptr;
}

Status apply(const json& fields, const Kind& kind, Settings& s, const std::string& where) {
  const auto place = [&](std::string_view name) {
    return where + ": field " + quoted(name) + ": ";
  };
  for (const auto& [name, value] : fields.items()) {
    if (find_field(kind, name) != nullptr) continue;
    return fail(ErrorCode::kUnsupported, place(name) + "not supported");
  }
  // In the order of the tables, because some fields win over others.
  for (const std::span<const Field> table : {std::span<const Field>(kCommonFields), kind.fields}) {
    for (const Field& field : table) {
      const bool own = std::ranges::count(kind.fields, field.name, &Field::name) > 0;
      if (table.data() == kCommonFields && own) continue;  // has a meaning of its own there
      const auto found = fields.find(std::string(field.name));
      // With null, the default of the class stays.
      if (found == fields.end() || found->is_null()) continue;
      const Status status = field.rule(*found, s);
      if (!status) return fail(status.error().code, place(field.name) + status.error().message);
    }
  }
  return {};
}

// Settles what a list of patches is. kUnsupported for settings with which the reference fails, or
// makes another number of placeholders than of features.
Status check_patches(Settings& s, const std::string& where) {
  const int64_t patches = std::max(s.max_patches(), int64_t{s.least_tokens} * s.merge * s.merge);
  const int64_t most = std::min(kMaxTilePatches, kMaxTilePixels / (s.patch * s.patch));
  if (patches > most) {
    return bad_input(
        fmt::format("{}: tiles of {} patches of {} x {} pixels, where {} are the limit", where,
                    patches, s.patch, s.patch, most));
  }
  if (!s.split) {
    s.least_patches = s.most_patches = 1;
    return {};
  }
  if (s.least_patches > s.most_patches) {
    return bad_input(where + ": min_tiles is greater than max_tiles");
  }
  if (s.least_patches == 1 && s.most_patches > 1) {
    return fail(ErrorCode::kUnsupported,
                where +
                    ": min_tiles 1: of a large picture in one tile the reference makes another "
                    "number of placeholders than of features");
  }
  if (s.tile % (s.patch * s.merge) == 0) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: tile_size {} is not a multiple of {}, encoder_patch_size times "
                          "downsample_factor: not supported",
                          where, s.tile, s.patch * s.merge));
}

// Sets the side of the tile that is left of a picture. kUnsupported unless it is a square.
Status settle_tile(Settings& s, const std::string& where) {
  if (!s.crop) s.centre = {};
  if (s.crop && s.centre.width > 0 && s.centre.width == s.centre.height) {
    s.tile = s.centre.width;
    return {};
  }
  if (!s.crop && s.shortest_edge == 0) return {};
  return fail(ErrorCode::kUnsupported,
              where + ": pictures become tiles that are not square: not supported");
}

Settings defaults_of(const Kind& kind) {
  Settings s;
  s.kind = kind.kind;
  s.filter = kind.filter;
  s.tile = kind.tile;
  s.mean = kind.mean;
  s.std = kind.std;
  s.least_patches = kind.least_patches;
  s.most_patches = kind.most_patches;
  s.patch = kind.patch;
  s.shortest_edge = kind.shortest_edge;
  s.centre = kind.centre;
  if (kind.kind == ProcessorKind::kClip) s.crop = kind.centre.width > 0;
  return s;
}

Result<Settings> settings_of(const json& fields, std::string processor, const std::string& where) {
  if (!fields.is_object()) return bad_input(where + ": not an object");
  const std::string name = FERRY_TRY(class_in(fields, "image_processor_type", where));
  const Kind* kind = FERRY_TRY(kind_of(name, where));
  if (processor.empty()) processor = FERRY_TRY(class_in(fields, "processor_class", where));
  if (processor.empty()) return bad_input(where + ": no field 'processor_class'");
  if (!contains(kind->processors, processor)) {
    return fail(ErrorCode::kUnsupported, where + ": processor_class " + quoted(processor) +
                                             " with " + name + " is not supported");
  }
  Settings s = defaults_of(*kind);
  FERRY_RETURN_IF_ERROR(apply(fields, *kind, s, where));
  if (s.has_patches()) FERRY_RETURN_IF_ERROR(check_patches(s, where));
  if (s.kind == ProcessorKind::kClip) FERRY_RETURN_IF_ERROR(settle_tile(s, where));
  if (s.least_patches > s.most_patches) {
    return bad_input(where + ": min_patches is greater than max_patches");
  }
  if (s.least_pixels == 0 || s.most_pixels == 0) {
    return bad_input(where + ": field 'size': has no shortest_edge and longest_edge");
  }
  return s;
}

Result<json> parse_object(std::string_view text, const std::string& where) {
  json value = FERRY_TRY(parse_json(text, where));
  if (!value.is_object()) return bad_input(where + ": not an object");
  return value;
}

Result<std::string> text_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::string();
  return read_text_file(path, kMaxConfigBytes);
}

}  // namespace

int64_t Settings::max_patches() const {
  if (!has_patches()) return 0;
  const int64_t side = tile / patch;
  const int64_t whole = int64_t{most_tokens} * merge * merge;
  return split ? std::max(whole, side * side) : whole;
}

Status set_pan_and_scan(Settings& settings, const std::string& where) {
  settings.pan_and_scan = true;
  if (settings.kind == ProcessorKind::kGemma3) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: pan and scan is for image processors of Gemma 3", where));
}

Result<Settings> settings_from(std::string_view preprocessor, std::string_view processor,
                               const std::string& directory) {
  const std::string inner = directory + "/" + kProcessorFile;
  const std::string outer = directory + "/" + kPreprocessorFile;
  std::string name;
  if (!processor.empty()) {
    const json object = FERRY_TRY(parse_object(processor, inner));
    name = FERRY_TRY(class_in(object, "processor_class", inner));
    if (object.contains("image_processor") && !object["image_processor"].is_null()) {
      return settings_of(object["image_processor"], name, inner);
    }
  }
  if (preprocessor.empty()) {
    return fail(ErrorCode::kIo, outer + ": no such file; it says how images become pixel values");
  }
  return settings_of(FERRY_TRY(parse_object(preprocessor, outer)), name, outer);
}

Result<Settings> load_settings(const std::string& directory) {
  const std::string preprocessor = FERRY_TRY(text_of(directory + "/" + kPreprocessorFile));
  const std::string processor = FERRY_TRY(text_of(directory + "/" + kProcessorFile));
  return settings_from(preprocessor, processor, printable(directory));
}

}  // namespace ferry::media
