#include "checkpoint/checkpoint_input.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/python_json.h"
#include "converters/config/model_config.h"
#include "converters/quantized/adopt.h"
#include "core/derived_source.h"
#include "core/directory.h"
#include "core/file.h"
#include "core/text.h"
#include "dialects/gguf/model/adopt.h"
#include "dialects/gguf/projector/adopt_projector.h"
#include "dialects/keras/config.h"
#include "dialects/keras/keys.h"
#include "packer/bundle_plan.h"

namespace ferry::checkpoint {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;
constexpr const char* kCheckpointConfig = "config.json";
constexpr const char* kCheckpointGenerationConfig = "generation_config.json";

// Files that a bundle takes as they are, where the checkpoint has them. config.json is treated
// apart.
constexpr const char* kCopied[] = {
    kCheckpointGenerationConfig,
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "processor_config.json",
    "preprocessor_config.json",
    "config_sentence_transformers.json",
    "video_preprocessor_config.json",
};

using File = std::shared_ptr<const InputFile>;

File shared(InputFile file) { return std::make_shared<const InputFile>(std::move(file)); }

// Returns nullptr where the checkpoint has no such file.
Result<File> optional_file(const Directory& directory, const std::string& name) {
  if (!directory.contains(name)) return File();
  return shared(FERRY_TRY(open_in_checkpoint(directory, name)));
}

// Returns the config.json to use.
Result<File> find_config(const Directory& directory, const std::string& path,
                         const std::string& config) {
  if (!config.empty()) return shared(FERRY_TRY(InputFile::open(config)));
  File found = FERRY_TRY(optional_file(directory, kCheckpointConfig));
  if (found) return found;
  return Failure(Error{.code = ErrorCode::kBadInput,
                       .message = fmt::format(
                           "{}: no config.json beside the checkpoint; config can state one", path),
                       .field = "config"});
}

// Adds the files beside a checkpoint with Hugging Face names. A file is opened once, so that what
// is copied is what was read.
Status add_files_beside(CheckpointInput& input, const Directory& directory, const std::string& path,
                        const std::string& config) {
  const File found = FERRY_TRY(find_config(directory, path, config));
  input.directory = directory.path();
  input.config_name = found->path();
  input.config = FERRY_TRY(read_text(*found, kMaxConfigBytes));
  if (auto strict = without_bare_floats(input.config)) {
    input.config = *std::move(strict);
    input.copied.push_back({kCheckpointConfig, {}, input.config});
  } else {
    input.copied.push_back({kCheckpointConfig, found});
  }
  for (const char* name : kCopied) {
    File file = FERRY_TRY(optional_file(directory, name));
    if (!file) continue;
    if (std::string_view(name) == kCheckpointGenerationConfig) {
      input.generation = FERRY_TRY(read_text(*file, kMaxConfigBytes));
    }
    input.copied.push_back({name, std::move(file)});
  }
  return {};
}

// Files that say how pictures become pixel values.
constexpr const char* kProcessorFiles[] = {"processor_config.json", "preprocessor_config.json",
                                           "video_preprocessor_config.json"};

// Returns the files of the image processor beside the user's config.
Result<std::vector<packer::CopiedFile>> processor_files_beside(const std::string& config) {
  std::vector<packer::CopiedFile> files;
  if (config.empty()) return files;
  const size_t slash = config.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : config.substr(0, slash + 1);
  const Directory directory = FERRY_TRY(Directory::open(folder));
  for (const char* name : kProcessorFiles) {
    File file = FERRY_TRY(optional_file(directory, name));
    if (file) files.push_back({name, std::move(file)});
  }
  return files;
}

// GgufParts: what a GGUF file is adopted with.
struct GgufParts {
  std::string config = {};       // path of a config.json, or empty
  std::string config_text = {};  // its text
  std::string mmproj = {};       // path of a projector, or empty
  // Files of the image processor that take the place of the one that a projector gives.
  std::vector<packer::CopiedFile> processor = {};
};

// Makes the text decoder in `adopted` that of a model with images, and settles the files of the
// image processor.
Status add_projector(CheckpointInput& input, converters::AdoptedGguf& adopted,
                     const nlohmann::json& text_keys, GgufParts& parts) {
  parts.processor = FERRY_TRY(processor_files_beside(parts.config));
  Checkpoint projector = FERRY_TRY(open_checkpoint(parts.mmproj));
  const std::string shown = printable(parts.mmproj);
  const auto* metadata = std::get_if<formats::GgufMetadata>(&projector.extra);
  if (metadata == nullptr) {
    return fail_field(ErrorCode::kUsage, "mmproj",
                      fmt::format(" {}: a projector is a GGUF file", shown));
  }
  const nlohmann::json keys = FERRY_TRY(metadata->to_json());
  if (!converters::is_projector(keys)) {
    return fail_field(ErrorCode::kUsage, "mmproj",
                      fmt::format(" {}: its architecture is not clip, that of projectors", shown));
  }
  converters::AdoptedProjector made =
      FERRY_TRY(converters::adopt_projector({.source = projector.source.get(),
                                             .metadata = &keys,
                                             .text_metadata = &text_keys,
                                             .user_config = parts.config_text,
                                             .user_name = parts.config,
                                             .has_processor = !parts.processor.empty()},
                                            adopted));
  for (const SourceFile& file : projector.source->files()) {
    if (std::ranges::count(input.source->files(), file.name, &SourceFile::name) == 0) continue;
    return fail_field(ErrorCode::kUsage, "mmproj",
                      fmt::format(" {}: has the name of a file of the text decoder", shown));
  }
  auto source = std::make_unique<DerivedSource>(std::move(input.source));
  const size_t first = FERRY_TRY(source->add_source(std::move(projector.source)));
  for (converters::KeyedTensor& tensor : made.tensors.tensors) {
    for (StridedPiece& piece : tensor.recipe.pieces) piece.tensor += first;
    adopted.tensors.tensors.push_back(std::move(tensor));
  }
  adopted.tensors.names.merge(made.tensors.names);
  input.source = std::move(source);
  input.inputs.images = true;
  std::ranges::move(made.notes, std::back_inserter(input.notes));
  if (parts.processor.empty()) {
    parts.processor.push_back({kProcessorFiles[0], {}, std::move(made.processor)});
  }
  return {};
}

// Adopts a GGUF file, which brings its own names and metadata instead of files.
Status adopt(CheckpointInput& input, const formats::GgufMetadata& metadata, GgufParts parts) {
  if (!parts.config.empty()) {
    parts.config_text = FERRY_TRY(read_text_file(parts.config, kMaxConfigBytes));
  }
  const nlohmann::json keys = FERRY_TRY(metadata.to_json());
  converters::AdoptedGguf adopted =
      FERRY_TRY(converters::adopt_gguf(*input.source, keys, parts.config_text, parts.config));
  if (!parts.mmproj.empty()) FERRY_RETURN_IF_ERROR(add_projector(input, adopted, keys, parts));
  input.tensors = std::move(adopted.tensors);
  input.sentence = std::move(adopted.sentence);
  input.config = std::move(adopted.config);
  input.config_name = std::move(adopted.config_name);
  input.generation = std::move(adopted.generation);
  input.copied.push_back({kCheckpointConfig, {}, input.config});
  if (!input.generation.empty()) {
    input.copied.push_back({kCheckpointGenerationConfig, {}, input.generation});
  }
  std::ranges::move(parts.processor, std::back_inserter(input.copied));
  if (adopted.tokenizer.missing.empty()) {
    input.copied.push_back({"tokenizer.json", {}, std::move(adopted.tokenizer.tokenizer)});
    input.copied.push_back(
        {"tokenizer_config.json", {}, std::move(adopted.tokenizer.tokenizer_config)});
  } else {
    input.notes.push_back(fmt::format("{}: no tokenizer.json is made of it: {}",
                                      printable(input.source->path()), adopted.tokenizer.missing));
  }
  return {};
}

// Refuses the older layout of Keras files, which names weights by layers that a user named.
Status refuse_legacy_keras(const Checkpoint& checkpoint) {
  const auto* keras = std::get_if<formats::KerasAttributes>(&checkpoint.extra);
  if (keras == nullptr) return {};
  for (const hdf5::Attribute& attribute : keras->attributes) {
    if (!attribute.name.starts_with("layer_names")) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: a legacy Keras file, whose weights belong to no family by their "
                            "names; .weights.h5 files of KerasHub backbones are supported",
                            printable(checkpoint.source->path())));
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
     "norms shifted, as GGUF writers do, cannot be known"},
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

