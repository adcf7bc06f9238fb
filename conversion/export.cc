#include "conversion/export.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "checkpoint/checkpoint_input.h"
#include "core/text.h"

namespace ferry::conversion {
namespace {

struct Format {
  ExportFormat format;
  std::string_view name;
  Result<PlannedFiles> (*plan)(plan::MappedModel&, const ExportOptions&);
};
constexpr std::array kFormats = {
    Format{ExportFormat::kSafetensors, "safetensors", plan_safetensors_files},
    Format{ExportFormat::kHuggingFace, "hf", plan_hugging_face_files},
    Format{ExportFormat::kGguf, "gguf", plan_gguf_files},
    Format{ExportFormat::kMmproj, "mmproj", plan_mmproj_files},
    Format{ExportFormat::kPth, "pth", plan_pth_files},
    Format{ExportFormat::kBundled, "bpte", plan_bundled_files},
};

const Format& row_of(ExportFormat format) {
  for (const Format& row : kFormats) {
    if (row.format == format) return row;
  }
  return kFormats.front();  // unreachable: a test finds every enumerator in kFormats
}

// Replaces the names of weights in the mapping report by the names of the tensors in the files.
void name_targets(converters::MappingReport& mapping,
                  const std::map<std::string, std::vector<std::string>>& targets) {
  for (converters::MappedEntry& entry : mapping.entries) {
    std::vector<std::string> names;
    for (const std::string& weight : entry.targets) {
      const auto found = targets.find(weight);
      if (found == targets.end()) {
        names.push_back(weight);
      } else {
        names.insert(names.end(), found->second.begin(), found->second.end());
      }
    }
    entry.targets = std::move(names);
  }
}

}  // namespace

std::string_view export_format_name(ExportFormat format) { return row_of(format).name; }

std::optional<ExportFormat> export_format_of(std::string_view name) {
  for (const Format& row : kFormats) {
    if (row.name == name) return row.format;
  }
  return std::nullopt;
}

std::optional<DType> dtype_of(graph::WeightDType dtype) {
  switch (dtype) {
    case graph::WeightDType::kF32:
      return DType::kF32;
    case graph::WeightDType::kF16:
      return DType::kF16;
    case graph::WeightDType::kBF16:
      return DType::kBF16;
    case graph::WeightDType::kKeep:
      break;
  }
  return std::nullopt;
}

Result<Export> plan_export(const ExportOptions& options, ThreadPool& pool) {
  plan::ConvertOptions convert = options.convert;
  if (options.format == ExportFormat::kMmproj) convert.inputs = converters::Inputs{.images = true};
  checkpoint::CheckpointInput input =
      checkpoint::is_bundle(convert.source)
          ? FERRY_TRY(checkpoint::open_bundle_input(convert.source, convert.config, pool))
          : FERRY_TRY(checkpoint::open_checkpoint_input(convert.source, convert.config,
                                                        convert.lora, convert.mmproj));
  if (checkpoint::is_bundle(convert.source) && !convert.lora.empty()) {
    FERRY_RETURN_IF_ERROR(checkpoint::merge_adapter(input, convert.lora));
  }
  plan::MappedModel model = FERRY_TRY(plan::map_checkpoint(convert, std::move(input)));
  // plan_gguf_files() says which encoders GGUF can state.
  if (model.checkpoint.config.is_encoder && options.format != ExportFormat::kGguf) {
    return fail_field(ErrorCode::kUnsupported, "to",
                      fmt::format(" {}: {} is an encoder, which becomes a bundle only",
                                  row_of(options.format).name, printable(convert.source)));
  }
  if (model.checkpoint.config.number(converters::kRoundedInputs) != 0) {
    return fail_field(ErrorCode::kUnsupported, "to",
                      fmt::format(" {}: {} rounds the inputs of its matrices, which only a bundle "
                                  "can state",
                                  row_of(options.format).name, printable(convert.source)));
  }
  Export out;
  if (model.checkpoint.problems.empty()) {
    PlannedFiles planned = FERRY_TRY(row_of(options.format).plan(model, options));
    name_targets(model.checkpoint.mapping, planned.targets);
    for (std::string& note : planned.notes) model.checkpoint.notes.push_back(std::move(note));
    out.plan = FERRY_TRY(
        packer::WeightFilesPlan::make(std::move(planned.files), *model.checkpoint.source));
  }
  out.mapped = std::move(model.checkpoint);
  return out;
}

}  // namespace ferry::conversion
