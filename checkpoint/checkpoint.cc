#include "checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/hub_cache.h"
#include "core/directory.h"
#include "core/file.h"
#include "core/result.h"
#include "core/text.h"
#include "dialects/gguf/file/gguf.h"
#include "dialects/keras/keras_index.h"
#include "formats/file_tensor_source.h"
#include "formats/hdf5/hdf5.h"
#include "formats/known_files.h"
#include "formats/safetensors/index.h"
#include "formats/safetensors/safetensors.h"
#include "formats/torch/torch.h"

namespace ferry::checkpoint {
namespace {

namespace fs = std::filesystem;

// Tells from the first bytes whether a file can be safetensors: a length, then a JSON object.
Result<bool> may_be_safetensors(const InputFile& file) {
  constexpr size_t kLengthBytes = 8;
  std::array<std::byte, kLengthBytes + 1> start;
  if (file.size() < start.size()) return false;
  FERRY_RETURN_IF_ERROR(file.read_at(0, start));
  return start.back() == std::byte{'{'};
}

Result<Checkpoint> plain_checkpoint(Result<std::unique_ptr<TensorSource>> source) {
  return Checkpoint{FERRY_TRY(std::move(source))};
}

// Opens a GGUF file. The other files of a split checkpoint are in the same directory.
Result<Checkpoint> gguf_checkpoint(InputFile first, const Directory& directory,
                                   const CheckpointOptions& options) {
  formats::GgufFile file =
      FERRY_TRY(formats::open_gguf(std::move(first), [&](const std::string& name) {
        return open_in_checkpoint(directory, name, options);
      }));
  return Checkpoint{std::move(file.source), std::move(file.metadata)};
}

Result<Checkpoint> hdf5_checkpoint(Result<formats::Hdf5File> opened) {
  formats::Hdf5File file = FERRY_TRY(std::move(opened));
  return Checkpoint{std::move(file.source), std::move(file.attributes)};
}

constexpr size_t kMaxShownPath = 300;
constexpr std::string_view kSafetensorsSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".index.json";
constexpr std::string_view kTorchIndexSuffix = ".bin.index.json";

// Formats that are known by the end of a file's name and not read. GGUF is among them for
// directories with several models.
struct OtherFormat {
  std::string_view suffix, name;
  std::string_view advice = {};
};
constexpr std::array<OtherFormat, 3> kOtherFormats = {{
    {".gguf", "GGUF"},
    {".keras", "Keras", "; it is a zip archive: unpack it, and open its model.weights.h5"},
    {".msgpack", "Flax"},
}};

const OtherFormat* other_format(std::string_view file_name) {
  for (const OtherFormat& format : kOtherFormats) {
    if (file_name.ends_with(format.suffix)) return &format;
  }
  return nullptr;
}

bool has_hdf5_name(std::string_view file_name) {
  return file_name.ends_with(".h5") || file_name.ends_with(".hdf5");
}

bool has_torch_name(std::string_view file_name) {
  for (const std::string_view suffix : {".bin", ".pt", ".pth", ".ckpt"}) {
    if (file_name.ends_with(suffix)) return true;
  }
  return false;
}

Failure unsupported(const std::string& path, std::string_view what) {
  return fail(ErrorCode::kUnsupported, fmt::format("{}: {}", printable(path), what));
}

// Whether a link has the layout of the Hugging Face cache: snapshots/REVISION/model.safetensors is
// a link to ../../blobs/HASH. Nothing else in the cache may be a link.
bool is_cache_link(const fs::path& target) {
  auto part = target.begin();
  if (part == target.end() || *part != "..") return false;
  while (part != target.end() && *part == "..") ++part;
  if (part == target.end() || *part++ != "blobs") return false;
  return part != target.end() && *part != ".." && *part != "." && !part->empty() &&
         ++part == target.end();
}

bool is_plain_target(const fs::path& target) {
  return target == target.filename() && target != "." && target != ".." && !target.empty();
}

bool may_follow(const fs::path& target) { return is_cache_link(target) || is_plain_target(target); }

Failure with_tensor(Error error, const std::string& tensor) {
  error.message += fmt::format(" (tensor {})", quoted(tensor));
  return Failure(std::move(error));
}

// Opens the files that the index names. An error lists those that are missing.
Result<std::vector<formats::CheckpointFile>> files_of_index(const formats::ShardIndex& index,
                                                            const std::string& index_path,
                                                            const Directory& directory,
                                                            const CheckpointOptions& options) {
  std::map<std::string, std::string> first_tensor;  // name of the first tensor by file name
  for (const auto& [tensor, file] : index) first_tensor.emplace(file, tensor);
  std::vector<formats::CheckpointFile> files;
  std::vector<std::string> missing;
  for (const auto& [name, tensor] : first_tensor) {
    if (!directory.contains(name)) {
      missing.push_back(name);
      continue;
    }
    auto file = open_in_checkpoint(directory, name, options);
    if (!file) return with_tensor(std::move(file).error(), tensor);
    files.push_back({*std::move(file), name});
  }
  if (missing.empty()) return files;
  Error error{ErrorCode::kBadInput,
              fmt::format("{}: {} of {} files are missing: {}{}{}", printable(index_path),
                          missing.size(), first_tensor.size(), quoted(missing.front()),
                          missing.size() > 1 ? ", ..." : "", how_to_complete(directory.path()))};
  if (missing.size() > 1) {
    for (const std::string& name : missing) error.details.push_back("missing " + quoted(name));
  }
  return with_tensor(std::move(error), first_tensor[missing.front()]);
}

Result<Checkpoint> open_index(const InputFile& file, const Directory& directory,
                              const CheckpointOptions& options) {
  const std::string& path = file.path();
  const std::string shown = printable(path);
  const std::string text = FERRY_TRY(read_text(file, formats::kMaxIndexBytes));
  const bool torch = path.ends_with(kTorchIndexSuffix);
  const formats::ShardIndex index =
      FERRY_TRY(formats::parse_shard_index(text, shown, torch ? ".bin" : ".safetensors"));
  auto files = FERRY_TRY(files_of_index(index, path, directory, options));
  std::unique_ptr<TensorSource> source =
      FERRY_TRY(torch ? formats::open_torch(std::move(files), path)
                      : formats::open_safetensors(std::move(files), path));
  FERRY_RETURN_IF_ERROR(formats::check_against_index(index, *source, shown));
  return Checkpoint{std::move(source)};
}

// Returns the numbered files of a sharded Keras checkpoint that are in the directory.
Result<std::vector<std::string>> keras_files_in(const Directory& directory,
                                                const std::string& base) {
  std::vector<std::string> names = FERRY_TRY(directory.names());
  std::erase_if(names,
                [&](const std::string& name) { return !formats::is_keras_shard(name, base); });
  return names;
}

Result<Checkpoint> open_keras(const InputFile& index_file, const Directory& directory,
                              const CheckpointOptions& options) {
  const std::string& path = index_file.path();
  const std::string shown = printable(path);
  const std::string text = FERRY_TRY(read_text(index_file, formats::kMaxIndexBytes));
  const formats::KerasIndex index = FERRY_TRY(formats::parse_keras_index(text, shown));
  std::string base = base_name(path);
  base.resize(base.size() - formats::kKerasIndexSuffix.size());
  const auto present = FERRY_TRY(keras_files_in(directory, base));
  const auto names = FERRY_TRY(formats::keras_shards(index, base, present, shown));
  std::vector<formats::CheckpointFile> files;
  for (const std::string& name : names) {
    InputFile file = FERRY_TRY(open_in_checkpoint(directory, name, options));
    files.push_back({std::move(file), name});
  }
  formats::Hdf5File file = FERRY_TRY(formats::open_hdf5(std::move(files), path, /*keras=*/true));
  FERRY_RETURN_IF_ERROR(formats::check_against_keras_index(index, file, shown));
  return hdf5_checkpoint(std::move(file));
}

// Returns the one GGUF file of a directory, the first one of a split checkpoint, or an empty name.
std::string only_gguf_file(const Directory& directory) {
  std::vector<std::string> names = directory.names().value_or(std::vector<std::string>());
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".gguf"); });
  return names.size() == 1 || formats::is_gguf_split(names) ? names.front() : std::string();
}

