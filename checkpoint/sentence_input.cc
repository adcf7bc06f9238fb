#include "checkpoint/checkpoint_input.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "converters/config/json_fields.h"
#include "converters/config/sentence_config.h"
#include "core/derived_source.h"
#include "core/directory.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::checkpoint {
namespace {

constexpr uint64_t kMaxModuleConfigBytes = uint64_t{16} << 20;
constexpr const char* kModules = "modules.json";
constexpr const char* kCrossEncoder = "config_sentence_transformers.json";
constexpr const char* kModuleTensors[] = {"model.safetensors", "pytorch_model.bin"};

// Returns the text of FILE or FOLDER/FILE; nullopt where there is no such file.
Result<std::optional<std::string>> read_beside(const Directory& directory,
                                               const std::string& path) {
  const size_t slash = path.find('/');
  if (slash != std::string::npos) {
    const std::string folder = path.substr(0, slash);
    if (!directory.contains(folder)) return std::optional<std::string>();
    const Directory inner = FERRY_TRY(directory.open_folder(folder));
    return read_beside(inner, path.substr(slash + 1));
  }
  if (!directory.contains(path)) return std::optional<std::string>();
  const InputFile file = FERRY_TRY(open_in_checkpoint(directory, path));
  return std::optional(FERRY_TRY(read_text(file, kMaxModuleConfigBytes)));
}

Result<std::unique_ptr<TensorSource>> open_module(const Directory& directory,
                                                  const std::string& folder) {
  const Directory inner = FERRY_TRY(directory.open_folder(folder));
  for (const char* name : kModuleTensors) {
    if (inner.contains(name)) return open_tensors_in(inner, name);
  }
  return bad_input(fmt::format("{}: neither {} nor {}", printable(inner.path()), kModuleTensors[0],
                               kModuleTensors[1]));
}

Status add_sentence_tensors(const Directory& directory, const converters::SentenceConfig& config,
                            CheckpointInput& input) {
  using Kind = converters::SentenceModule::Kind;
  for (const converters::SentenceModule& module : config.modules) {
    if (module.kind != Kind::kDense) continue;
    std::unique_ptr<TensorSource> tensors = FERRY_TRY(open_module(directory, module.folder));
    auto source = std::make_unique<DerivedSource>(std::move(input.source));
    const size_t first = FERRY_TRY(source->add_source(std::move(tensors), module.folder));
    for (size_t i = first; i < source->entries().size(); ++i) {
      input.tensors.tensors.push_back({source->entries()[i].name, graph::whole_tensor(*source, i)});
    }
    input.source = std::move(source);
  }
  return {};
}

}  // namespace

bool has_sentence_modules(const CheckpointInput& input) {
  if (input.sentence) return true;
  const auto directory = Directory::open(input.directory);
  return !input.directory.empty() && directory && directory->contains(kModules);
}

Status add_sentence_modules(CheckpointInput& input, converters::ModelConfig& config) {
  if (!has_sentence_modules(input)) return {};
  config.sentence = input.sentence;
  if (config.sentence) return {};
  const Directory directory = FERRY_TRY(Directory::open(input.directory));
  const converters::FolderText text = [&directory](const std::string& path) {
    return read_beside(directory, path);
  };
  config.sentence = FERRY_TRY(converters::parse_sentence_config(text, printable(directory.path())));
  return config.sentence ? add_sentence_tensors(directory, *config.sentence, input) : Status();
}

Status read_classifier_folder(const CheckpointInput& input, converters::ModelConfig& config) {
  const auto opened = Directory::open(input.directory);
  if (input.directory.empty() || !opened) return {};
  const Directory& directory = *opened;
  const converters::FolderText text = [&directory](const std::string& path) {
    return read_beside(directory, path);
  };
  const std::string folder = printable(directory.path());
  config.classifier->max_tokens = FERRY_TRY(converters::parse_cross_encoder_folder(text, folder));
  const std::optional<std::string> stated = FERRY_TRY(text(kCrossEncoder));
  if (!stated) return {};
  const std::string name = folder + "/" + kCrossEncoder;
  const nlohmann::json document = FERRY_TRY(parse_json(*stated, name));
  if (!document.is_object()) return bad_input(name + ": not a JSON object");
  return converters::read_cross_encoder({document, name, ""}, *config.classifier);
}

}  // namespace ferry::checkpoint
