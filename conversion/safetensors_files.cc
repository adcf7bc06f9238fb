// --to safetensors: writes the weights under their runtime names, which are also their names in a
// bundle.
#include "conversion/safetensors_files.h"

#include <fmt/format.h>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>

#include "conversion/export.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "formats/safetensors/writer.h"
#include "graph/passes/passes.h"

namespace ferry::conversion {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";

// A tensor that is stored once, and the further names that stand for it.
struct Stored {
  NamedRecipe tensor;
  std::vector<std::string> also = {};
};

// Returns a hash key. Equal recipes have equal keys; recipes with equal keys may still differ.
std::string bucket_of(const graph::Recipe& recipe) {
  const auto entries = entries_of(recipe);
  return fmt::format("{} {} {}", recipe.pieces.size(), entries.empty() ? 0 : entries.front(),
                     to_string(recipe.output().shape));
}

std::vector<Stored> distinct(std::vector<NamedRecipe> tensors) {
  std::vector<Stored> stored;
  std::unordered_map<std::string, std::vector<size_t>> buckets;
  for (NamedRecipe& tensor : tensors) {
    std::vector<size_t>& bucket = buckets[bucket_of(tensor.recipe)];
    Stored* same = nullptr;
    for (const size_t i : bucket) {
      if (stored[i].tensor.recipe == tensor.recipe) same = &stored[i];
    }
    if (same != nullptr) {
      same->also.push_back(std::move(tensor.name));
      continue;
    }
    bucket.push_back(stored.size());
    stored.push_back({std::move(tensor)});
  }
  return stored;
}

Result<formats::SafetensorsLayout> safetensors_layout(std::span<const Stored> stored) {
  std::vector<formats::TensorSpec> specs;
  formats::SafetensorsMetadata metadata = {{"format", "pt"}};
  for (const Stored& item : stored) {
    const graph::RecipeOutput& output = item.tensor.recipe.output();
    specs.push_back({item.tensor.name, output.dtype, output.shape});
    for (const std::string& name : item.also) metadata.emplace(name, item.tensor.name);
  }
  return formats::plan_safetensors(specs, metadata);
}

// Returns how many tensors at the front of `stored` fit into one file; at least one.
Result<size_t> fitting(std::span<const Stored> stored, uint64_t limit) {
  if (limit == 0) return stored.size();
  size_t high = 0;  // the largest count whose tensor bytes fit
  for (uint64_t sum = 0; high < stored.size(); ++high) {
    sum += stored[high].tensor.recipe.output().bytes();
    if (sum > limit) break;
  }
  size_t low = 0;  // a count that fits with the header
  while (low < high) {
    const size_t middle = high - (high - low) / 2;
    const bool fits = FERRY_TRY(safetensors_layout(stored.first(middle))).file_bytes <= limit;
    (fits ? low : high) = fits ? middle : middle - 1;
  }
  if (low > 0) return low;
  const uint64_t alone = FERRY_TRY(safetensors_layout(stored.first(1))).file_bytes;
  return fail(ErrorCode::kUsage,
              fmt::format("a file of at most {} bytes cannot hold tensor {}, which needs {}", limit,
                          quoted(stored[0].tensor.name), alone));
}

Result<packer::WeightFile> safetensors_file(std::span<Stored> stored, std::string path) {
  formats::SafetensorsLayout layout = FERRY_TRY(safetensors_layout(stored));
  packer::WeightFile file{.path = std::move(path), .bytes = layout.file_bytes};
  file.known.push_back({0, std::move(layout.head)});
  std::map<uint64_t, size_t> order;  // tensors without bytes are left out
  for (size_t i = 0; i < stored.size(); ++i) {
    if (stored[i].tensor.recipe.output().bytes() > 0) order.emplace(layout.offsets[i], i);
  }
  for (const auto& [offset, i] : order) {
    file.tensors.push_back({stored[i].tensor.name, std::move(stored[i].tensor.recipe), offset});
  }
  return file;
}

std::string index_text(const std::map<std::string, std::string>& weight_map, uint64_t bytes) {
  JsonWriter json;
  json.begin_object().key("metadata").begin_object().member("total_size", bytes).end_object();
  json.key("weight_map").begin_object();
  for (const auto& [name, file] : weight_map) json.member(name, file);
  json.end_object().end_object();
  return json.take() + "\n";
}

// Adds files of at most `limit` bytes and their index.
Status add_shards(std::span<Stored> stored, uint64_t limit, packer::WeightFilesInput& out) {
  std::vector<std::span<Stored>> shards;
  for (std::span<Stored> left = stored; !left.empty();) {
    const size_t count = FERRY_TRY(fitting(left, limit));
    shards.push_back(left.first(count));
    left = left.subspan(count);
  }
  std::map<std::string, std::string> weight_map;
  uint64_t bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string path = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const Stored& item : shards[i]) {
      weight_map.emplace(item.tensor.name, path);
      bytes += item.tensor.recipe.output().bytes();
    }
    out.files.push_back(FERRY_TRY(safetensors_file(shards[i], path)));
  }
  out.plain.push_back({.path = std::string(kIndexName), .text = index_text(weight_map, bytes)});
  return {};
}

}  // namespace

Result<bool> is_single_file(const ExportOptions& options, std::string_view ending) {
  if (!options.out.ends_with(ending)) return false;
  if (options.convert.max_file_bytes == 0) return true;
  return fail_field(
      ErrorCode::kUsage, "max_file_size",
      fmt::format(": the output must be a directory, {} names a file", quoted(options.out)));
}

std::vector<packer::PlainFileInput> plain_files(const std::vector<packer::CopiedFile>& copied) {
  std::vector<packer::PlainFileInput> files;
  for (const packer::CopiedFile& file : copied) {
    files.push_back({.path = file.name, .file = file.file, .text = file.text.value_or("")});
  }
  return files;
}

Result<packer::WeightFilesInput> safetensors_files(std::vector<NamedRecipe> tensors,
                                                   const std::vector<packer::CopiedFile>& copied,
                                                   const ExportOptions& options) {
  std::vector<Stored> stored = distinct(std::move(tensors));
  packer::WeightFilesInput out;
  if (FERRY_TRY(is_single_file(options, ".safetensors"))) {
    out.is_directory = false;
    out.files.push_back(FERRY_TRY(safetensors_file(stored, base_name(options.out))));
    return out;
  }
  const uint64_t limit = options.convert.max_file_bytes;
  if (limit == 0 || FERRY_TRY(safetensors_layout(stored)).file_bytes <= limit) {
    out.files.push_back(FERRY_TRY(safetensors_file(stored, "model.safetensors")));
  } else {
    FERRY_RETURN_IF_ERROR(add_shards(stored, limit, out));
  }
  for (packer::PlainFileInput& file : plain_files(copied)) out.plain.push_back(std::move(file));
  return out;
}

Result<PlannedFiles> plan_safetensors_files(plan::MappedModel& model,
                                            const ExportOptions& options) {
  std::vector<NamedRecipe> tensors;
  for (converters::AssembledComponent& component : model.components) {
    const graph::Model cast =
        FERRY_TRY(graph::cast_weights(std::move(component.model), options.convert.dtype));
    for (const graph::Weight& weight : cast.weights.weights()) {
      tensors.push_back({weight.name, weight.recipe});
    }
  }
  PlannedFiles planned;
  planned.files = FERRY_TRY(safetensors_files(std::move(tensors), model.copied, options));
  return planned;
}

}  // namespace ferry::conversion