// Returns the index that the shard `name` ("model-00001-of-00002.safetensors") belongs to; empty
// where the name is not that of a shard.
std::string index_of_shard(std::string_view name) {
  constexpr std::string_view kPattern = "-00000-of-00000";
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot < kPattern.size()) return {};
  const std::string_view numbers = name.substr(dot - kPattern.size(), kPattern.size());
  const bool fits = std::ranges::equal(numbers, kPattern, [](char c, char wanted) {
    return wanted == '0' ? c >= '0' && c <= '9' : c == wanted;
  });
  if (!fits) return {};
  return fmt::format("{}{}{}", name.substr(0, dot - kPattern.size()), name.substr(dot),
                     kIndexSuffix);
}

// Says which of several GGUF files to give; a projector stands beside one.
std::string advice_on(const std::vector<std::string>& gguf_files) {
  const auto is_projector = [](const std::string& name) { return name.starts_with("mmproj"); };
  const auto projector = std::ranges::find_if(gguf_files, is_projector);
  const auto other = std::ranges::find_if_not(gguf_files, is_projector);
  if (other == gguf_files.end()) return quoted(gguf_files.front());
  if (projector == gguf_files.end()) return quoted(*other);
  return fmt::format("{}, and {} as --mmproj", quoted(*other), quoted(*projector));
}

