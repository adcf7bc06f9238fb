// Conversion of GGUF to GGUF copies keys and blocks, or converts tensors to another type.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "checkpoint/checkpoint.h"
#include "conversion/gguf_files.h"
#include "conversion/gguf_importance.h"
#include "converters/quantized/weights.h"
#include "core/text.h"
#include "dialects/gguf/file/dequant.h"
#include "dialects/gguf/file/gguf.h"
#include "dialects/gguf/model/written_types.h"

namespace ferry::conversion {
namespace {

using converters::GgufElement;
using converters::GgufFileType;

std::vector<GgufKeyValue> stored_keys(const formats::GgufMetadata& metadata) {
  std::vector<GgufKeyValue> keys;
  for (const formats::GgufItem& item : metadata.items()) {
    if (formats::is_gguf_layout_key(item.key)) continue;
    const std::span<const std::byte> bytes = metadata.stored(item);
    keys.push_back({item.key, GgufStoredValue{{bytes.begin(), bytes.end()}}});
  }
  return keys;
}

void set_key(std::vector<GgufKeyValue>& keys, const std::string& key, GgufValue value) {
  const auto found = std::ranges::find(keys, key, &GgufKeyValue::key);
  if (found == keys.end()) {
    keys.push_back({key, std::move(value)});
  } else {
    found->value = std::move(value);
  }
}

Result<uint32_t> copied_type(const TensorEntry& entry) {
  const formats::GgufType* type = formats::find_gguf_type(entry.dtype, entry.encoding);
  if (type != nullptr) return type->id;
  return fail(ErrorCode::kInternal, fmt::format("{} is of no type of GGUF", quoted(entry.name)));
}

// Names and shapes of the tensors. Blocks of MXFP4 are marked as unchanged unless an adapter
// changes them.
std::vector<converters::GgufNamedShape> named_shapes(
    const std::vector<TensorEntry>& entries, const std::map<std::string, graph::Recipe>& merged) {
  std::vector<converters::GgufNamedShape> shapes;
  for (const TensorEntry& entry : entries) {
    const bool mxfp4 = entry.form() == converters::kMxfp4Name && !merged.contains(entry.name);
    shapes.push_back({entry.name, entry.shape, mxfp4});
  }
  return shapes;
}

// The types of `tensors` in a file of type `type`; empty if tensors keep their types.
std::vector<GgufElement> chosen_types(const std::vector<converters::GgufNamedShape>& shapes,
                                      const converters::ModelConfig& config,
                                      std::optional<GgufFileType> type, bool has_importance) {
  if (!type) return {};
  const auto* architecture = converters::gguf_architecture_of(config);
  return converters::choose_gguf_types(shapes, *type,
                                       architecture == nullptr
                                           ? converters::GgufModelSizes{}
                                           : converters::gguf_model_sizes(*architecture, config),
                                       has_importance);
}

// Recipes of the tensors that an adapter changes, under their GGUF names. The tensors of the file
// are the first tensors of the source.
Result<std::map<std::string, graph::Recipe>> merged_tensors(const plan::MappedModel& model,
                                                            size_t stored, PlannedFiles& planned) {
  const auto* architecture = converters::gguf_architecture_of(model.checkpoint.config);
  if (architecture == nullptr) {
    return fail_field(
        ErrorCode::kUnsupported, "lora",
        fmt::format(": {}: Ferry writes no GGUF of {}", printable(model.checkpoint.source->path()),
                    quoted(model.checkpoint.config.text_type)));
  }
  GgufModelTensors made = FERRY_TRY(gguf_model_tensors(model, *architecture));
  std::map<std::string, graph::Recipe> merged;
  for (converters::GgufWrittenTensor& tensor : made.written) {
    const bool changed = std::ranges::any_of(
        tensor.recipe.pieces, [&](const StridedPiece& piece) { return piece.tensor >= stored; });
    if (changed) merged.emplace(tensor.name, std::move(tensor.recipe));
  }
  planned.targets = std::move(made.targets);
  return merged;
}

// The type of a tensor that an adapter has changed, in a file whose tensors keep their types.
Result<GgufElement> kept_type(const TensorEntry& entry) {
  const uint32_t id = FERRY_TRY(copied_type(entry));
  if (const auto element = converters::gguf_element_of(id)) return *element;
  return Failure(Error{
      .code = ErrorCode::kUnsupported,
      .message = fmt::format("{} has an adapter merged into it and is of type {}, which Ferry does "
                             "not write: choose a type with outtype",
                             quoted(entry.name), entry.form()),
      .field = "outtype"});
}

// Plans the tensors of the file. Blocks are copied, except for tensors that get another type and
// tensors in `merged`.
Result<std::vector<GgufTensor>> copied_tensors(const TensorSource& source,
                                               std::span<const TensorEntry> entries,
                                               std::span<const GgufElement> types,
                                               std::map<std::string, graph::Recipe> merged,
                                               GgufImportance& importance) {
  std::vector<GgufTensor> tensors;
  for (size_t i = 0; i < entries.size(); ++i) {
    const TensorEntry& entry = entries[i];
    GgufTensor& tensor = tensors.emplace_back();
    tensor.name = entry.name;
    tensor.shape = entry.shape;
    tensor.type = FERRY_TRY(copied_type(entry));
    tensor.recipe = graph::whole_tensor(source, i);
    auto changed = merged.extract(entry.name);
    const bool same = types.empty() || converters::gguf_type_id(types[i]) == tensor.type;
    if (!changed.empty()) tensor.recipe = std::move(changed.mapped());
    if (!changed.empty() || !same) {
      const GgufElement type = types.empty() ? FERRY_TRY(kept_type(entry)) : types[i];
      tensor.type = converters::gguf_type_id(type);
      auto numbers = FERRY_TRY(importance.of(entry.name, entry.shape, type));
      FERRY_RETURN_IF_ERROR(
          converters::apply_gguf_type(tensor.recipe, type, source, entry.name, std::move(numbers)));
    } else if (entry.encoding != nullptr) {
      FERRY_RETURN_IF_ERROR(tensor.recipe.take_blocks(source, entry.name));
    }
  }
  if (merged.empty()) return tensors;
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: the file has no tensor {}, which the adapter changes",
                          printable(source.path()), quoted(merged.begin()->first)));
}

}  // namespace

