#include "pipeline/weight_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/text.h"

namespace ferry::pipeline {
namespace {

// "'a.weight' and 2 more", the source keys of a weight.
std::string keys_of(const graph::Recipe& recipe, const TensorSource& source) {
  const std::vector<size_t> entries = entries_of(recipe);
  if (entries.empty()) return "no source";
  std::string text = quoted(source.entries()[entries[0]].name);
  if (entries.size() > 1) text += fmt::format(" and {} more", entries.size() - 1);
  return text;
}

// The first byte that differs from an output of the recipe, if any.
Result<std::optional<uint64_t>> first_difference(const graph::Recipe& recipe, size_t output,
                                                 const TensorSource& source,
                                                 std::span<const std::byte> stored) {
  const uint64_t tile_size = static_cast<uint64_t>(tile_rows(recipe)) * row_bytes(recipe, output);
  std::vector<std::byte> tile(std::min<uint64_t>(tile_size, stored.size()));
  for (uint64_t at = 0; at < stored.size(); at += tile_size) {
    const std::span<const std::byte> have =
        stored.subspan(at, std::min<uint64_t>(tile_size, stored.size() - at));
    const std::span<std::byte> want = std::span(tile).first(have.size());
    FERRY_RETURN_IF_ERROR(graph::materialize(recipe, source, output, at, want));
    const auto differs = std::ranges::mismatch(have, want).in1;
    if (differs != have.end()) return at + static_cast<uint64_t>(differs - have.begin());
  }
  return std::nullopt;
}

using WeightMap = std::map<std::string, graph::WeightOutput>;  // by the key of each output

// Empty where `tensor` is exactly what the source gives.
Result<std::string> compare_tensor(const packer::ManifestTensor& tensor,
                                   const packer::Bundle& bundle, const WeightMap& weights,
                                   const TensorSource& source) {
  const auto found = weights.find(tensor.name);
  if (found == weights.end()) {
    return fmt::format("{}: the checkpoint's model has no such weight", quoted(tensor.name));
  }
  const auto [weight, output] = found->second;
  graph::Recipe recipe = weight->recipe;
  if (!recipe.is_coded()) recipe.cast(tensor.dtype);
  const std::string keys = keys_of(recipe, source);
  const graph::RecipeOutput& made = recipe.outputs[output];
  if (made.dtype != tensor.dtype || made.shape != tensor.shape || made.bytes() != tensor.bytes) {
    return fmt::format("{}: {} {} in the bundle, {} {} from {}", quoted(tensor.name),
                       dtype_name(tensor.dtype), to_string(tensor.shape), dtype_name(made.dtype),
                       to_string(made.shape), keys);
  }
  const std::span<const std::byte> file = bundle.data().at(tensor.file).file.bytes();
  const auto at = FERRY_TRY(
      first_difference(recipe, output, source, file.subspan(tensor.offset, tensor.bytes)));
  if (!at) return std::string();
  return fmt::format("{}: differs from {} at byte {} of {}", quoted(tensor.name), keys, *at,
                     tensor.bytes);
}

}  // namespace

Result<WeightProof> prove_weights(ThreadPool& pool, const packer::Bundle& bundle,
                                  const Conversion& conversion) {
  const std::vector<packer::ManifestTensor>& tensors = bundle.manifest().tensors;
  WeightMap weights;
  for (const ConvertedComponent& component : conversion.components) {
    for (const graph::Model& part : component.parts) {
      for (const graph::Weight& weight : part.weights.weights()) {
        for (size_t i = 0; i < weight.recipe.outputs.size(); ++i) {
          weights.emplace(graph::key_of(weight, i), graph::WeightOutput{&weight, i});
        }
      }
    }
  }
  std::vector<Result<std::string>> results(tensors.size(), std::string());
  pool.parallel_for(tensors.size(), [&](size_t i) {
    results[i] = compare_tensor(tensors[i], bundle, weights, *conversion.source);
  });
  WeightProof proof;
  std::set<std::string> stored;
  std::set<std::pair<std::string, uint64_t>> segments;  // tied weights share one
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::string line = FERRY_TRY(std::move(results[i]));
    if (!line.empty()) proof.different.push_back(std::move(line));
    proof.tensors += 1;
    const bool fresh = segments.emplace(tensors[i].file, tensors[i].offset).second;
    proof.bytes += fresh ? tensors[i].bytes : 0;
    stored.insert(tensors[i].name);
  }
  for (const auto& [name, made] : weights) {
    if (stored.contains(name)) continue;
    proof.different.push_back(fmt::format("{}: made by {}, but not in the bundle", quoted(name),
                                          keys_of(made.weight->recipe, *conversion.source)));
  }
  FERRY_RETURN_IF_ERROR(conversion.source->check_unchanged());
  return proof;
}

}  // namespace ferry::pipeline