// Explains the contents of a directory without a checkpoint under one of the known names.
Failure explain_directory(const Directory& directory) {
  const std::string& path = directory.path();
  const Result<std::vector<std::string>> names = directory.names();
  if (!names) return Failure(names.error());
  std::vector<std::string> others, tensor_files;
  for (const std::string& name : *names) {
    if (name.ends_with(".safetensors") || has_torch_name(name) || has_hdf5_name(name)) {
      tensor_files.push_back(name);
    }
    if (other_format(name)) others.push_back(name);
  }
  if (const std::string snapshot = snapshot_of_entry(path); !snapshot.empty()) {
    return bad_input(fmt::format("{}: an entry of the Hugging Face cache; the checkpoint is {}",
                                 printable(path), quoted(snapshot, kMaxShownPath)));
  }
  for (const std::string& name : tensor_files) {
    const std::string index = index_of_shard(name);
    if (index.empty()) continue;
    return bad_input(fmt::format("{}: {} is missing, the index of the shards ({})", printable(path),
                                 quoted(index), quoted(name)));
  }
  if (!tensor_files.empty()) {
    const std::string& first = tensor_files.front();
    return bad_input(fmt::format("{}: neither {} nor {}, only {}", printable(path),
                                 formats::kSingleFile, formats::kIndexFile, quoted(first)));
  }
  if (!others.empty()) {
    const std::string& first = others.front();
    if (first.ends_with(".gguf")) {
      return bad_input(fmt::format("{}: several GGUF files; give the path of one, such as {}",
                                   printable(path), advice_on(others)));
    }
    return unsupported(path, fmt::format("{} checkpoints are not supported ({})",
                                         other_format(first)->name, quoted(first)));
  }
  return bad_input(
      fmt::format("{}: no checkpoint in this directory: none of {}, and no .gguf file{}",
                  printable(path), fmt::join(formats::kKnownFiles, ", "), how_to_complete(path)));
}

Result<Checkpoint> open_directory(const Directory& directory, const CheckpointOptions& options) {
  const std::string& path = directory.path();
  for (const std::string_view known : formats::kKnownFiles) {
    const std::string name(known);
    if (!directory.contains(name)) continue;
    InputFile file = FERRY_TRY(open_in_checkpoint(directory, name, options));
    if (known.ends_with(kIndexSuffix)) return open_index(file, directory, options);
    if (known == formats::kKerasIndexFile) return open_keras(file, directory, options);
    std::vector<formats::CheckpointFile> files = formats::one_file(std::move(file), name);
    if (known == formats::kKerasFile)
      return hdf5_checkpoint(formats::open_hdf5(std::move(files), path));
    return plain_checkpoint(known == formats::kTorchFile
                                ? formats::open_torch(std::move(files), path)
                                : formats::open_safetensors(std::move(files), path));
  }
  if (const std::string name = only_gguf_file(directory); !name.empty()) {
    return gguf_checkpoint(FERRY_TRY(open_in_checkpoint(directory, name, options)), directory,
                           options);
  }
  return explain_directory(directory);
}

