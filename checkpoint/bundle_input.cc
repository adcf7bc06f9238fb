#include "checkpoint/checkpoint_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "converters/config/model_config.h"
#include "converters/family.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/undo_keys.h"
#include "converters/keys/vision_tower_keys.h"
#include "core/directory.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "formats/file_tensor_source.h"
#include "packer/bundle_reader.h"

namespace ferry::checkpoint {
namespace {

constexpr uint64_t kMaxBundledConfigBytes = uint64_t{16} << 20;
constexpr const char* kConfig = "config.json";
constexpr const char* kWeightFiles[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json"};
constexpr const char* kGenerationConfig = "generation_config.json";

// The tensors of the data files, each under its runtime name.
class BundleSource : public formats::FileTensorSource {
 public:
  static Result<std::unique_ptr<TensorSource>> open(const packer::Bundle& bundle) {
    auto source = std::unique_ptr<BundleSource>(new BundleSource(bundle.path()));
    std::map<std::string, uint32_t> files;
    for (const auto& [name, data] : bundle.data()) {
      auto file = std::make_unique<InputFile>(FERRY_TRY(InputFile::open(bundle.path_of(name))));
      const auto head = data.file.bytes().first(std::min(data.file.bytes().size(), kHeaderBytes));
      files[name] = source->add_file(name, std::move(file), {head.begin(), head.end()});
    }
    std::vector<TensorEntry> entries;
    for (const packer::ManifestTensor& tensor : bundle.manifest().tensors) {
      entries.push_back({.name = tensor.name,
                         .dtype = tensor.dtype,
                         .shape = tensor.shape,
                         .bytes = tensor.bytes,
                         .file = files.at(tensor.file),
                         .offset = tensor.offset});
    }
    std::ranges::sort(entries, {}, [](const TensorEntry& entry) {
      return std::tie(entry.file, entry.offset, entry.bytes, entry.name);
    });
    for (TensorEntry& entry : entries) source->add_entry(std::move(entry));
    return source;
  }

 private:
  static constexpr size_t kHeaderBytes = 4096;
  explicit BundleSource(std::string path) : FileTensorSource(std::move(path)) {}
};

// Returns the dtype in which all pieces of a recipe text are stored; nullopt if they differ or one
// is unknown.
std::optional<DType> source_dtype(std::string_view recipe) {
  std::optional<DType> dtype;
  for (std::string_view rest = recipe.substr(0, recipe.find(" | ")); rest.starts_with('#');) {
    const size_t begin = rest.find(' ');
    const size_t end = rest.find(' ', begin + 1);
    if (begin == std::string_view::npos || end == std::string_view::npos) return std::nullopt;
    const auto found = dtype_from_name(rest.substr(begin + 1, end - begin - 1));
    if (!found || !is_castable(*found) || (dtype && *dtype != *found)) return std::nullopt;
    dtype = found;
    const size_t next = rest.find(" + ", end);
    rest.remove_prefix(next == std::string_view::npos ? rest.size() : next + 3);
  }
  return dtype;
}

// Returns "layers.0.attention.wq.weight" for "layers.0.attention.wq.3.weight", and the name itself
// where it is not that of a head.
std::string name_of_whole(const std::string& name) {
  const size_t parameter = name.rfind('.');
  const size_t head = parameter == std::string::npos ? parameter : name.rfind('.', parameter - 1);
  if (head == std::string::npos) return name;
  const std::string_view digits = std::string_view(name).substr(head + 1, parameter - head - 1);
  const std::string_view base = std::string_view(name).substr(0, head);
  const bool number = digits.find_first_not_of("0123456789") == std::string_view::npos;
  const bool projection = base.ends_with(".wq") || base.ends_with(".wk") || base.ends_with(".wv");
  return number && projection ? std::string(base) + name.substr(parameter) : name;
}

// Weights of the model, each made of the tensors that a bundle has for it.
class BundleWeights {
 public:
  BundleWeights(const packer::Bundle& bundle, const TensorSource& source)
      : manifest_(bundle.manifest()), source_(source) {
    for (size_t i = 0; i < source.entries().size(); ++i) entry_[source.entries()[i].name] = i;
  }

  Result<graph::StateDict> make() {
    const bool heads = manifest_.attention == "sha";
    std::vector<std::string> order;
    for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
      const packer::ManifestTensor& tensor = manifest_.tensors[i];
      const std::string name = heads ? name_of_whole(tensor.name) : tensor.name;
      if (name == converters::kRowMarksWeight) continue;  // copies of rows of the embedding
      if (!stored_.contains(name)) order.push_back(name);
      stored_[name].push_back(i);
      for (const auto& from : tensor.sources) keys_.insert(from.key);
    }
    graph::StateDict dict;
    for (const std::string& name : order) {
      auto recipe = FERRY_TRY(recipe_of(name));
      FERRY_RETURN_IF_ERROR(dict.add({.name = name, .recipe = std::move(recipe), .rule = {}}));
    }
    return dict;
  }

  // Returns the keys of the checkpoint that the bundle was made of.
  const std::set<std::string>& keys() const { return keys_; }

  // Returns the dtype that the weights had in the checkpoint; nullopt where they are rounded or
  // differ.
  std::optional<DType> dtype_before(const std::vector<std::string>& weights) const {
    std::optional<DType> dtype;
    for (const std::string& name : weights) {
      for (const size_t i : stored_.at(name)) {
        const packer::ManifestTensor& tensor = manifest_.tensors[i];
        const auto before = tensor.rounded ? std::nullopt : source_dtype(tensor.recipe);
        if (!before || (dtype && *dtype != *before)) return std::nullopt;
        dtype = before;
      }
    }
    return dtype;
  }

 private:
  Result<graph::Recipe> recipe_of(const std::string& name) const {
    const std::vector<size_t>& tensors = stored_.at(name);
    std::vector<StridedPiece> pieces;
    Shape shape = manifest_.tensors[tensors.front()].shape;
    for (const size_t i : tensors) {
      const size_t entry = entry_.at(manifest_.tensors[i].name);
      const TensorEntry& tensor = source_.entries()[entry];
      int64_t count = 1;
      for (const int64_t size : tensor.shape) count *= size;
      pieces.push_back(run_piece(entry, 0, count));
    }
    if (!shape.empty()) shape[0] *= static_cast<int64_t>(tensors.size());
    return graph::make_recipe(source_, std::move(pieces), std::move(shape), name);
  }

  const packer::Manifest& manifest_;
  const TensorSource& source_;
  std::map<std::string, size_t> entry_;
  // Indices into manifest.tensors by name, in the order of heads.
  std::map<std::string, std::vector<size_t>> stored_;
  std::set<std::string> keys_;
};

Status check_plain_weights(const packer::Bundle& bundle) {
  for (const packer::ManifestComponent& component : bundle.manifest().components) {
    if (component.quantization.empty()) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: weights of the {} are quantised ({}), so that the numbers of the "
                            "checkpoint are not in it",
                            printable(bundle.path()), component.role, component.quantization));
  }
  return {};
}

