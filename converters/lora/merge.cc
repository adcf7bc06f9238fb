#include "converters/lora/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "converters/lora/adapter_tensors.h"
#include "converters/lora/magnitudes.h"
#include "converters/lora/merged_rows.h"
#include "core/json.h"
#include "core/text.h"
#include "graph/recipe.h"

namespace ferry::converters {
namespace {

// Prefixes of the keys of a model with a head; checkpoints of the base model alone lack them.
constexpr std::string_view kBases[] = {"model.", "transformer."};

// transformers 5 gives the decoder of a model with a tower the first prefix; files saved by older
// versions have the second one, and keep it.
constexpr std::string_view kDecoder = "model.language_model.",
                           kOldDecoder = "language_model.model.";

// Whether the module is a layer of GPT-2 that stores (inputs, outputs). peft goes by the class of a
// layer too, and corrects fan_in_fan_out where that says something else.
bool is_conv1d(std::string_view module) {
  return module.find(".attn.c_") != std::string_view::npos ||
         module.find(".mlp.c_") != std::string_view::npos;
}

class Merger {
 public:
  Merger(DerivedSource& source, const AdapterTensors& adapter, bool conv1d, KeyedTensors& tensors)
      : source_(source), adapter_(adapter), conv1d_(conv1d), tensors_(tensors) {
    for (size_t i = 0; i < tensors.tensors.size(); ++i) index_.emplace(tensors.tensors[i].key, i);
  }

  Result<std::string> run(bool tied) {
    for (const auto& [key, entry] : adapter_.saved()) {
      FERRY_RETURN_IF_ERROR(replace(key, entry, tied));
    }
    for (const auto& [module, halves] : adapter_.modules()) {
      if (tied && is_head(module)) return unties(halves.any());
      FERRY_RETURN_IF_ERROR(merge(module, halves));
    }
    FERRY_RETURN_IF_ERROR(check_saved());
    return fmt::format("{} weights have an adapter merged into them, {} are replaced by its own",
                       adapter_.modules().size(), adapter_.saved().size());
  }

 private:
  const TensorEntry& entry(size_t index) const { return source_.entries()[index]; }

  static bool is_head(std::string_view name) {
    return name == "lm_head" || name.starts_with("lm_head.");
  }

