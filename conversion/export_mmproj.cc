// --to mmproj: writes the projector that llama.cpp's converter would write with --mmproj.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conversion/export.h"
#include "conversion/gguf_files.h"
#include "core/file.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "dialects/gguf/model/written_keys.h"
#include "dialects/gguf/model/written_types.h"
#include "dialects/gguf/projector/projector.h"
#include "dialects/gguf/projector/projector_keys.h"
#include "dialects/gguf/projector/projector_tensors.h"
#include "plan/tokenizer_notes.h"

namespace ferry::conversion {
namespace {

using converters::GgufFileType;
using converters::GgufNamedShape;

constexpr const char* kTable = "tok_embeddings.weight";
constexpr uint64_t kMaxProcessorBytes = uint64_t{1} << 20;

Result<std::string> copied_text(const plan::MappedModel& model, std::string_view name) {
  const auto at = std::ranges::find(model.copied, name, &packer::CopiedFile::name);
  if (at == model.copied.end()) return std::string();
  if (at->text) return *at->text;
  return read_text(*at->file, kMaxProcessorBytes);
}

// Returns the type of all matrices of the tower; f32 if they differ.
GgufFileType common_type(const std::vector<converters::ProjectorWrittenTensor>& tensors) {
  std::optional<DType> common;
  for (const converters::ProjectorWrittenTensor& tensor : tensors) {
    const graph::RecipeOutput& made = tensor.recipe.output();
    if (made.shape.size() < 2) continue;
    if (common.value_or(made.dtype) != made.dtype) return GgufFileType::kF32;
    common = made.dtype;
  }
  if (common == DType::kF16) return GgufFileType::kF16;
  return common == DType::kBF16 ? GgufFileType::kBF16 : GgufFileType::kF32;
}

Result<GgufFileType> chosen_type(const ExportOptions& options, GgufFileType otherwise) {
  if (options.type == "auto") return otherwise;
  const auto type = converters::gguf_file_type_of(options.type);
  if (type && !converters::gguf_file_type_info(*type).mixed) return *type;
  return fail_field(
      ErrorCode::kUsage, "outtype",
      fmt::format(" {}: projectors are f32, f16, bf16 or q8_0, or auto", quoted(options.type)));
}

// kUsage for options that are for files of text models.
Status check_options(const ExportOptions& options) {
  const std::pair<const char*, bool> others[] = {
      {"imatrix", !options.imatrix.empty()},
      {"tokenizer-pre", !options.pre_tokenizer.empty()},
      {"max-file-tensors", options.max_tensors > 0},
      {"max-file-size", options.convert.max_file_bytes > 0}};
  for (const auto& [name, given] : others) {
    if (given) return fail_field(ErrorCode::kUsage, name, ": not for projectors");
  }
  return {};
}

const converters::AssembledComponent* tower_of(const plan::MappedModel& model) {
  const auto found = std::ranges::find(model.components, kVisionEncoderRole,
                                       &converters::AssembledComponent::role);
  return found == model.components.end() ? nullptr : &*found;
}

// Adds the embedding of the token between the rows of a picture, where readers take it from the
// projector.
Status add_copied_row(const plan::MappedModel& model, const converters::ProjectorKind& kind,
                      std::vector<converters::ProjectorWrittenTensor>& tensors) {
  if (kind.copied_token.empty()) return {};
  const auto id = plan::token_id_in(model.copied, kind.copied_token);
  const graph::Weight* table = nullptr;
  for (const converters::AssembledComponent& component : model.components) {
    if (table == nullptr) table = component.model.weights.find(kTable);
  }
  const int64_t width = model.checkpoint.config.hidden_size;
  if (!id || *id < 0 || *id >= model.checkpoint.config.vocab_size || table == nullptr) {
    return bad_input(fmt::format("{}: the tokenizer has no {}, whose embedding readers need",
                                 printable(model.config_name), kind.copied_token));
  }
  converters::ProjectorWrittenTensor& row = tensors.emplace_back();
  row.name = kind.copied_row;
  row.recipe = table->recipe;
  const StridedPiece piece = run_piece(0, *id * width, width);
  row.recipe.pieces = select(table->recipe.pieces, std::span(&piece, 1));
  row.recipe.output().shape = {width};
  return {};
}

}  // namespace

Result<PlannedFiles> plan_mmproj_files(plan::MappedModel& model, const ExportOptions& options) {
  FERRY_RETURN_IF_ERROR(check_options(options));
  const converters::ModelConfig& config = model.checkpoint.config;
  const converters::ProjectorKind* kind = converters::projector_kind_of(config);
  const converters::AssembledComponent* tower = tower_of(model);
  if (kind == nullptr || tower == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: 'model_type' is {}: Ferry writes no projector of it",
                            printable(model.config_name), quoted(config.model_type)));
  }
  const TensorSource& source = *model.checkpoint.source;
  std::vector<converters::ProjectorWrittenTensor> written =
      FERRY_TRY(converters::write_projector_tensors(source, tower->model.weights, *kind, config));
  FERRY_RETURN_IF_ERROR(add_copied_row(model, *kind, written));
  const GgufFileType type = FERRY_TRY(chosen_type(options, common_type(written)));
  std::vector<GgufNamedShape> shapes;
  for (const auto& tensor : written) shapes.push_back({tensor.name, tensor.recipe.output().shape});
  converters::ProjectorKeysInput input{.kind = kind,
                                       .config = &config,
                                       .config_text = model.config_text,
                                       .config_name = model.config_name,
                                       .generation_text = model.generation_text,
                                       .name = options.model_name,
                                       .size_label = converters::gguf_size_label(shapes),
                                       .type = type};
  input.preprocessor_text = FERRY_TRY(copied_text(model, "preprocessor_config.json"));
  input.processor_text = FERRY_TRY(copied_text(model, "processor_config.json"));
  const std::vector<GgufKeyValue> keys = FERRY_TRY(converters::projector_keys(input));
  const std::vector<converters::GgufElement> types =
      converters::choose_projector_types(shapes, *kind, type);
  PlannedFiles planned;
  std::vector<GgufTensor> tensors;
  for (size_t i = 0; i < written.size(); ++i) {
    GgufTensor& tensor = tensors.emplace_back();
    tensor.name = written[i].name;
    tensor.shape = written[i].recipe.output().shape;
    tensor.type = converters::gguf_type_id(types[i]);
    tensor.recipe = std::move(written[i].recipe);
    FERRY_RETURN_IF_ERROR(
        converters::apply_gguf_type(tensor.recipe, types[i], source, tensor.name));
    for (const std::string& weight : written[i].weights) {
      planned.targets[weight].push_back(tensor.name);
    }
  }
  planned.files = FERRY_TRY(gguf_files(keys, std::move(tensors), options));
  return planned;
}

}  // namespace ferry::conversion