// Adds the files that the bundle has beside programs and weights.
Status add_files(const packer::Bundle& bundle, const std::string& config, CheckpointInput& input) {
  const Directory directory = FERRY_TRY(Directory::open(bundle.path()));
  for (const packer::ManifestFile& file : bundle.manifest().files) {
    if (!bundle.has_text(file.path) || file.path == bundle.manifest().reference) continue;
    auto opened = std::make_shared<const InputFile>(
        file.path == kConfig && !config.empty()
            ? FERRY_TRY(InputFile::open(config))
            : FERRY_TRY(directory.open_file(file.path, file.path, InputFile::Links::kRefuse)));
    if (file.path == kConfig) {
      input.config_name = opened->path();
      input.config = FERRY_TRY(read_text(*opened, kMaxBundledConfigBytes));
    } else if (file.path == kGenerationConfig) {
      input.generation = FERRY_TRY(read_text(*opened, kMaxBundledConfigBytes));
    }
    input.copied.push_back({file.path, std::move(opened)});
  }
  if (!input.config.empty()) return {};
  return bad_input(fmt::format("{}: the bundle has no config.json", printable(bundle.path())));
}

// Adds the keys of the model, each with a recipe over tensors of the bundle.
Status add_tensors(const packer::Bundle& bundle, CheckpointInput& input) {
  if (bundle.manifest().program_style == kEncoderStyle) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: is of style {}: only bundles of decoders become other files",
                            printable(bundle.path()), kEncoderStyle));
  }
  input.inputs = inputs_of(bundle.manifest());
  const converters::ModelConfig config =
      FERRY_TRY(converters::parse_model_config(input.config, input.generation, input.config_name,
                                               nullptr, converters::all_families(), input.inputs));
  BundleWeights stored(bundle, *input.source);
  const graph::StateDict weights = FERRY_TRY(stored.make());
  auto undone = converters::undo_keys(weights, config, converters::key_rules(config),
                                      converters::standard_ties(config), stored.keys());
  if (!undone) {
    undone.error().message =
        fmt::format("{}: {}", printable(bundle.path()), undone.error().message);
    return undone.pass();
  }
  size_t computed = 0;
  for (converters::UndoneTensor& made : *undone) {
    if (const auto dtype = stored.dtype_before(made.weights)) made.tensor.recipe.cast(*dtype);
    computed += made.computed ? 1 : 0;
    input.tensors.tensors.push_back(std::move(made.tensor));
  }
  if (computed > 0) {
    input.notes.push_back(fmt::format(
        "{}: {} tensors are stored as 1 + w or -exp(w): what is computed back may differ from the "
        "checkpoint in the last bits of f32",
        printable(bundle.path()), computed));
  }
  return {};
}

}  // namespace

bool is_bundle(const std::string& path) {
  const Result<Directory> directory = Directory::open(path);
  if (!directory || !directory->contains(std::string(packer::kManifestName))) return false;
  // A checkpoint may have a file of the manifest's name too.
  return std::ranges::none_of(kWeightFiles,
                              [&](const char* name) { return directory->contains(name); });
}

converters::Inputs inputs_of(const packer::Manifest& manifest) {
  return {.images = packer::row_encoder(manifest, kVisionEncoderRole) != nullptr,
          .sounds = packer::row_encoder(manifest, kAudioEncoderRole) != nullptr};
}

Result<CheckpointInput> open_bundle_input(const std::string& path, const std::string& config,
                                          ThreadPool& pool) {
  const packer::Bundle bundle = FERRY_TRY(packer::Bundle::open(path, /*check_digests=*/true, pool));
  FERRY_RETURN_IF_ERROR(check_plain_weights(bundle));
  CheckpointInput input;
  input.source = FERRY_TRY(BundleSource::open(bundle));
  FERRY_RETURN_IF_ERROR(add_files(bundle, config, input));
  FERRY_RETURN_IF_ERROR(add_tensors(bundle, input));
  if (const auto& dropped = bundle.manifest().dropped; !dropped.empty()) {
    input.notes.push_back(
        fmt::format("{}: {} tensors of the checkpoint are not in it, {} among them",
                    printable(path), dropped.size(), quoted(dropped[0].key)));
  }
  return input;
}

}  // namespace ferry::checkpoint
