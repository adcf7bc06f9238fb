#include "plan/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/adapter_input.h"
#include "converters/lora/adapter_tensors.h"
#include "converters/lora/factors.h"
#include "core/derived_source.h"
#include "core/text.h"

namespace ferry::plan {
namespace {

std::vector<converters::ModelWeight> weights_of(const MappedModel& model) {
  std::vector<converters::ModelWeight> weights;
  std::set<std::string_view> known;
  for (const converters::AssembledComponent& component : model.components) {
    for (const graph::Weight& weight : component.model.weights.weights()) {
      if (!known.insert(weight.name).second) continue;
      weights.push_back({weight.name, weight.recipe.output().shape, &weight.recipe});
    }
  }
  return weights;
}

// Whether the checkpoint has the values of an entry of an adapter.
Result<bool> is_of_base(const MappedModel& model, const TensorSource& source,
                        const std::string& key, size_t entry) {
  const bool is_head = key.starts_with("lm_head.");
  for (const converters::KeyedTensor& tensor : model.tensors.tensors) {
    const bool tied = is_head && tensor.key.ends_with("embed_tokens.weight");
    if (tensor.key != key && !key.ends_with("." + tensor.key) && !tied) continue;
    if (tensor.recipe.is_coded()) return false;
    graph::Recipe base = tensor.recipe, own = graph::whole_tensor(source, entry);
    if (base.output().shape != own.output().shape) continue;
    base.cast(DType::kF32);
    own.cast(DType::kF32);
    if (FERRY_TRY(same_bytes(base, own, source))) return true;
  }
  return false;
}

}  // namespace

Result<PlannedAdapters> plan_adapters(const ConvertOptions& options, MappedModel& model) {
  PlannedAdapters planned;
  planned.slots = options.factors;
  if (options.adapters.empty()) {
    if (!options.adapter_dtype) return planned;
    return fail_field(ErrorCode::kUsage, "adapter-dtype", ": there are no adapters");
  }
  if (options.single_head_attention) {
    return fail_field(ErrorCode::kUsage, "adapters",
                      ": single-head attention splits the matrices that they change");
  }
  std::vector<AdapterChoice> choices = options.adapters;
  std::ranges::sort(choices, {}, &AdapterChoice::name);
  const std::vector<converters::ModelWeight> weights = weights_of(model);
  auto source = std::make_unique<DerivedSource>(std::move(model.checkpoint.source));
  std::vector<converters::PlacedAdapter> placed;
  std::vector<size_t> first_entries;
  for (const AdapterChoice& choice : choices) {
    checkpoint::AdapterFiles files = FERRY_TRY(checkpoint::open_adapter(choice.path));
    packer::AdapterInput& input = planned.files.emplace_back(packer::AdapterInput{choice.name});
    const size_t first_file = source->files().size();
    first_entries.push_back(FERRY_TRY(checkpoint::add_adapter(*source, files, choice.name)));
    for (size_t file = first_file; file < source->files().size(); ++file) {
      input.source_files.push_back(file);
    }
    const auto sorted =
        FERRY_TRY(converters::AdapterTensors::sort(*source, first_entries.back(), files.config));
    placed.push_back(FERRY_TRY(converters::place_adapter(
        sorted, weights, model.checkpoint.config, [&](const std::string& key, size_t entry) {
          return is_of_base(model, *source, key, entry);
        })));
  }
  planned.slots = converters::slots_of(placed, weights);
  if (options.adapter_dtype) planned.slots.dtype = *options.adapter_dtype;
  for (size_t i = 0; i < placed.size(); ++i) {
    planned.files[i].factors = FERRY_TRY(converters::factor_weights(
        placed[i], planned.slots, weights, *source, choices[i].name, first_entries[i]));
  }
  model.checkpoint.source = std::move(source);
  return planned;
}

}  // namespace ferry::plan
