// plan_export(): a checkpoint becomes files of another format. An export shares the mapping of keys
// with conversions to bundles, and the writing of files. A format adds one function, which plans
// its files.
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
  kMmproj,       // the vision encoder alone, as llama.cpp has it beside a GGUF file
  kPth,          // PyTorch, for export_llama
  kBundled,      // a bundled program of ExecuTorch
};
// Returns the name that `--to` takes, such as "safetensors".
std::string_view export_format_name(ExportFormat format);
std::optional<ExportFormat> export_format_of(std::string_view name);

// The words for ExportOptions::type: "auto", and the types of GGUF files.
std::vector<std::string_view> gguf_type_words();

struct ExportOptions {
  plan::ConvertOptions convert;  // source, dtype, max_file_bytes and the options that map keys
  ExportFormat format = ExportFormat::kSafetensors;
  std::string out;  // path of the output; its ending says whether that is one file
  // The following fields are for kGguf and kMmproj only.
  std::string type = "auto";  // one of gguf_type_words(); "auto": as in the checkpoint
  std::string imatrix = {};   // file of an importance matrix, or empty
  std::string model_name = {};
  std::string pre_tokenizer = {};  // tokenizer.ggml.pre; if empty, add_gguf_tokenizer() finds it
  uint64_t max_tensors = 0;        // in a file; 0: unlimited
};

// The files of one format for one model, with a recipe for each tensor in them.
struct PlannedFiles {
  packer::WeightFilesInput files;
  // Maps each weight of the model whose name differs in the files to the tensors that hold it. The
  // mapping report of the export shows these names.
  std::map<std::string, std::vector<std::string>> targets = {};
  std::vector<std::string> notes = {};  // lines for the user
};

// The dtype that all floats become; nullopt for kKeep, where every tensor keeps its own dtype.
std::optional<DType> dtype_of(graph::WeightDType dtype);

// The planners of the formats. A planner may move from `model`, except from its checkpoint.
// kUnsupported, with the name of the feature, if the format cannot express the model; kUsage for
// options that do not fit the format.
Result<PlannedFiles> plan_safetensors_files(plan::MappedModel& model, const ExportOptions& options);
Result<PlannedFiles> plan_hugging_face_files(plan::MappedModel& model,
                                             const ExportOptions& options);
Result<PlannedFiles> plan_gguf_files(plan::MappedModel& model, const ExportOptions& options);
Result<PlannedFiles> plan_mmproj_files(plan::MappedModel& model, const ExportOptions& options);
Result<PlannedFiles> plan_pth_files(plan::MappedModel& model, const ExportOptions& options);
Result<PlannedFiles> plan_bundled_files(plan::MappedModel& model, const ExportOptions& options);

// A planned export: everything that the plan refers to, and what the conversion reports. The
// targets of `mapping` are names of tensors in the files. Move-only.
struct Export {
  plan::MappedCheckpoint mapped;
  std::optional<packer::WeightFilesPlan> plan;  // empty if there are problems
};

// Plans the export of a checkpoint or a bundle. Keys that do not fit the model are returned as
// MappedCheckpoint::problems, not as an error. The weights of a checkpoint are not read, except to
// compare tensors that the config declares equal. Every byte of a bundle is read, to check its
// digests.
Result<Export> plan_export(const ExportOptions& options, ThreadPool& pool);

}  // namespace ferry::conversion