// Drops the texts of KerasHub's own files ("tokenizer.json" among them), which mean nothing to
// readers of Hugging Face's.
Status drop_keras_objects(std::vector<packer::CopiedFile>& copied) {
  std::vector<packer::CopiedFile> kept;
  for (packer::CopiedFile& file : copied) {
    const bool text = file.name.ends_with(".json") && !file.text;
    if (text && converters::is_keras_config(FERRY_TRY(read_text(*file.file, kMaxTextBytes)))) {
      continue;
    }
    kept.push_back(std::move(file));
  }
  copied = std::move(kept);
  return {};
}

// Adopts a checkpoint with the names and the config of Hugging Face. Its matrices may be quantised.
Status adopt_hugging_face(CheckpointInput& input) {
  const auto quantized =
      FERRY_TRY(converters::parse_quantization_config(input.config, input.config_name));
  if (!quantized) {
    input.tensors = converters::key_by_name(*input.source);
    return {};
  }
  converters::AdoptedQuantized adopted =
      FERRY_TRY(converters::adopt_quantized(std::move(input.source), *quantized));
  input.source = std::move(adopted.source);
  input.tensors = std::move(adopted.tensors);
  for (std::string& note : adopted.notes) input.notes.push_back(std::move(note));
  if (quantized->rounds_inputs) return {};
  input.config =
      FERRY_TRY(converters::without_quantization_config(input.config, input.config_name));
  return {};
}

