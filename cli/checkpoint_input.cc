#include "cli/checkpoint_input.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <utility>

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

}  // namespace

Result<CheckpointInput> open_checkpoint_input(const std::string& path, const std::string& config) {
  CheckpointInput input;
  input.source = FERRY_TRY(open_checkpoint(path));
  if (dynamic_cast<const GgufSource*>(input.source.get()) != nullptr) {
    // Its names and some of its values are not those that families know.
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: GGUF checkpoints can be inspected, but not converted yet",
                            printable(path)));
  }
  FERRY_CHECK(add_files_beside(input, path, config));
  return input;
}

}  // namespace ferry::cli
