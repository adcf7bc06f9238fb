// GGUF to GGUF: keys and blocks as they are stored, or tensors of another type.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "converters/adapters/gguf/written_types.h"
#include "core/text.h"
#include "formats/checkpoint.h"
#include "formats/gguf/dequant.h"
#include "pipeline/gguf_files.h"

namespace ferry::pipeline {
namespace {

using converters::GgufElement;
using converters::GgufFileType;

constexpr const char* kSplitKeys[] = {"split.no", "split.count", "split.tensors.count"};

std::vector<GgufKeyValue> stored_keys(const formats::GgufMetadata& metadata) {
  std::vector<GgufKeyValue> keys;
  for (const formats::GgufItem& item : metadata.items()) {
    if (std::ranges::count(kSplitKeys, item.key) > 0 || item.key == "general.alignment") continue;
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

Result<uint32_t> stored_type(const TensorEntry& entry) {
  const formats::GgufType* type = formats::find_gguf_type(entry.dtype, entry.encoding);
  if (type != nullptr) return type->id;
  return fail(ErrorCode::kInternal, fmt::format("{} is of no type of GGUF", quoted(entry.name)));
}

}  // namespace

Result<PlannedFiles> plan_gguf_copy(MappedModel& model, const ExportOptions& options) {
  const formats::Checkpoint opened = FERRY_TRY(formats::open_checkpoint(options.convert.source));
  const auto* metadata = std::get_if<formats::GgufMetadata>(&opened.extra);
  if (metadata == nullptr) return fail(ErrorCode::kInternal, "no GGUF file");
  std::vector<GgufKeyValue> keys = stored_keys(*metadata);
  if (!options.model_name.empty()) set_key(keys, "general.name", options.model_name);

  const TensorSource& source = *model.checkpoint.source;
  const auto type = converters::gguf_file_type_of(options.type);
  std::vector<converters::GgufNamedShape> shapes;
  for (const TensorEntry& entry : source.entries()) shapes.push_back({entry.name, entry.shape});
  std::vector<GgufElement> types;
  if (type) {
    const auto* architecture = converters::gguf_architecture_of(model.checkpoint.config.text_type);
    types = converters::choose_gguf_types(
        shapes, *type,
        architecture == nullptr
            ? converters::GgufModelSizes{}
            : converters::gguf_model_sizes(*architecture, model.checkpoint.config));
    set_key(keys, "general.file_type", converters::gguf_file_type_info(*type).number);
  }
  std::vector<GgufTensor> tensors;
  for (size_t i = 0; i < source.entries().size(); ++i) {
    const TensorEntry& entry = source.entries()[i];
    GgufTensor& tensor = tensors.emplace_back();
    tensor.name = entry.name;
    tensor.shape = entry.shape;
    tensor.type = FERRY_TRY(stored_type(entry));
    tensor.recipe = graph::whole_tensor(source, i);
    const bool same = !type || converters::gguf_type_id(types[i]) == tensor.type;
    if (!same) {
      tensor.type = converters::gguf_type_id(types[i]);
      FERRY_RETURN_IF_ERROR(converters::apply_gguf_type(tensor.recipe, types[i], entry.name));
    } else if (entry.encoding != nullptr) {
      FERRY_RETURN_IF_ERROR(tensor.recipe.take_blocks(source, entry.name));
    }
  }
  if (type && converters::gguf_file_type_info(*type).mixed) sort_as_quantized(keys, tensors);
  PlannedFiles planned;
  for (const converters::MappedEntry& entry : model.checkpoint.mapping.entries) {
    for (const std::string& weight : entry.targets) planned.targets[weight] = {entry.source};
  }
  planned.files = FERRY_TRY(gguf_files(keys, std::move(tensors), options));
  return planned;
}

}  // namespace ferry::pipeline
