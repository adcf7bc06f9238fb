#include "dialects/gguf/projector/projector_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "dialects/gguf/model/written_keys.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

constexpr uint32_t kProjectorQuantizationVersion = 2;
constexpr int64_t kQ80Block = 32;

Result<json> object_of(const std::string& text, const std::string& name) {
  if (text.empty()) return json::object();
  json object = FERRY_TRY(parse_json(text, name));
  if (!object.is_object()) return bad_input(name + ": not a JSON object");
  return object;
}

// Returns the fields of the processor and of its image processor, as the converter sees them.
Result<json> processor_fields(const ProjectorKeysInput& input) {
  json fields = FERRY_TRY(object_of(input.preprocessor_text, "preprocessor_config.json"));
  const json outer = FERRY_TRY(object_of(input.processor_text, "processor_config.json"));
  fields.update(outer);
  const auto inner = outer.find("image_processor");
  if (inner != outer.end() && inner->is_object()) fields.update(*inner);
  return fields;
}

Result<std::vector<float>> three_numbers(const json& processor, const char* key) {
  const auto found = processor.find(key);
  const auto is_number = [](const json& value) { return value.is_number(); };
  if (found == processor.end() || !found->is_array() || found->size() != 3 ||
      !std::ranges::all_of(*found, is_number)) {
    return bad_input(fmt::format(
        "the processor files state no '{}' of three numbers, which a projector needs", key));
  }
  std::vector<float> values;
  for (const json& value : *found) values.push_back(static_cast<float>(value.get<double>()));
  return values;
}

// The keys about the tower that all kinds have.
Status add_sizes(const ProjectorKind& kind, ProjectorWriting& file) {
  const VisionConfig& vision = file.vision();
  const auto stated = [&](int64_t (*of)(const ProjectorWriting&), int64_t otherwise) {
    return of != nullptr ? of(file) : otherwise;
  };
  file.set("has_vision_encoder", true);
  file.set_number("vision.projection_dim", file.config->hidden_size);
  file.set_number("vision.image_size", stated(kind.image_size, vision.image_size));
  file.set_number("vision.patch_size", vision.patch_size);
  file.set_number("vision.embedding_length", vision.hidden_size);
  file.set_number("vision.feed_forward_length",
                  stated(kind.feed_forward, vision.intermediate_size));
  file.set_number("vision.block_count", vision.num_layers);
  file.set_number("vision.attention.head_count", vision.num_heads);
  for (const char* key : {"image_mean", "image_std"}) {
    file.set(fmt::format("vision.{}", key), FERRY_TRY(three_numbers(file.processor, key)));
  }
  return {};
}

}  // namespace

Result<std::vector<GgufKeyValue>> projector_keys(const ProjectorKeysInput& input) {
  ProjectorWriting file;
  file.config = input.config;
  file.config_name = input.config_name;
  file.outer = FERRY_TRY(object_of(input.config_text, printable(input.config_name)));
  file.tower = file.outer.value("vision_config", json::object());
  file.processor = FERRY_TRY(processor_fields(input));
  std::vector<GgufKeyValue>& keys = file.keys;
  keys.push_back({"general.architecture", std::string("clip")});
  keys.push_back({"general.type", std::string("mmproj")});
  FERRY_RETURN_IF_ERROR(add_gguf_sampling(input.generation_text, keys));
  if (!input.name.empty()) keys.push_back({"general.name", input.name});
  keys.push_back({"general.size_label", input.size_label});
  keys.push_back({"general.file_type", gguf_file_type_number(input.type, /*has_mxfp4=*/false)});
  FERRY_RETURN_IF_ERROR(add_sizes(*input.kind, file));
  FERRY_RETURN_IF_ERROR(input.kind->write(file));
  keys.push_back({"general.quantization_version", kProjectorQuantizationVersion});
  return std::move(keys);
}

std::vector<GgufElement> choose_projector_types(std::span<const GgufNamedShape> tensors,
                                                const ProjectorKind& kind, GgufFileType type) {
  const auto named = [](const std::vector<std::string_view>& names, std::string_view name) {
    return std::ranges::any_of(names, [&](std::string_view part) { return name == part; });
  };
  std::vector<GgufElement> types;
  for (const GgufNamedShape& tensor : tensors) {
    const std::string_view name = tensor.name;
    const bool patches = name.find(".patch_embd.weight") != name.npos ||
                         name.find(".patch_merger.weight") != name.npos;
    GgufElement& one = types.emplace_back(GgufElement::kF32);
    if (tensor.shape.size() < 2 || name.ends_with("_norm.weight")) continue;
    if (named(kind.f32, name)) continue;
    if (named(kind.f16, name)) {
      one = GgufElement::kF16;
    } else if (patches) {
      if (type == GgufFileType::kF16) one = GgufElement::kF16;
    } else if (name.ends_with(".weight") && name != "v.position_embd.weight") {
      switch (type) {
        case GgufFileType::kF16:
          one = GgufElement::kF16;
          break;
        case GgufFileType::kBF16:
          one = GgufElement::kBF16;
          break;
        case GgufFileType::kQ8_0:
          one = tensor.shape.back() % kQ80Block == 0 ? GgufElement::kQ8_0 : GgufElement::kF16;
          break;
        default:
          break;
      }
    }
  }
  return types;
}

}  // namespace ferry::converters