// Turns a Keras config into one of Hugging Face, and Keras paths into Hugging Face keys.
Status adopt_keras(CheckpointInput& input) {
  const bool own_config = converters::is_keras_config(input.config);
  const bool own_names = converters::has_keras_paths(*input.source);
  if (own_config || own_names) FERRY_RETURN_IF_ERROR(drop_keras_objects(input.copied));
  if (own_config) {
    input.config = FERRY_TRY(converters::hugging_face_config_of_keras(
        input.config, converters::has_keras_head(*input.source), input.config_name));
    input.copied.insert(input.copied.begin(), {kCheckpointConfig, {}, input.config});
  }
  if (!own_names) return adopt_hugging_face(input);
  const converters::ModelConfig config =
      FERRY_TRY(converters::parse_model_config(input.config, "", input.config_name));
  input.tensors = FERRY_TRY(converters::key_keras_tensors(*input.source, config));
  return {};
}

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr size_t kMostFiles = 64;

struct CarriedName {
  std::string_view name;  // in lower case
  uint64_t max_bytes;
};
// Files for other programs. Ferry itself reads those of SentencePiece and tiktoken where
// tokenizer.json is missing.
constexpr CarriedName kNames[] = {
    {"readme.md", 16 * kMiB},           {"readme", 16 * kMiB},
    {"model_card.md", 16 * kMiB},       {"added_tokens.json", 64 * kMiB},
    {"merges.txt", 64 * kMiB},          {"sentencepiece.bpe.model", 64 * kMiB},
    {"spiece.model", 64 * kMiB},        {"tekken.json", 64 * kMiB},
    {"tokenizer.model", 64 * kMiB},     {"vocab.json", 64 * kMiB},
    {"vocab.txt", 64 * kMiB},           {"tiktoken.model", 64 * kMiB},
    {"qwen.tiktoken", 64 * kMiB},       {"tokenizer.tiktoken", 64 * kMiB},
    {"source.spm", 64 * kMiB},          {"target.spm", 64 * kMiB},
    {"o200k_base.tiktoken", 64 * kMiB}, {"cl100k_base.tiktoken", 64 * kMiB},
};

// A legal text has one of these words as its name, perhaps with more behind '-', '_' or a space;
// then one of the endings.
constexpr std::string_view kLegalWords[] = {
    "acceptable_use_policy",
    "copying",
    "copyright",
    "licence",
    "license",
    "notice",
    "patents",
    "terms",
    "use_policy",
    "use-policy",
};
constexpr std::string_view kLegalEndings[] = {"", ".htm", ".html", ".md", ".pdf", ".rst", ".txt"};
constexpr uint64_t kMaxLegalBytes = 16 * kMiB;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool is_legal_text(std::string_view name) {
  const size_t dot = std::min(name.rfind('.'), name.size());
  if (!std::ranges::count(kLegalEndings, name.substr(dot))) return false;
  const std::string_view stem = name.substr(0, dot);
  return std::ranges::any_of(kLegalWords, [&](std::string_view word) {
    if (!stem.starts_with(word)) return false;
    return stem.size() == word.size() ||
           std::string_view("-_ ").find(stem[word.size()]) != std::string_view::npos;
  });
}