  Failure unties(size_t index) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} would no longer be tied, as the config says it is",
                            adapter_.config().tensors, quoted(entry(index).name)));
  }

  // Checks that the adapter has the modules that it says it has. Modules that its base lacks belong
  // to other kinds of models.
  Status check_saved() const {
    for (const std::string& module : adapter_.config().saved_modules) {
      const auto of_module = [&](const auto& item) {
        return fmt::format(".{}.", item.first).find("." + module + ".") != std::string::npos;
      };
      if (std::ranges::any_of(adapter_.saved(), of_module) ||
          std::ranges::none_of(index_, of_module))
        continue;
      return bad_input(fmt::format("{}: 'modules_to_save' names {}, of which there is no tensor",
                                   adapter_.config().name, quoted(module, 60)));
    }
    return {};
  }

  // Returns the index of the checkpoint's tensor with this key.
  Result<size_t> find(std::string_view key, size_t of) const {
    auto found = index_.find(std::string(key));
    for (const std::string_view base : kBases) {
      if (found != index_.end()) return found->second;
      if (key.starts_with(base)) found = index_.find(std::string(key.substr(base.size())));
    }
    for (const auto& [prefix, other] :
         {std::pair(kDecoder, kOldDecoder), {kOldDecoder, kDecoder}}) {
      if (found != index_.end()) return found->second;
      if (key.starts_with(prefix)) {
        found = index_.find(std::string(other).append(key.substr(prefix.size())));
      }
    }
    if (found != index_.end()) return found->second;
    return adapter_.bad(of, fmt::format("the checkpoint has no {}", quoted(key)));
  }

  Status merge(const std::string& module, const AdapterHalves& halves) {
    FERRY_RETURN_IF_ERROR(adapter_.check_halves(module, halves));
    const size_t one = *halves.a;
    KeyedTensor& tensor = tensors_.tensors[FERRY_TRY(find(module + ".weight", one))];
    const Shape shape = tensor.recipe.output().shape;
    const LoraNumbers numbers = FERRY_TRY(adapter_.config().numbers_of(module));
    const int64_t rank = numbers.rank;
    if (shape.size() != 2) {
      return adapter_.bad(one, fmt::format("{} is no matrix", quoted(tensor.key)));
    }
    const bool transposed = halves.embedding || (conv1d_ && is_conv1d(module));
    FERRY_RETURN_IF_ERROR(adapter_.check_shapes(halves, tensor.key, shape,
                                                {rank, transposed ? shape[0] : shape[1]},
                                                {transposed ? shape[1] : shape[0], rank}));
    std::vector<size_t> parts = entries_of(tensor.recipe);
    parts.insert(parts.end(), {*halves.a, *halves.b});
    const graph::Recipe base = tensor.recipe;
    size_t made = FERRY_TRY(source_.add(
        {.name = tensor.key + " (merged)",
         .shape = shape,
         .parts = std::move(parts),
         .kind = "lora",
         .derivation = std::make_unique<MergedRows>(
             base, *halves.a, *halves.b, rank, static_cast<float>(numbers.scale), transposed)}));
    if (halves.magnitude) {
      made = FERRY_TRY(multiply(tensor.key, shape, made, *halves.magnitude, transposed));
    }
    tensor.recipe = graph::derived_tensor(source_, made, kept_dtype(base));
    return {};
  }

  // Returns the entry of a merged matrix times the gains of its magnitudes.
  Result<size_t> multiply(const std::string& key, const Shape& shape, size_t merged,
                          size_t magnitude, bool transposed) {
    const int64_t outputs = entry(magnitude).shape[0];
    std::vector<int64_t> order(static_cast<size_t>(outputs));
    std::iota(order.begin(), order.end(), int64_t{0});
    const size_t gains = FERRY_TRY(source_.add(
        {.name = key + " (gains)",
         .shape = {outputs, 1},
         .parts = {merged, magnitude},
         .kind = "dora",
         .derivation = std::make_unique<Gains>(merged, magnitude, std::move(order), 1.0F,
                                               /*by_column=*/transposed)}));
    return source_.add({.name = key + " (merged, with magnitudes)",
                        .shape = shape,
                        .parts = {merged, gains},
                        .kind = "dora",
                        .derivation = std::make_unique<GainedMatrix>(merged, gains, transposed)});
  }

  // Puts a tensor of the adapter in the place of one of the checkpoint.
  Status replace(const std::string& key, size_t index, bool tied) {
    FERRY_RETURN_IF_ERROR(adapter_.expect_floats(index));
    if (tied && (key.ends_with("embed_tokens.weight") || is_head(key))) return unties(index);
    const size_t at = FERRY_TRY(find(key, index));
    KeyedTensor& tensor = tensors_.tensors[at];
    if (tensor.recipe.output().shape != entry(index).shape) {
      return adapter_.bad(index, fmt::format("the checkpoint has {} {}", quoted(tensor.key),
                                             to_string(tensor.recipe.output().shape)));
    }
    KeyedTensor base = tensor;
    base.unused = "replaced by that of the adapter";
    tensor.recipe = graph::derived_tensor(source_, index, kept_dtype(base.recipe));
    tensors_.tensors.push_back(std::move(base));
    return {};
  }

  DerivedSource& source_;
  const AdapterTensors& adapter_;
  bool conv1d_;  // the model has layers that store (inputs, outputs)
  KeyedTensors& tensors_;
  std::unordered_map<std::string, size_t> index_;  // keyed tensors by key
};

// Whether the config may tie the head to the embedding: it says so, or says nothing.
bool may_be_tied(const nlohmann::json& config) {
  const auto stated = config.find("tie_word_embeddings");
  return stated == config.end() || *stated != false;
}

}  // namespace

Result<std::string> merge_lora(DerivedSource& source, size_t first, const LoraConfig& config,
                               const std::string& model_config, KeyedTensors& tensors) {
  const nlohmann::json document = FERRY_TRY(parse_json(model_config, "config.json"));
  const bool tied = document.is_object() && may_be_tied(document);
  const bool conv1d =
      document.is_object() && document.value("model_type", nlohmann::json()) == "gpt2";
  const AdapterTensors adapter = FERRY_TRY(AdapterTensors::sort(source, first, config));
  return Merger(source, adapter, conv1d, tensors).run(tied);
}

}  // namespace ferry::converters
