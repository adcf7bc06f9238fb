// --to gguf: writes the file that llama.cpp's converter, or its llama-quantize, would write.
#include <fmt/format.h>
#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conversion/export.h"
#include "conversion/gguf_files.h"
#include "conversion/gguf_importance.h"
#include "core/file.h"
#include "core/gguf_key_value.h"
#include "core/result.h"
#include "core/text.h"
#include "dialects/gguf/model/architecture.h"
#include "dialects/gguf/model/written_keys.h"
#include "dialects/gguf/model/written_types.h"
#include "dialects/gguf/tokenizer/tokenizer_keys.h"
#include "plan/mapped_model.h"

namespace ferry::conversion {
namespace {

using converters::GgufElement;
using converters::GgufFileType;
using converters::GgufNamedShape;
using converters::GgufWrittenTensor;

constexpr std::string_view kAuto = "auto";

// Returns the type that all matrices except MXFP4 ones are stored in; f32 if they differ.
GgufFileType stored_type(const std::vector<GgufWrittenTensor>& tensors,
                         const TensorSource& source) {
  std::optional<DType> common;
  for (const GgufWrittenTensor& tensor : tensors) {
    const graph::RecipeOutput& made = tensor.recipe.output();
    if (made.shape.size() < 2 || converters::is_stored_mxfp4(tensor.recipe, source)) continue;
    if (common.value_or(made.dtype) != made.dtype) return GgufFileType::kF32;
    common = made.dtype;
  }
  if (common == DType::kF16) return GgufFileType::kF16;
  return common == DType::kBF16 ? GgufFileType::kBF16 : GgufFileType::kF32;
}

std::vector<std::byte> f32_bytes(const std::vector<float>& values) {
  const auto all = std::as_bytes(std::span(values));
  return {all.begin(), all.end()};
}

// Moves MXFP4 tensors to the front, where llama.cpp's converter writes them. Returns their number.
int64_t put_mxfp4_first(std::vector<GgufWrittenTensor>& written, const TensorSource& source) {
  const auto is_mxfp4 = [&](const GgufWrittenTensor& tensor) {
    return converters::is_stored_mxfp4(tensor.recipe, source);
  };
  return std::stable_partition(written.begin(), written.end(), is_mxfp4) - written.begin();
}

// Gives every tensor its type, and puts the tensors of RoPE factors first.
Result<std::vector<GgufTensor>> typed(std::vector<GgufWrittenTensor> written, GgufFileType type,
                                      const converters::GgufModelSizes& sizes,
                                      GgufImportance& importance, const plan::MappedModel& model) {
  const converters::ModelConfig& config = model.checkpoint.config;
  const TensorSource& source = *model.checkpoint.source;
  std::vector<GgufTensor> tensors;
  for (const converters::GgufRopeTensor& rope : converters::gguf_rope_tensors(config)) {
    GgufTensor& tensor = tensors.emplace_back();
    tensor.name = rope.name;
    tensor.shape = {static_cast<int64_t>(rope.values.size())};
    tensor.type = converters::gguf_type_id(GgufElement::kF32);
    tensor.bytes = f32_bytes(rope.values);
  }
  std::vector<GgufNamedShape> shapes;
  for (const GgufWrittenTensor& tensor : written) {
    shapes.push_back({tensor.name, tensor.recipe.output().shape,
                      converters::is_stored_mxfp4(tensor.recipe, source)});
  }
  const std::vector<GgufElement> types =
      converters::choose_gguf_types(shapes, type, sizes, importance.is_given());
  for (size_t i = 0; i < written.size(); ++i) {
    GgufTensor& tensor = tensors.emplace_back();
    tensor.name = written[i].name;
    tensor.shape = shapes[i].shape;
    tensor.type = converters::gguf_type_id(types[i]);
    tensor.recipe = std::move(written[i].recipe);
    auto numbers = FERRY_TRY(importance.of(tensor.name, tensor.shape, types[i]));
    FERRY_RETURN_IF_ERROR(converters::apply_gguf_type(tensor.recipe, types[i], source, tensor.name,
                                                      std::move(numbers)));
  }
  return tensors;
}

std::string size_label(const std::vector<GgufTensor>& tensors) {
  std::vector<GgufNamedShape> shapes;
  for (const GgufTensor& tensor : tensors) shapes.push_back({tensor.name, tensor.shape});
  return converters::gguf_size_label(shapes);
}

// Reads the files that a conversion copies. config.json is the config of the model, which an option
// may have replaced.
text::ReadFile model_files(const plan::MappedModel& model) {
  return [&model](const std::string& name, uint64_t limit) -> Result<std::string> {
    if (name == "config.json") return model.config_text;
    const auto at = std::ranges::find(model.copied, name, &packer::CopiedFile::name);
    if (at == model.copied.end()) return std::string();
    if (at->text) return *at->text;
    return read_text(*at->file, limit);
  };
}

// Appends the keys of the tokenizer to `keys`; an existing key keeps its place and gets the new
// value. `pre` is the name of the pre-tokenizer, or empty; see
// dialects/gguf/tokenizer/tokenizer_keys.h. `notes` gets a line for everything that readers of the
// file will do differently from the checkpoint.
Status add_gguf_tokenizer(const plan::MappedModel& model,
                          const converters::GgufArchitecture& architecture, const std::string& pre,
                          std::vector<GgufKeyValue>& keys, std::vector<std::string>& notes) {
  text::GgufTokenizerOptions options;
  options.architecture =
      architecture.tokenizer.empty() ? architecture.name : architecture.tokenizer;
  options.vocab_size = model.checkpoint.config.vocab_size;
  options.token_types = model.checkpoint.config.number(converters::kTokenTypes);
  options.pre = pre;
  text::GgufTokenizerKeys made = FERRY_TRY(text::gguf_tokenizer_keys(model_files(model), options));
  for (GgufKeyValue& item : made.keys) {
    const auto at = std::ranges::find(keys, item.key, &GgufKeyValue::key);
    if (at == keys.end()) {
      keys.push_back(std::move(item));
    } else {
      at->value = std::move(item.value);
    }
  }
  std::ranges::move(made.notes, std::back_inserter(notes));
  return {};
}

}  // namespace

std::vector<std::string_view> gguf_type_words() {
  std::vector<std::string_view> words = {kAuto};
  for (const converters::GgufFileTypeInfo& type : converters::gguf_file_types()) {
    words.push_back(type.name);
  }
  return words;
}

Result<PlannedFiles> plan_gguf_files(plan::MappedModel& model, const ExportOptions& options) {
  if (options.type != kAuto && !converters::gguf_file_type_of(options.type)) {
    return fail_field(ErrorCode::kUsage, "outtype",
                      fmt::format(" is {}, which is no type", quoted(options.type)));
  }
  if (is_gguf_source(model)) return plan_gguf_copy(model, options);
  const converters::ModelConfig config = gguf_config(model);
  converters::GgufKeysInput input{.architecture = converters::gguf_architecture_of(config),
                                  .config = &config,
                                  .config_text = model.config_text,
                                  .config_name = model.config_name,
                                  .generation_text = model.generation_text,
                                  .name = options.model_name};
  if (input.architecture == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: 'model_type' is {}: Ferry writes no GGUF of it",
                            printable(model.config_name), quoted(config.text_type)));
  }
  FERRY_RETURN_IF_ERROR(converters::check_gguf_limits(input));
  GgufModelTensors made = FERRY_TRY(gguf_model_tensors(model, *input.architecture));
  PlannedFiles planned;
  planned.targets = std::move(made.targets);
  input.layer_numbers = std::move(made.layer_numbers);
  planned.notes = converters::gguf_limit_notes(input);
  const TensorSource& source = *model.checkpoint.source;
  input.type =
      converters::gguf_file_type_of(options.type).value_or(stored_type(made.written, source));
  const int64_t mxfp4 = put_mxfp4_first(made.written, source);
  input.has_mxfp4 = mxfp4 > 0;
  if (mxfp4 > 0) {
    planned.notes.push_back(fmt::format(
        "{} tensors of the file keep their MXFP4 blocks, whatever type was chosen for the file",
        mxfp4));
  }
  GgufImportance importance = FERRY_TRY(GgufImportance::open(options, input.type));
  std::vector<GgufTensor> tensors = FERRY_TRY(
      typed(std::move(made.written), input.type,
            converters::gguf_model_sizes(*input.architecture, config), importance, model));
  std::ranges::move(FERRY_TRY(importance.notes()), std::back_inserter(planned.notes));
  input.size_label = size_label(tensors);
  std::vector<GgufKeyValue> keys = FERRY_TRY(converters::gguf_model_keys(input));
  FERRY_RETURN_IF_ERROR(
      add_gguf_tokenizer(model, *input.architecture, options.pre_tokenizer, keys, planned.notes));
  if (converters::gguf_file_type_info(input.type).mixed) sort_as_quantized(keys, tensors);
  planned.files = FERRY_TRY(gguf_files(keys, std::move(tensors), options));
  return planned;
}

}  // namespace ferry::conversion
