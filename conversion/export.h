// plan_export(): a checkpoint becomes files of another format. The part before is that of a
// conversion to a bundle, and so is the writing; a format adds one function, which plans its files.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/weight_files.h"
#include "plan/conversion.h"
#include "plan/mapped_model.h"

namespace ferry::conversion {

enum class ExportFormat {
  kSafetensors,  // runtime names
  kHuggingFace,  // keys of a Hugging Face checkpoint
  kGguf,         // docs/gguf.md
  kPth,          // PyTorch, for export_llama
  kBundled,      // a bundled program of ExecuTorch
};
// "safetensors".
std::string_view export_format_name(ExportFormat format);
std::optional<ExportFormat> export_format_of(std::string_view name);

struct ExportOptions {
  plan::ConvertOptions convert;  // source, dtype, max_file_bytes and what maps the keys
  ExportFormat format = ExportFormat::kSafetensors;
  std::string out;  // the target, where it is known: its name says whether it is a file
  // For kGguf only.
  std::string type = "auto";  // a name of gguf_file_type_of(), or that of the checkpoint
  std::string model_name = {};
  std::string pre_tokenizer = {};  // tokenizer.ggml.pre; empty: found by add_gguf_tokenizer()
  uint64_t max_tensors = 0;        // of a file; 0: unlimited
};

// What the planner of a format makes of a model.
struct PlannedFiles {
  packer::WeightFilesInput files;
  // Weight of the model -> tensors of the files that hold it, where the names differ. For the
  // account of every key.
  std::map<std::string, std::vector<std::string>> targets = {};
  std::vector<std::string> notes = {};  // lines for the user
};

// The dtype that all floats become; nullopt where they keep theirs.
std::optional<DType> dtype_of(graph::WeightDType dtype);

// The planners. `model` is theirs to move from, but for its checkpoint. Errors: kUnsupported, by
// name, for what the format cannot say; kUsage for options that do not fit it.
Result<PlannedFiles> plan_safetensors_files(plan::MappedModel& model, const ExportOptions& options);
Result<PlannedFiles> plan_hugging_face_files(plan::MappedModel& model,
                                             const ExportOptions& options);
Result<PlannedFiles> plan_gguf_files(plan::MappedModel& model, const ExportOptions& options);
Result<PlannedFiles> plan_pth_files(plan::MappedModel& model, const ExportOptions& options);
Result<PlannedFiles> plan_bundled_files(plan::MappedModel& model, const ExportOptions& options);

// Everything that the plan refers to, and what there is to say about it. Targets of the mapping are
// names of tensors in the files. Move-only.
struct Export : plan::MappedCheckpoint {
  std::optional<packer::WeightFilesPlan> plan;  // none if there are problems
};

// The source is a checkpoint or a bundle. Keys that do not fit the model come back as problems, not
// as an error. Reads no weight of a checkpoint, except to compare tensors that the config calls
// equal; of a bundle every byte, to check it.
Result<Export> plan_export(const ExportOptions& options, ThreadPool& pool);

}  // namespace ferry::conversion
