#include "cli/checkpoint_input.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "converters/gguf/adopt.h"
#include "core/file.h"
#include "core/text.h"
#include "formats/checkpoint.h"
#include "formats/gguf/gguf.h"

namespace ferry::cli {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr const char* kConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";

// Taken into the bundle as they are, where the checkpoint has them. config.json comes apart.
constexpr const char* kCopied[] = {
    kGenerationConfig,         "tokenizer.json",      "tokenizer_config.json",
    "special_tokens_map.json", "chat_template.jinja", "preprocessor_config.json",
};

// Path of a file of the checkpoint, or an empty string where there is none.
Result<std::string> optional_file(const std::string& directory, const std::string& name) {
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(directory + "/" + name, ignored);
  if (!std::filesystem::exists(status)) return std::string();
  return file_in_checkpoint(directory, name);
}

// The path of the config.json to use.
Result<std::string> find_config(const std::string& path, const std::string& config) {
  if (!config.empty()) return config;
  std::string found = FERRY_TRY(optional_file(checkpoint_directory(path), kConfig));
  if (!found.empty()) return found;
  return bad_input(
      fmt::format("{}: no config.json beside the checkpoint; give --config FILE", path));
}

// Checkpoints with Hugging Face names, and the files beside them.
Status add_files_beside(CheckpointInput& input, const std::string& path,
                        const std::string& config) {
  input.config_name = FERRY_TRY(find_config(path, config));
  input.config = FERRY_TRY(read_text_file(input.config_name, kMaxConfigBytes));
  input.copied.push_back({kConfig, input.config_name});
  for (const char* name : kCopied) {
    std::string file = FERRY_TRY(optional_file(checkpoint_directory(path), name));
    if (file.empty()) continue;
    if (std::string_view(name) == kGenerationConfig) {
      input.generation = FERRY_TRY(read_text_file(file, kMaxConfigBytes));
    }
    input.copied.push_back({name, std::move(file)});
  }
  return {};
}

// GGUF brings its own names and metadata instead of files.
Status adopt(CheckpointInput& input, const GgufMetadata& metadata, const std::string& config) {
  std::string text;
  if (!config.empty()) text = FERRY_TRY(read_text_file(config, kMaxConfigBytes));
  const nlohmann::json keys = FERRY_TRY(metadata.to_json());
  AdoptedGguf adopted = FERRY_TRY(adopt_gguf(std::move(input.source), keys, text, config));
  input.source = std::move(adopted.source);
  input.config = std::move(adopted.config);
  input.config_name = std::move(adopted.config_name);
  input.generation = std::move(adopted.generation);
  input.format_rules = std::move(adopted.format_rules);
  input.copied.push_back({kConfig, {}, input.config});
  if (!input.generation.empty()) input.copied.push_back({kGenerationConfig, {}, input.generation});
  if (adopted.tokenizer.missing.empty()) {
    input.copied.push_back({"tokenizer.json", {}, std::move(adopted.tokenizer.tokenizer)});
    input.copied.push_back(
        {"tokenizer_config.json", {}, std::move(adopted.tokenizer.tokenizer_config)});
  } else {
    input.notes.push_back(fmt::format("{}: the bundle will have no tokenizer.json: {}",
                                      printable(input.source->path()), adopted.tokenizer.missing));
  }
  return {};
}

// Names of other layouts, whose values differ from those of a Hugging Face checkpoint in ways that
// the names alone do not settle.
struct ForeignName {
  std::string_view start, end, what;
};
constexpr ForeignName kForeignNames[] = {
    {"blk.", ".weight",
     "the names of GGUF in a file that is not GGUF: whether rows of q and k were permuted and "
     "norms "
     "shifted, as GGUF writers do, cannot be known"},
    {"layers.", ".attention.wq.weight",
     "the names of Meta's own checkpoints, whose rows of q and k are in another order: convert it "
     "to the Hugging Face layout first"},
};

Status refuse_foreign_names(const TensorSource& source) {
  for (const TensorEntry& entry : source.entries()) {
    for (const ForeignName& foreign : kForeignNames) {
      if (!entry.name.starts_with(foreign.start) || !entry.name.ends_with(foreign.end)) continue;
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: {} (tensor {})", printable(source.path()), foreign.what,
                              quoted(entry.name)));
    }
  }
  return {};
}

}  // namespace

Result<CheckpointInput> open_checkpoint_input(const std::string& path, const std::string& config) {
  CheckpointInput input;
  input.source = FERRY_TRY(open_checkpoint(path));
  if (const auto* gguf = dynamic_cast<const GgufSource*>(input.source.get())) {
    FERRY_CHECK(adopt(input, gguf->metadata(), config));
    return input;
  }
  FERRY_CHECK(refuse_foreign_names(*input.source));
  FERRY_CHECK(add_files_beside(input, path, config));
  return input;
}

}  // namespace ferry::cli