Result<PlannedFiles> plan_gguf_copy(plan::MappedModel& model, const ExportOptions& options) {
  if (!options.pre_tokenizer.empty()) {
    return fail_field(
        ErrorCode::kUsage, "tokenizer_pre",
        fmt::format(": the keys of {} are copied as they are", printable(options.convert.source)));
  }
  const checkpoint::Checkpoint opened =
      FERRY_TRY(checkpoint::open_checkpoint(options.convert.source));
  const auto* metadata = std::get_if<formats::GgufMetadata>(&opened.extra);
  if (metadata == nullptr) return fail(ErrorCode::kInternal, "no GGUF file");
  std::vector<GgufKeyValue> keys = stored_keys(*metadata);
  if (!options.model_name.empty()) set_key(keys, "general.name", options.model_name);

  const std::vector<TensorEntry>& entries = opened.source->entries();
  PlannedFiles planned;
  for (const converters::MappedEntry& entry : model.checkpoint.mapping.entries) {
    for (const std::string& weight : entry.targets) planned.targets[weight] = {entry.source};
  }
  std::map<std::string, graph::Recipe> merged;
  if (!options.convert.lora.empty()) {
    merged = FERRY_TRY(merged_tensors(model, entries.size(), planned));
  }
  const auto type = converters::gguf_file_type_of(options.type);
  const std::vector<converters::GgufNamedShape> shapes = named_shapes(entries, merged);
  const bool has_mxfp4 = std::ranges::any_of(shapes, &converters::GgufNamedShape::is_mxfp4);
  if (type) set_key(keys, "general.file_type", converters::gguf_file_type_number(*type, has_mxfp4));
  GgufImportance importance = FERRY_TRY(GgufImportance::open(options, type));
  std::vector<GgufTensor> tensors = FERRY_TRY(
      copied_tensors(*model.checkpoint.source, entries,
                     chosen_types(shapes, model.checkpoint.config, type, importance.is_given()),
                     std::move(merged), importance));
  planned.notes = FERRY_TRY(importance.notes());
  if (type && converters::gguf_file_type_info(*type).mixed) sort_as_quantized(keys, tensors);
  planned.files = FERRY_TRY(gguf_files(keys, std::move(tensors), options));
  return planned;
}

}  // namespace ferry::conversion
