#include "media/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "media/processor_kinds.h"

namespace ferry::media {
namespace {

using nlohmann::json;

constexpr const char* kPreprocessorFile = "preprocessor_config.json";
constexpr const char* kProcessorFile = "processor_config.json";
constexpr uint64_t kMaxConfigBytes = 1 << 20;

Result<std::string> class_in(const json& object, const char* field, const std::string& where) {
  if (!object.contains(field) || object[field].is_null()) return std::string();
  if (object[field].is_string()) return object[field].get<std::string>();
  return bad_input(fmt::format("{}: field '{}': not a name", where, field));
}

Result<const Kind*> kind_of(const std::string& name, const std::string& processor,
                            const std::string& where) {
  if (name.empty()) return bad_input(where + ": no field 'image_processor_type'");
  if (const Kind* kind = find_kind(name, processor)) return kind;
  return fail(ErrorCode::kUnsupported,
              where + ": image_processor_type " + quoted(name) + " is not supported");
}

bool has_field(std::span<const Field> fields, std::string_view name) {
  return std::ranges::find(fields, name, &Field::name) != fields.end();
}

Status apply(const json& fields, const Kind& kind, Settings& s, const std::string& where) {
  const auto place = [&](std::string_view name) {
    return where + ": field " + quoted(name) + ": ";
  };
  for (const auto& [name, value] : fields.items()) {
    if (has_field(kind.fields, name) || has_field(common_fields(), name)) continue;
    return fail(ErrorCode::kUnsupported, place(name) + "not supported");
  }
  // In the order of the tables, because some fields win over others.
  for (const std::span<const Field> table : {common_fields(), kind.fields}) {
    for (const Field& field : table) {
      const bool common = table.data() == common_fields().data();
      if (common && has_field(kind.fields, field.name)) continue;  // has a meaning of its own there
      const auto found = fields.find(std::string(field.name));
      // With null, the default of the class stays.
      if (found == fields.end() || found->is_null()) continue;
      const Status status = field.rule(*found, s);
      if (!status) return fail(status.error().code, place(field.name) + status.error().message);
    }
  }
  return {};
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

// Sets the sides of patches and of the blocks that become tokens, which the processor states in
// place of its image processor.
Status settle_blocks(const json& processor, Settings& s, const std::string& where) {
  for (const auto& [name, side] :
       {std::pair("patch_size", &s.patch), std::pair("spatial_merge_size", &s.merge)}) {
    const auto found = processor.find(name);
    if (found == processor.end() || found->is_null()) continue;
    const bool whole = found->is_number_unsigned() && *found >= 1U && *found <= kMaxPatchSide;
    if (!whole) {
      return bad_input(fmt::format("{}: field '{}': not a whole number from 1 to {}", where, name,
                                   kMaxPatchSide));
    }
    *side = found->get<int>();
  }
  if (s.patch * s.merge <= kMaxPatchSide) return {};
  return bad_input(
      fmt::format("{}: blocks of {} x {} patches of {} pixels", where, s.merge, s.merge, s.patch));
}

// Returns a whole number of the processor's file, or `otherwise`.
Result<int> number_in(const json& processor, const char* name, int least, int most,
                      std::optional<int> otherwise, const std::string& where) {
  const auto found = processor.find(name);
  const bool stated = found != processor.end() && !found->is_null();
  if (!stated && otherwise) return *otherwise;
  if (!stated) return bad_input(fmt::format("{}: no field '{}'", where, name));
  if (found->is_number_unsigned() && *found >= static_cast<unsigned>(least) &&
      *found <= static_cast<unsigned>(most)) {
    return found->get<int>();
  }
  return bad_input(
      fmt::format("{}: field '{}': not a whole number from {} to {}", where, name, least, most));
}

// Reads the number N of anyres_max_N.
Status read_aspect(const json& processor, Settings& s, const std::string& where) {
  constexpr const char* kField = "vision_aspect_ratio";
  const std::string stated = FERRY_TRY(class_in(processor, kField, where));
  const auto most = stated.empty() ? kDefaultMostTiles : most_tiles_of(stated);
  if (most) s.most_tiles = static_cast<int>(*most);
  if (most) return {};
  return fail(ErrorCode::kUnsupported, fmt::format("{}: field '{}': {} is not supported", where,
                                                   kField, quoted(stated, 40)));
}

// The processor of LLaVA-OneVision states the tokens of a tile, which are a square.
Status settle_stated_tokens(const json& processor, Settings& s, const std::string& where) {
  constexpr int kMost = 1 << 16;
  const int tokens = FERRY_TRY(number_in(processor, "num_image_tokens", 1, kMost, {}, where));
  const std::string strategy =
      FERRY_TRY(class_in(processor, "vision_feature_select_strategy", where));
  s.feature_side = static_cast<int>(std::sqrt(static_cast<double>(tokens)));
  s.base_tokens = tokens - (strategy == "default" ? 1 : 0);
  if (s.base_tokens >= 1) return read_aspect(processor, s, where);
  return bad_input(where + ": the whole picture has no tokens");
}

// Settles the tokens of a picture, which fields of the processor decide.
Status settle_tokens(const json& processor, Settings& s, const std::string& where) {
  if (s.pads_many) return settle_stated_tokens(processor, s, where);
  constexpr int kMost = 1 << 16;
  const int patch = FERRY_TRY(number_in(processor, "patch_size", 1, s.tile, {}, where));
  const int more =
      FERRY_TRY(number_in(processor, "num_additional_image_tokens", 0, kMost, 0, where));
  const std::string strategy =
      FERRY_TRY(class_in(processor, "vision_feature_select_strategy", where));
  s.feature_side = s.tile / patch;
  s.base_tokens = s.feature_side * s.feature_side + more - (strategy == "default" ? 1 : 0);
  if (s.base_tokens >= 1) return {};
  return bad_input(where + ": the whole picture has no tokens");
}

// kUnsupported for tiles that are not whole in each resolution.
Status settle_pinpoints(const json& processor, Settings& s, const std::string& where) {
  if (s.pinpoints.empty() && s.pads_many) s.pinpoints = onevision_resolutions();
  if (s.pinpoints.empty()) {
    s.pinpoints = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
  }
  if (s.centre.width > 0 && s.centre != Size{s.tile, s.tile}) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: crop_size is {} x {}, size {} x {}: not supported", where,
                            s.centre.height, s.centre.width, s.tile, s.tile));
  }
  for (const Extent& size : s.pinpoints) {
    if (is_resolution(size, s.tile)) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: image_grid_pinpoints has {} x {}, which is not 1 to {} tiles of "
                            "{} x {} pixels: not supported",
                            where, size.rows, size.columns, kMaxResolutionTiles, s.tile, s.tile));
  }
  return settle_tokens(processor, s, where);
}

