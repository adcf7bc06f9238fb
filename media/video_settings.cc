#include "media/video_settings.h"

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
#include "media/processor_kinds.h"

namespace ferry::media {
namespace {

using nlohmann::json;

constexpr const char* kVideoType = "video_processor_type";
constexpr const char* kImageType = "image_processor_type";
constexpr const char* kVideoOwnerFile = "processor_config.json";
constexpr uint64_t kMaxVideoConfigBytes = 1 << 20;

Failure wrong_value(const json& value) {
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return fail(ErrorCode::kUnsupported, "the value " + quoted(text, 60) + " is not supported");
}

Status read_flag(const json& value, bool& out) {
  if (!value.is_boolean()) return bad_input("not true or false");
  out = value.get<bool>();
  return {};
}

Status read_count(const json& value, int64_t& out) {
  if (!value.is_number_unsigned() || value == 0U || value > uint64_t{kMaxVideoFrames}) {
    return bad_input(fmt::format("not a whole number from 1 to {}", kMaxVideoFrames));
  }
  out = value.get<int64_t>();
  return {};
}

Status read_rate(const json& value, std::optional<double>& out) {
  const double rate = value.is_number() ? value.get<double>() : 0;
  if (!(rate >= 1e-3 && rate <= 1e4)) return bad_input("not a number from 0.001 to 10000");
  out = rate;
  return {};
}

// A field of a video processor beside those of its frames.
struct VideoField {
  std::string_view name;
  Status (*rule)(const json& value, VideoSettings& settings);
  bool takes_null = false;
};

// A null in these three is no default of the class, as it is in others.
Status samples(const json& value, VideoSettings& s) {
  s.samples = false;
  return value.is_null() ? Status() : read_flag(value, s.samples);
}
Status rate(const json& value, VideoSettings& s) {
  s.rate.reset();
  return value.is_null() ? Status() : read_rate(value, s.rate);
}
Status count(const json& value, VideoSettings& s) {
  s.count.reset();
  return value.is_null() ? Status() : read_count(value, s.count.emplace());
}
Status least(const json& value, VideoSettings& s) { return read_count(value, s.least_frames); }
Status most(const json& value, VideoSettings& s) { return read_count(value, s.most_frames); }
Status caps(const json& value, VideoSettings& s) { return read_flag(value, s.caps_pixels); }
Status max_tokens(const json& value, VideoSettings& s) { return read_count(value, s.max_tokens); }
Status nothing(const json&, VideoSettings&) { return {}; }
Status metadata(const json& value, VideoSettings&) {
  bool stated = false;
  return read_flag(value, stated);
}
Status pads(const json& value, VideoSettings&) {
  if (value != true) return wrong_value(value);
  return {};
}

Status shift(const json& value, VideoSettings& s) {
  if (value.is_boolean()) {
    s.shift = value.get<bool>() ? std::nullopt : std::optional(0.0);
    return {};
  }
  const double place = value.is_number() ? value.get<double>() : -1;
  if (!(place >= 0 && place <= 1e6)) return bad_input("not true, false or a number up to 1000000");
  s.shift = place;
  return {};
}

// The chat template of the reference asks for these, so that a video is sampled. `size`, which is
// read later, wins over the size in it.
Status sampling(const json& value, VideoSettings& s) {
  const bool whole = value.is_object() && value.contains("fps") && value.contains("max_frames");
  if (!whole) return bad_input("has no fps and max_frames");
  FERRY_RETURN_IF_ERROR(read_rate(value["fps"], s.rate));
  FERRY_RETURN_IF_ERROR(read_count(value["max_frames"], s.count.emplace()));
  const auto size = value.find("video_size");
  if (size == value.end() || !size->is_object()) return bad_input("has no video_size");
  for (const Field& field : find_kind("SmolVLMImageProcessor", "SmolVLMProcessor")->fields) {
    if (field.name == "size") return field.rule(*size, s.frame);
  }
  return {};
}

constexpr VideoField kOfAll[] = {
    {kVideoType, nothing},       {"do_sample_frames", samples, true}, {"fps", rate, true},
    {"num_frames", count, true}, {"return_metadata", metadata},
};
constexpr VideoField kOfQwen[] = {
    {"min_frames", least},
    {"max_frames", most},
    {"cap_pixels_per_frame", caps},
    {"max_video_tokens", max_tokens},
};
constexpr VideoField kOfSmolVlm[] = {{"video_sampling", sampling}, {"do_pad", pads}};
constexpr VideoField kOfInternVl[] = {{"initial_shift", shift}};
// Fields of the image processor, which the video processor does not read.
constexpr VideoField kOfLlavaOnevision[] = {
    {"do_pad", nothing}, {"image_grid_pinpoints", nothing}, {"aspect_ratio_setting", nothing}};

struct VideoProcessor {
  std::string_view name;
  VideoKind kind;
  std::string_view frames, processor;  // the image processor whose fields a frame has
  std::span<const VideoField> fields;
};
constexpr VideoProcessor kVideoProcessors[] = {
    {"Qwen2VLVideoProcessor", VideoKind::kQwen2Vl, "Qwen2VLImageProcessor", "Qwen2VLProcessor",
     kOfQwen},
    {"Qwen3VLVideoProcessor", VideoKind::kQwen3Vl, "Qwen2VLImageProcessor", "Qwen3VLProcessor",
     kOfQwen},
    {"SmolVLMVideoProcessor", VideoKind::kSmolVlm, "SmolVLMImageProcessor", "SmolVLMProcessor",
     kOfSmolVlm},
    {"InternVLVideoProcessor", VideoKind::kInternVl, "GotOcr2ImageProcessor", "InternVLProcessor",
     kOfInternVl},
    {"Gemma4VideoProcessor", VideoKind::kGemma4, "Gemma4ImageProcessor", "Gemma4Processor", {}},
    // A frame is one tile with the defaults of these.
    {"LlavaOnevisionVideoProcessor", VideoKind::kLlavaOnevision, "GotOcr2ImageProcessor",
     "InternVLProcessor", kOfLlavaOnevision},
};

// The defaults of the classes, over those of their image processors.
VideoSettings defaults_of(const VideoProcessor& processor, const Kind& frames) {
  VideoSettings s;
  s.kind = processor.kind;
  s.frame = frames.defaults;
  s.frame.split = s.frame.crop = false;
  if (s.kind == VideoKind::kQwen2Vl) {
    s.frame.least_pixels = 128 * 28 * 28;
    s.frame.most_pixels = 28 * 28 * 768;
  }
  if (s.kind == VideoKind::kQwen3Vl) {
    s.frame.mean = s.frame.std = {0.5, 0.5, 0.5};
    s.frame.patch = 16;
    s.frame.least_pixels = 128 * 32 * 32;
    s.frame.most_pixels = 32 * 32 * 768;
    s.samples = true;
    s.rate = 2;
    s.max_tokens = 768;
  }
  if (s.kind == VideoKind::kGemma4) {
    s.frame.normalize = true;
    s.frame.most_tokens = 70;
    s.samples = true;
    s.count = 32;
  }
  return s;
}

template <class Rules>
const auto* find_rule(const Rules& rules, std::string_view name) {
  const auto found =
      std::ranges::find_if(rules, [&](const auto& field) { return field.name == name; });
  return found == std::end(rules) ? nullptr : &*found;
}

Result<std::string> name_in(const json& object, const char* field, const std::string& where) {
  const auto found = object.find(field);
  if (found == object.end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  return bad_input(fmt::format("{}: field '{}': not a name", where, field));
}

// The class of a file of images is that of videos whose name differs in one word. InternVL's image
// processor has another name altogether.
Result<const VideoProcessor*> processor_of(const json& fields, const std::string& where) {
  std::string name = FERRY_TRY(name_in(fields, kVideoType, where));
  const char* field = name.empty() ? kImageType : kVideoType;
  if (name.empty()) {
    name = FERRY_TRY(name_in(fields, kImageType, where));
    constexpr std::string_view kImage = "ImageProcessor", kFast = "Fast", kVideo = "VideoProcessor";
    std::string_view stem = name;
    if (stem.ends_with(kFast)) stem.remove_suffix(kFast.size());
    if (stem.ends_with(kImage)) stem.remove_suffix(kImage.size());
    if (stem.ends_with(kVideo)) stem.remove_suffix(kVideo.size());
    name = stem == "GotOcr2" ? "InternVLVideoProcessor" : fmt::format("{}{}", stem, kVideo);
  }
  for (const VideoProcessor& processor : kVideoProcessors) {
    if (processor.name == name) return &processor;
  }
  return fail(ErrorCode::kUnsupported, fmt::format("{}: {}: videos of {} are not supported", where,
                                                   field, quoted(name, 60)));
}

Status place_error(const Status& status, const std::string& where, std::string_view name) {
  if (status) return {};
  return fail(status.error().code,
              fmt::format("{}: field {}: {}", where, quoted(name), status.error().message));
}

// Applies the fields of frames, in the order of their tables, because some win over others. Those
// that the video processor has as its own are not applied.
Status apply_frames(const json& fields, const Kind& kind, std::span<const VideoField> own,
                    VideoSettings& s, const std::string& where) {
  for (const std::span<const Field> table : {common_fields(), kind.fields}) {
    const bool common = table.data() == common_fields().data();
    for (const Field& field : table) {
      if (common && find_rule(kind.fields, field.name) != nullptr) continue;
      // Qwen3VLVideoProcessor does not read these.
      const bool unread = s.kind == VideoKind::kQwen3Vl &&
                          (field.name == "min_pixels" || field.name == "max_pixels");
      const auto found = fields.find(std::string(field.name));
      if (unread || found == fields.end() || found->is_null()) continue;
      if (find_rule(own, field.name) != nullptr) continue;
      FERRY_RETURN_IF_ERROR(place_error(field.rule(*found, s.frame), where, field.name));
    }
  }
  return {};
}

Result<VideoSettings> settings_of(const json& fields, const std::string& where) {
  if (!fields.is_object()) return bad_input(where + ": not an object");
  const VideoProcessor* processor = FERRY_TRY(processor_of(fields, where));
  const Kind* frames = find_kind(processor->frames, processor->processor);
  if (frames == nullptr) return fail(ErrorCode::kInternal, where + ": no kind of frames");
  VideoSettings s = defaults_of(*processor, *frames);
  for (const auto& [name, value] : fields.items()) {
    const VideoField* field = find_rule(kOfAll, name);
    if (field == nullptr) field = find_rule(processor->fields, name);
    const bool of_frame =
        find_rule(frames->fields, name) != nullptr || find_rule(common_fields(), name) != nullptr;
    if (field == nullptr && !of_frame) {
      return fail(ErrorCode::kUnsupported, fmt::format("{}: field {}: not supported with {}", where,
                                                       quoted(name, 60), processor->name));
    }
    const bool kept = value.is_null() && (field == nullptr || !field->takes_null);
    if (field == nullptr || kept) continue;
    FERRY_RETURN_IF_ERROR(place_error(field->rule(value, s), where, name));
  }
  FERRY_RETURN_IF_ERROR(apply_frames(fields, *frames, processor->fields, s, where));
  s.frame.split = s.frame.crop = false;
  if (s.frame.has_patches()) FERRY_RETURN_IF_ERROR(settle_patches(s.frame, where));
  s.frame.least_patches = s.frame.most_patches = 1;
  // The reference asks for sampling where one of these is set, and fails without the other.
  if (s.kind == VideoKind::kSmolVlm && (s.rate || s.count)) s.samples = true;
  if (s.frame.least_pixels == 0 || s.frame.most_pixels == 0) {
    return bad_input(where + ": field 'size': has no shortest_edge and longest_edge");
  }
  return s;
}

// LlavaOnevisionProcessor keeps, of the features of a tile, those of a square with half the side.
Status settle_frame_tokens(const json& processor, VideoSettings& s, const std::string& where) {
  constexpr const char* kField = "num_image_tokens";
  constexpr uint64_t kMost = 1 << 16;
  const auto stated = processor.find(kField);
  const bool whole =
      stated != processor.end() && stated->is_number_unsigned() && *stated > 0U && *stated <= kMost;
  if (!whole) {
    return bad_input(
        fmt::format("{}: field '{}': not a whole number from 1 to {}", where, kField, kMost));
  }
  const auto side = static_cast<int64_t>(std::sqrt(stated->get<double>()));
  s.frame_tokens = (side + 1) / 2 * ((side + 1) / 2);
  return {};
}

Result<json> object_of(std::string_view text, const std::string& where) {
  json value = FERRY_TRY(parse_json(text, where));
  if (!value.is_object()) return bad_input(where + ": not an object");
  return value;
}

}  // namespace

namespace {

// Reads those of the file that states them.
Result<VideoSettings> stated_settings(const VideoFiles& files, const json& processor,
                                      const std::string& directory) {
  const auto own = processor.find("video_processor");
  if (own != processor.end() && !own->is_null()) {
    return settings_of(*own, directory + "/" + kVideoOwnerFile);
  }
  for (const auto& [name, text] : {std::pair(kVideoPreprocessorFile, files.video),
                                   std::pair("preprocessor_config.json", files.preprocessor)}) {
    const std::string where = fmt::format("{}/{}", directory, name);
    if (!text.empty()) return settings_of(FERRY_TRY(object_of(text, where)), where);
  }
  return fail(ErrorCode::kIo, fmt::format("{}/{}: no such file; it says how videos become pixel "
                                          "values",
                                          directory, kVideoPreprocessorFile));
}

}  // namespace

Result<VideoSettings> video_settings_from(const VideoFiles& files, const std::string& directory) {
  const std::string path = fmt::format("{}/{}", directory, kVideoOwnerFile);
  const json processor =
      files.processor.empty() ? json::object() : FERRY_TRY(object_of(files.processor, path));
  VideoSettings s = FERRY_TRY(stated_settings(files, processor, directory));
  if (s.kind == VideoKind::kLlavaOnevision) {
    FERRY_RETURN_IF_ERROR(settle_frame_tokens(processor, s, path));
  }
  return s;
}

Result<VideoSettings> load_video_settings(const std::string& directory) {
  const auto text_in = [&](const char* name) -> Result<std::string> {
    const std::string path = directory + "/" + name;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return std::string();
    return read_text_file(path, kMaxVideoConfigBytes);
  };
  const std::string processor = FERRY_TRY(text_in(kVideoOwnerFile));
  const std::string video = FERRY_TRY(text_in(kVideoPreprocessorFile));
  const std::string preprocessor = FERRY_TRY(text_in("preprocessor_config.json"));
  return video_settings_from({processor, video, preprocessor}, printable(directory));
}

}  // namespace ferry::media