// Returns the size that a file of this name may have; nullopt where it is not carried along.
std::optional<uint64_t> size_limit(std::string_view any_case) {
  const std::string name = lower(any_case);
  const auto found = std::ranges::find(kNames, std::string_view(name), &CarriedName::name);
  if (found != std::end(kNames)) return found->max_bytes;
  return is_legal_text(name) ? std::optional(kMaxLegalBytes) : std::nullopt;
}

// Opens a file that is carried along. An error says why it stays behind.
Result<InputFile> open_carried(const Directory& directory, const std::string& name) {
  const std::string shown = printable(directory.path_of(name));
  const bool plain = std::ranges::all_of(
      name, [](char c) { return c >= ' ' && c <= '~' && c != '\\' && c != '/'; });
  if (!plain) return bad_input(fmt::format("{}: a name that is not plain ASCII", shown));
  InputFile file = FERRY_TRY(open_in_checkpoint(directory, name));
  const uint64_t limit = *size_limit(name);
  if (file.size() <= limit) return file;
  return bad_input(
      fmt::format("{}: {} bytes, files of this kind have at most {}", shown, file.size(), limit));
}

// Whether a file of this name is carried along: a name of kNames, or that of a legal text
// ("LICENSE", "LICENSE-MODEL.md", "NOTICE.txt", "Use_Policy.md"), in upper or lower case.
bool is_carried(std::string_view name) { return size_limit(name).has_value(); }

// Appends the files that are carried along to `copied`, in ascending order of names. A file that
// cannot be taken is left out, and `notes` gets a line with the reason: it is no regular file, it
// is too large, it is a link out of the folder, or the folder cannot be listed.
void carry_files(const Directory& directory, std::vector<packer::CopiedFile>& copied,
                 std::vector<std::string>& notes) {
  const Result<std::vector<std::string>> names = directory.names();
  if (!names) return notes.push_back(names.error().message + "; no licence files are carried over");
  size_t taken = 0;
  for (const std::string& name : *names) {
    if (!is_carried(name)) continue;
    Result<InputFile> file = open_carried(directory, name);
    if (file && ++taken > kMostFiles) {
      file = bad_input(fmt::format("{}: more than {} files of this kind",
                                   printable(directory.path_of(name)), kMostFiles));
    }
    if (file) {
      copied.push_back({name, std::make_shared<const InputFile>(*std::move(file))});
    } else {
      notes.push_back(file.error().message + "; the bundle will not have it");
    }
  }
}

}  // namespace

Result<CheckpointInput> open_checkpoint_input(const std::string& path, const std::string& config,
                                              const std::string& lora, const std::string& mmproj) {
  auto opened = open_checkpoint(path);
  if (!opened && is_bundle(path)) {
    return Failure(
        Error{.code = ErrorCode::kBadInput,
              .message = fmt::format("{}: a bundle, where a checkpoint is needed; convert to hf "
                                     "makes one of a bundle",
                                     printable(path)),
              .field = "to"});
  }
  Checkpoint checkpoint = FERRY_TRY(std::move(opened));
  if (!std::holds_alternative<formats::GgufMetadata>(checkpoint.extra)) {
    FERRY_RETURN_IF_ERROR(refuse_foreign_names(*checkpoint.source));
    FERRY_RETURN_IF_ERROR(refuse_legacy_keras(checkpoint));
  }
  CheckpointInput input;
  input.source = std::move(checkpoint.source);
  if (const auto* gguf = std::get_if<formats::GgufMetadata>(&checkpoint.extra)) {
    FERRY_RETURN_IF_ERROR(adopt(input, *gguf, {.config = config, .mmproj = mmproj}));
  } else if (!mmproj.empty()) {
    return fail_field(ErrorCode::kUsage, "mmproj",
                      fmt::format(": is for a GGUF file, and {} is none", printable(path)));
  } else {
    FERRY_RETURN_IF_ERROR(add_files_beside(input, checkpoint.directory, path, config));
    FERRY_RETURN_IF_ERROR(adopt_keras(input));
  }
  if (!lora.empty()) FERRY_RETURN_IF_ERROR(merge_adapter(input, lora));
  // The files beside a GGUF file that was named may belong to other models as well.
  if (!base_name(path).ends_with(".gguf")) {
    carry_files(checkpoint.directory, input.copied, input.notes);
  }
  return input;
}

}  // namespace ferry::checkpoint
