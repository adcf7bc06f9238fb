#include "converters/lora/adapter_tensors.h"

#include <fmt/format.h>

#include <utility>

#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

struct HalfName {
  std::string_view part;
  std::optional<size_t> AdapterHalves::*place;
  std::optional<bool> embedding;  // nullopt: of both kinds of modules
};
constexpr HalfName kHalves[] = {{".lora_A", &AdapterHalves::a, false},
                                {".lora_B", &AdapterHalves::b, false},
                                {".lora_embedding_A", &AdapterHalves::a, true},
                                {".lora_embedding_B", &AdapterHalves::b, true},
                                {".lora_magnitude_vector", &AdapterHalves::magnitude, {}}};

// peft saves the weights below an adapter of an embedding or a head as `M.base_layer.weight`. The
// adapter is added to those weights, whatever the checkpoint has.
std::string without_base_layer(std::string_view name) {
  constexpr std::string_view kBaseLayer = ".base_layer.";
  const size_t at = name.rfind(kBaseLayer);
  if (at == std::string_view::npos) return std::string(name);
  return fmt::format("{}.{}", name.substr(0, at), name.substr(at + kBaseLayer.size()));
}

}  // namespace

Result<AdapterTensors> AdapterTensors::sort(const TensorSource& source, size_t first,
                                            const LoraConfig& config) {
  AdapterTensors sorted(source, config);
  for (size_t i = first; i < source.entries().size(); ++i) {
    FERRY_RETURN_IF_ERROR(sorted.add(i));
  }
  return sorted;
}

Failure AdapterTensors::bad(size_t index, const std::string& what, ErrorCode code) const {
  const TensorEntry& entry = source_->entries()[index];
  std::string_view name = entry.name;
  if (!config_->folder.empty()) name.remove_prefix(config_->folder.size() + 1);
  return fail(code, fmt::format("{}: {} {}: {}", config_->tensors, quoted(name),
                                to_string(entry.shape), what));
}

// Sorts a tensor: it is half of a product, or replaces a tensor of the checkpoint.
Status AdapterTensors::add(size_t index) {
  std::string_view name = source_->entries()[index].name;
  if (!config_->folder.empty()) name.remove_prefix(config_->folder.size() + 1);
  if (!name.starts_with(kPrefix))
    return bad(index, "its name does not begin with base_model.model.");
  name.remove_prefix(kPrefix.size());
  for (const HalfName& half : kHalves) {
    const size_t at = name.rfind(half.part);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = name.substr(at + half.part.size());
    const bool ends =
        rest.empty() || rest == ".weight" || rest == ".default" || rest == ".default.weight";
    if (!ends) continue;
    AdapterHalves& halves = modules_[std::string(name.substr(0, at))];
    if (half.embedding && (halves.a || halves.b) && halves.embedding != *half.embedding) {
      return bad(index, "one half is of an embedding, the other one is not");
    }
    halves.embedding = half.embedding.value_or(halves.embedding);
    std::optional<size_t>& place = halves.*half.place;
    if (place) return bad(index, "the same as " + quoted(source_->entries()[*place].name));
    place = index;
    return {};
  }
  if (name.find("lora_") != std::string_view::npos) return bad(index, "a tensor of no known kind");
  const auto [place, is_new] = saved_.emplace(without_base_layer(name), index);
  if (!is_new) {
    return bad(index, "the same as " + quoted(source_->entries()[place->second].name));
  }
  return {};
}

Status AdapterTensors::expect_floats(size_t index) const {
  const TensorEntry& entry = source_->entries()[index];
  if (is_castable(entry.dtype) && entry.encoding == nullptr) return {};
  return bad(index, fmt::format("is {}, expected f32, f16 or bf16", entry.form()));
}

Status AdapterTensors::check_halves(std::string_view module, const AdapterHalves& halves) const {
  if (!halves.a || !halves.b) return bad(halves.any(), "the other half of the adapter is missing");
  if (config_->has_magnitudes && !halves.magnitude) {
    return bad(*halves.a, "the magnitudes of the module are missing ('use_dora' is true)");
  }
  if (!config_->has_magnitudes && halves.magnitude) {
    return bad(*halves.magnitude, "a magnitude, but 'use_dora' is not true");
  }
  if (config_->has_target(module)) return {};
  return bad(*halves.a,
             fmt::format("'target_modules' of {} does not name its module", config_->name));
}

Status AdapterTensors::check_shapes(const AdapterHalves& halves, const std::string& key,
                                    const Shape& shape, const Shape& a, const Shape& b) const {
  const int64_t rank = a.front();
  std::vector<std::pair<size_t, Shape>> all = {{*halves.a, a}, {*halves.b, b}};
  if (halves.magnitude) all.emplace_back(*halves.magnitude, Shape{b.front()});
  for (const auto& [index, expected] : all) {
    if (source_->entries()[index].shape != expected) {
      return bad(index, fmt::format("expected {} for {} {} and rank {}", to_string(expected),
                                    quoted(key), to_string(shape), rank));
    }
    FERRY_RETURN_IF_ERROR(expect_floats(index));
  }
  return {};
}

}  // namespace ferry::converters