// The fields of an image processor, and the object with those of the processor around it.
struct ProcessorFiles {
  json fields, processor;
  std::string fields_path, processor_path;
};

Result<Settings> settings_of(const ProcessorFiles& files, std::string processor) {
  const json& fields = files.fields;
  const std::string& where = files.fields_path;
  if (!fields.is_object()) return bad_input(where + ": not an object");
  const std::string name = FERRY_TRY(class_in(fields, "image_processor_type", where));
  if (processor.empty()) processor = FERRY_TRY(class_in(fields, "processor_class", where));
  const Kind* kind = FERRY_TRY(kind_of(name, processor, where));
  if (processor.empty()) return bad_input(where + ": no field 'processor_class'");
  if (std::ranges::find(kind->processors, processor) == kind->processors.end()) {
    return fail(ErrorCode::kUnsupported, where + ": processor_class " + quoted(processor) +
                                             " with " + name + " is not supported");
  }
  Settings s = kind->defaults;
  FERRY_RETURN_IF_ERROR(apply(fields, *kind, s, where));
  // Lfm2Vl converts where its file says so. The references of Idefics3 and GotOcr2, of transformers
  // 5.12, leave pictures that are RGB as they are.
  if (s.kind == ProcessorKind::kLfm2Vl) {
    s.converts_rgb = fields.contains("do_convert_rgb") && fields["do_convert_rgb"] == true;
  }
  if (s.kind == ProcessorKind::kIdefics3 || s.kind == ProcessorKind::kGotOcr2) {
    s.converts_rgb = false;
  }
  if (s.has_patches()) FERRY_RETURN_IF_ERROR(settle_patches(s, where));
  if (s.kind == ProcessorKind::kClip) FERRY_RETURN_IF_ERROR(settle_tile(s, where));
  if (s.kind == ProcessorKind::kPixtral) {
    FERRY_RETURN_IF_ERROR(settle_blocks(files.processor, s, files.processor_path));
  }
  if (s.kind == ProcessorKind::kPinpoints) {
    FERRY_RETURN_IF_ERROR(settle_pinpoints(files.processor, s, files.processor_path));
  }
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

Status settle_patches(Settings& s, const std::string& where) {
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
  ProcessorFiles files;
  files.processor = json::object();
  files.processor_path = directory + "/" + kProcessorFile;
  files.fields_path = directory + "/" + kPreprocessorFile;
  std::string name;
  if (!processor.empty()) {
    files.processor = FERRY_TRY(parse_object(processor, files.processor_path));
    name = FERRY_TRY(class_in(files.processor, "processor_class", files.processor_path));
    if (const auto own = files.processor.find("image_processor");
        own != files.processor.end() && !own->is_null()) {
      files.fields = *own;
      files.fields_path = files.processor_path;
      return settings_of(files, name);
    }
  }
  if (preprocessor.empty()) {
    return fail(ErrorCode::kIo,
                files.fields_path + ": no such file; it says how images become pixel values");
  }
  files.fields = FERRY_TRY(parse_object(preprocessor, files.fields_path));
  return settings_of(files, name);
}

Result<Settings> load_settings(const std::string& directory) {
  const std::string preprocessor = FERRY_TRY(text_of(directory + "/" + kPreprocessorFile));
  const std::string processor = FERRY_TRY(text_of(directory + "/" + kProcessorFile));
  return settings_from(preprocessor, processor, printable(directory));
}

}  // namespace ferry::media
