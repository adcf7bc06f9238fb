#include "conversion/gguf_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <utility>

#include "converters/family.h"
#include "converters/keys/keyed_tensors.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/undo_keys.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "dialects/gguf/file/gguf.h"
#include "dialects/gguf/file/writer.h"
#include "dialects/gguf/model/layer_numbers.h"
#include "dialects/gguf/model/written_types.h"
#include "graph/recipe.h"

namespace ferry::conversion {
namespace {

using converters::KeyedTensor;

// Tensors, and for each of them the weights that are made from it.
struct Sources {
  std::vector<KeyedTensor> tensors;
  std::vector<std::vector<std::string>> weights;

  void add(KeyedTensor tensor, std::vector<std::string> makes) {
    tensors.push_back(std::move(tensor));
    weights.push_back(std::move(makes));
  }
};

std::set<std::string> text_weights(const plan::MappedModel& model) {
  std::set<std::string> names;
  for (const converters::AssembledComponent& component : model.components) {
    if (component.role == kVisionEncoderRole || component.role == kAudioEncoderRole) continue;
    for (const graph::Weight& weight : component.model.weights.weights()) names.insert(weight.name);
  }
  return names;
}

// The tensors of the checkpoint from which weights of the text model are made, and such as make
// none and have `unused` in their keys, if it is not empty.
Sources stored_tensors(const plan::MappedModel& model, std::string_view unused) {
  const converters::MappingReport& mapping = model.checkpoint.mapping;
  const std::vector<size_t> entries =
      converters::entry_index(*model.checkpoint.source, model.tensors);
  const std::set<std::string> text = text_weights(model);
  Sources sources;
  for (size_t i = 0; i < model.tensors.tensors.size() && entries[i] < mapping.entries.size(); ++i) {
    const std::vector<std::string>& targets = mapping.entries[entries[i]].targets;
    const bool used = std::ranges::any_of(targets, [&](const std::string& name) {
      return text.contains(name) || name == converters::kSharedTable;
    });
    const bool kept = targets.empty() && !unused.empty() &&
                      model.tensors.tensors[i].key.find(unused) != std::string::npos;
    if (!used && !kept) continue;
    KeyedTensor tensor = model.tensors.tensors[i];
    tensor.key = tensor.key.substr(mapping.prefix().size());
    if (graph::is_derived(tensor.recipe, *model.checkpoint.source)) {
      tensor.recipe.cast(graph::kept_dtype(tensor.recipe));
    }
    sources.add(std::move(tensor), targets);
  }
  return sources;
}

const graph::Weight* find_weight(const plan::MappedModel& model, const std::string& name) {
  for (const converters::AssembledComponent& component : model.components) {
    const graph::Weight* weight = component.model.weights.find(name);
    if (weight != nullptr) return weight;
  }
  return nullptr;
}

// The weights that are made from tensor `i`; empty if `tables` does not have all of them.
Sources weights_of(const plan::MappedModel& model, const converters::GgufTables& tables,
                   const Sources& stored, size_t i) {
  Sources weights;
  for (const std::string& name : stored.weights[i]) {
    const graph::Weight* weight = find_weight(model, name);
    if (weight == nullptr || tables.known(name).empty()) return {};
    KeyedTensor tensor = {name, weight->recipe};
    tensor.recipe.cast(graph::kept_dtype(tensor.recipe));
    weights.add(std::move(tensor), {name});
  }
  return weights;
}

// Replaces tensors that the tables do not have by their weights.
Sources with_weights(const plan::MappedModel& model, const converters::GgufTables& tables,
                     const Sources& stored) {
  Sources sources;
  for (size_t i = 0; i < stored.tensors.size(); ++i) {
    Sources weights;
    if (tables.known(stored.tensors[i].key).empty()) {
      weights = weights_of(model, tables, stored, i);
    }
    if (weights.tensors.empty()) weights.add(stored.tensors[i], stored.weights[i]);
    for (size_t j = 0; j < weights.tensors.size(); ++j) {
      sources.add(std::move(weights.tensors[j]), std::move(weights.weights[j]));
    }
  }
  return sources;
}

// The index of the first tensor of the checkpoint that the recipe of `tensor` reads.
size_t place_of(const KeyedTensor& tensor) {
  size_t first = SIZE_MAX;
  for (const StridedPiece& piece : tensor.recipe.pieces) first = std::min(first, piece.tensor);
  return first;
}

// The weights under the keys of the family, in the order of the checkpoint.
Result<Sources> family_tensors(const plan::MappedModel& model,
                               const converters::ModelConfig& config) {
  std::vector<converters::UndoneTensor> all;
  std::set<std::string> known;
  for (const converters::AssembledComponent& component : model.components) {
    if (component.role == kVisionEncoderRole || component.role == kAudioEncoderRole) continue;
    graph::StateDict weights;
    for (graph::Weight weight : component.model.weights.weights()) {
      weight.recipe.cast(graph::kept_dtype(weight.recipe));
      FERRY_RETURN_IF_ERROR(weights.add(std::move(weight)));
    }
    for (converters::UndoneTensor& made :
         FERRY_TRY(converters::undo_keys(weights, config, converters::key_rules(config),
                                         converters::standard_ties(config), {}))) {
      if (known.insert(made.tensor.key).second) all.push_back(std::move(made));
    }
  }
  std::ranges::sort(all, {}, [](const converters::UndoneTensor& made) {
    return std::pair(place_of(made.tensor), made.tensor.key);
  });
  Sources sources;
  for (converters::UndoneTensor& made : all) {
    sources.add(std::move(made.tensor), std::move(made.weights));
  }
  return sources;
}

std::map<std::string, std::vector<std::string>> targets_of(
    const std::vector<converters::GgufWrittenTensor>& written, const Sources& sources) {
  std::map<std::string, std::vector<std::string>> targets;
  for (const converters::GgufWrittenTensor& tensor : written) {
    for (const size_t source : tensor.made_of) {
      for (const std::string& weight : sources.weights[source]) {
        std::vector<std::string>& names = targets[weight];
        if (std::ranges::count(names, tensor.name) == 0) names.push_back(tensor.name);
      }
    }
  }
  return targets;
}

// Returns whether a weight is the table that encoder and decoder share. A checkpoint may have a
// copy of it as the decoder's.
bool is_shared_table(const plan::MappedModel& model, const graph::Weight& weight) {
  const converters::MappingReport& mapping = model.checkpoint.mapping;
  if (weight.recipe.pieces.size() != 1) return false;
  const size_t entry = weight.recipe.pieces.front().tensor;
  return entry < mapping.entries.size() &&
         std::ranges::count(mapping.entries[entry].targets, converters::kSharedTable) > 0;
}

}  // namespace

converters::ModelConfig gguf_config(const plan::MappedModel& model) {
  converters::ModelConfig config = model.checkpoint.config;
  const graph::Weight* head = find_weight(model, "output.weight");
  const graph::Weight* table = find_weight(model, "tok_embeddings.weight");
  const bool own = head != nullptr && table != nullptr && head->recipe != table->recipe &&
                   !is_shared_table(model, *head);
  if (own) config.tie_word_embeddings = false;
  return config;
}

Result<GgufModelTensors> gguf_model_tensors(const plan::MappedModel& model,
                                            const converters::GgufArchitecture& architecture) {
  const converters::ModelConfig config = gguf_config(model);
  const converters::GgufTables tables(architecture);
  Sources sources = with_weights(model, tables, stored_tensors(model, architecture.keeps_unused));
  const bool known = std::ranges::all_of(sources.tensors, [&](const KeyedTensor& tensor) {
    return !tables.known(tensor.key).empty();
  });
  if (!known) {
    if (auto undone = family_tensors(model, config)) sources = *std::move(undone);
  }
  GgufModelTensors out;
  out.written = FERRY_TRY(converters::write_gguf_tensors(*model.checkpoint.source, sources.tensors,
                                                         architecture, config));
  out.targets = targets_of(out.written, sources);
  out.layer_numbers = FERRY_TRY(converters::read_layer_numbers(
      *model.checkpoint.source, sources.tensors, architecture, config));
  return out;
}

namespace {

constexpr const char* kStem = "model";

std::vector<formats::GgufTensorInfo> infos_of(std::span<const GgufTensor> tensors) {
  std::vector<formats::GgufTensorInfo> infos;
  for (const GgufTensor& tensor : tensors) {
    infos.push_back({.name = tensor.name, .shape = tensor.shape, .type = tensor.type});
  }
  return infos;
}

// Plans one file. Moves from `tensors`.
Result<packer::WeightFile> gguf_file(std::string path, std::span<const GgufKeyValue> keys,
                                     std::span<GgufTensor> tensors) {
  const std::vector<formats::GgufTensorInfo> infos = infos_of(tensors);
  formats::GgufLayout layout = FERRY_TRY(formats::lay_out_gguf(keys, infos));
  packer::WeightFile file{.path = std::move(path), .bytes = layout.file_bytes};
  file.known.push_back({0, std::move(layout.head)});
  for (size_t i = 0; i < tensors.size(); ++i) {
    GgufTensor& tensor = tensors[i];
    const bool known = !tensor.bytes.empty();
    const uint64_t planned = known ? tensor.bytes.size() : tensor.recipe.output().bytes();
    if (planned != infos[i].bytes()) {
      return fail(ErrorCode::kInternal,
                  fmt::format("tensor {} has {} bytes, planned were {}", quoted(tensor.name),
                              planned, infos[i].bytes()));
    }
    if (known) {
      file.known.push_back({layout.offsets[i], std::move(tensor.bytes)});
    } else {
      file.tensors.push_back({tensor.name, std::move(tensor.recipe), layout.offsets[i]});
    }
  }
  return file;
}

}  // namespace

Result<packer::WeightFilesInput> gguf_files(const std::vector<GgufKeyValue>& keys,
                                            std::vector<GgufTensor> tensors,
                                            const ExportOptions& options) {
  packer::WeightFilesInput out;
  out.is_directory = !options.out.empty() && !options.out.ends_with(".gguf");
  const std::vector<size_t> parts =
      formats::gguf_parts(infos_of(tensors), options.convert.max_file_bytes, options.max_tensors);
  if (parts.size() > 1 && !out.is_directory && !options.out.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("the tensors need {} files, and {} names one: give a directory",
                            parts.size(), quoted(options.out)));
  }
  if (parts.size() == 1) {
    std::string name =
        out.is_directory || options.out.empty() ? "model.gguf" : base_name(options.out);
    out.files.push_back(FERRY_TRY(gguf_file(std::move(name), keys, tensors)));
    return out;
  }
  out.is_directory = true;
  std::span<GgufTensor> left = tensors;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<GgufKeyValue> own = i == 0 ? keys : std::vector<GgufKeyValue>();
    std::ranges::move(formats::gguf_split_keys(i, parts.size(), tensors.size()),
                      std::back_inserter(own));
    out.files.push_back(FERRY_TRY(
        gguf_file(formats::gguf_part_name(kStem, i + 1, parts.size()), own, left.first(parts[i]))));
    left = left.subspan(parts[i]);
  }
  return out;
}

bool is_gguf_source(const plan::MappedModel& model) {
  return std::ranges::any_of(model.tensors.names,
                             [](const auto& name) { return name.second == "token_embd.weight"; });
}

void sort_as_quantized(std::vector<GgufKeyValue>& keys, std::vector<GgufTensor>& tensors) {
  for (const char* last : {"general.quantization_version", "general.file_type"}) {
    const auto found = std::ranges::find(keys, last, &GgufKeyValue::key);
    if (found != keys.end()) std::rotate(found, found + 1, keys.end());
  }
  std::vector<converters::GgufNamedShape> shapes;
  for (const GgufTensor& tensor : tensors) shapes.push_back({tensor.name, tensor.shape});
  std::vector<GgufTensor> sorted;
  for (const size_t i : converters::gguf_name_order(shapes)) {
    sorted.push_back(std::move(tensors[i]));
    Shape& shape = sorted.back().shape;  // ggml drops trailing dimensions of 1
    while (shape.size() > 1 && shape[0] == 1) shape.erase(shape.begin());
  }
  tensors = std::move(sorted);
}

}  // namespace ferry::conversion