// Opens a single tensor file, which is no index.
Result<Checkpoint> open_single(InputFile file) {
  const std::string path = file.path();
  const std::string name = base_name(path);
  if (const OtherFormat* format = other_format(name)) {
    return unsupported(
        path, fmt::format("{} checkpoints are not supported{}", format->name, format->advice));
  }
  if (has_hdf5_name(name) || FERRY_TRY(formats::detect_hdf5(file))) {
    return hdf5_checkpoint(formats::open_hdf5(formats::one_file(std::move(file), name), path));
  }
  // The first bytes decide. Where they could belong to either format, the end of the name decides.
  const bool is_torch = FERRY_TRY(formats::detect_torch(file)) != formats::TorchContent::kOther ||
                        has_torch_name(name);
  const bool named = name.ends_with(".safetensors");
  if (is_torch && !named)
    return plain_checkpoint(formats::open_torch(formats::one_file(std::move(file), name), path));
  if (!named && !FERRY_TRY(may_be_safetensors(file))) {
    return bad_input(
        fmt::format("{}: no tensor file of a known kind, by its first bytes and its "
                    "name: safetensors, PyTorch (.bin, .pt, .pth, .ckpt), GGUF (.gguf), "
                    "HDF5 (.h5, .hdf5), or an index of them (.index.json)",
                    printable(path)));
  }
  return plain_checkpoint(
      formats::open_safetensors(formats::one_file(std::move(file), name), path));
}

Result<Checkpoint> open_file(InputFile file, const Directory& directory,
                             const CheckpointOptions& options) {
  if (file.path().ends_with(kIndexSuffix)) return open_index(file, directory, options);
  if (file.path().ends_with(formats::kKerasIndexSuffix))
    return open_keras(file, directory, options);
  if (file.path().ends_with(".gguf")) return gguf_checkpoint(std::move(file), directory, options);
  return open_single(std::move(file));
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

Result<InputFile> open_in_checkpoint(const Directory& directory, const std::string& name,
                                     const CheckpointOptions& options) {
  const std::string path = directory.path_of(name);
  if (!directory.contains(name)) {
    return fail(ErrorCode::kIo, fmt::format("{}: no such file", printable(path)));
  }
  if (options.follow_symlinks) return directory.open_file(name, name, InputFile::Links::kFollow);
  const std::optional<std::string> target = directory.link_target(name);
  if (!target) return directory.open_file(name, name, InputFile::Links::kRefuse);
  // Only one step is allowed: the target of a link must not be a link again.
  if (may_follow(*target) && !directory.link_target(*target)) {
    auto file = directory.open_file(*target, name, InputFile::Links::kRefuse);
    if (!file && file.error().code == ErrorCode::kIo) {
      file.error().message += how_to_complete(directory.path());
    }
    return file;
  }
  return bad_input(fmt::format("{}: a symbolic link out of the checkpoint directory, to {}",
                               printable(path), quoted(*target, 60)));
}

Result<Checkpoint> open_checkpoint(const std::string& path, const CheckpointOptions& options) {
  if (Result<Directory> directory = Directory::open(path)) {
    Checkpoint checkpoint = FERRY_TRY(open_directory(*directory, options));
    checkpoint.directory = *std::move(directory);
    return checkpoint;
  }
  const std::string found = FERRY_TRY(find_source(path));
  if (found != path) return open_checkpoint(found, options);
  InputFile file = FERRY_TRY(InputFile::open(path));
  Directory directory = FERRY_TRY(Directory::open(parent_of(path)));
  Checkpoint checkpoint = FERRY_TRY(open_file(std::move(file), directory, options));
  checkpoint.directory = std::move(directory);
  return checkpoint;
}

bool has_checkpoint(const std::string& path) {
  if (const Result<Directory> directory = Directory::open(path)) {
    return !only_gguf_file(*directory).empty() ||
           std::ranges::any_of(formats::kKnownFiles, [&](std::string_view name) {
             return directory->contains(std::string(name));
           });
  }
  const std::string name = base_name(path);
  for (const std::string_view suffix :
       {kIndexSuffix, formats::kKerasIndexSuffix, kSafetensorsSuffix}) {
    if (name.ends_with(suffix)) return true;
  }
  if (name.ends_with(".gguf") || has_hdf5_name(name) || has_torch_name(name)) return true;
  const Result<InputFile> file = InputFile::open(path);
  if (!file) return false;
  return formats::detect_hdf5(*file).value_or(false) || may_be_safetensors(*file).value_or(false) ||
         formats::detect_torch(*file).value_or(formats::TorchContent::kOther) !=
             formats::TorchContent::kOther;
}

Result<std::unique_ptr<TensorSource>> open_tensors(const std::string& path,
                                                   const CheckpointOptions& options) {
  return FERRY_TRY(open_checkpoint(path, options)).source;
}

Result<std::unique_ptr<TensorSource>> open_tensors_in(const Directory& directory,
                                                      const std::string& name) {
  InputFile file = FERRY_TRY(open_in_checkpoint(directory, name));
  return FERRY_TRY(open_single(std::move(file))).source;
}

}  // namespace ferry::checkpoint
