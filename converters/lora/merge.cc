#include "converters/lora/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "converters/lora/merged_rows.h"
#include "core/json.h"
#include "core/text.h"
#include "graph/recipe.h"

namespace ferry::converters {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
// Prefixes of the keys of a model with a head; checkpoints of the base model alone lack them.
constexpr std::string_view kBases[] = {"model.", "transformer."};

// Whether the module is a layer of GPT-2 that stores (inputs, outputs). peft goes by the class of a
// layer too, and corrects fan_in_fan_out where that says something else.
bool is_conv1d(std::string_view module) {
  return module.find(".attn.c_") != std::string_view::npos ||
         module.find(".mlp.c_") != std::string_view::npos;
}

// A and B of one module: of a linear layer A is (rank, inputs) and B is (outputs, rank); of an
// embedding A is (rank, entries) and B is (width, rank).
struct Halves {
  std::optional<size_t> a, b;
  bool embedding = false;
};
struct HalfName {
  std::string_view part;
  bool is_a, embedding;
};
constexpr HalfName kHalves[] = {{".lora_A", true, false},
                                {".lora_B", false, false},
                                {".lora_embedding_A", true, true},
                                {".lora_embedding_B", false, true}};

class Merger {
 public:
  Merger(DerivedSource& source, size_t first, const LoraConfig& config, bool conv1d,
         KeyedTensors& tensors)
      : source_(source),
        first_(first),
        end_(source.entries().size()),
        config_(config),
        conv1d_(conv1d),
        tensors_(tensors) {
    for (size_t i = 0; i < tensors.tensors.size(); ++i) index_.emplace(tensors.tensors[i].key, i);
  }

  Result<std::string> run(bool tied) {
    for (size_t i = first_; i < end_; ++i) FERRY_RETURN_IF_ERROR(sort(i));
    for (const auto& [key, entry] : saved_) FERRY_RETURN_IF_ERROR(replace(key, entry, tied));
    for (const auto& [module, halves] : halves_) {
      if (tied && is_head(module)) return unties(halves.a.value_or(halves.b.value_or(first_)));
      FERRY_RETURN_IF_ERROR(merge(module, halves));
    }
    FERRY_RETURN_IF_ERROR(check_saved());
    return fmt::format("{} weights have an adapter merged into them, {} are replaced by its own",
                       halves_.size(), saved_.size());
  }

 private:
  const TensorEntry& entry(size_t index) const { return source_.entries()[index]; }

  Failure bad(size_t index, const std::string& what) const {
    return bad_input(fmt::format("{}: {} {}: {}", config_.tensors, quoted(entry(index).name),
                                 to_string(entry(index).shape), what));
  }

  // Sorts a tensor of the adapter: it is half of a product, or replaces a tensor of the checkpoint.
  Status sort(size_t index) {
    std::string_view name = entry(index).name;
    if (!name.starts_with(kPrefix))
      return bad(index, "its name does not begin with base_model.model.");
    name.remove_prefix(kPrefix.size());
    for (const HalfName& half : kHalves) {
      const size_t at = name.rfind(half.part);
      if (at == std::string_view::npos) continue;
      const std::string_view rest = name.substr(at + half.part.size());
      const bool ends =
          rest.empty() || rest == ".weight" || rest == ".default" || rest == ".default.weight";
      if (!ends) continue;
      Halves& halves = halves_[std::string(name.substr(0, at))];
      if ((halves.a || halves.b) && halves.embedding != half.embedding) {
        return bad(index, "one half is of an embedding, the other one is not");
      }
      halves.embedding = half.embedding;
      std::optional<size_t>& place = half.is_a ? halves.a : halves.b;
      if (place) return bad(index, "the same as " + quoted(entry(*place).name));
      place = index;
      return {};
    }
    if (name.find("lora_") != std::string_view::npos)
      return bad(index, "a tensor of no known kind");
    const auto [place, is_new] = saved_.emplace(without_base_layer(name), index);
    if (!is_new) return bad(index, "the same as " + quoted(entry(place->second).name));
    return {};
  }

  static bool is_head(std::string_view name) {
    return name == "lm_head" || name.starts_with("lm_head.");
  }

  // peft saves the weights below an adapter of an embedding or a head as `M.base_layer.weight`. The
  // adapter is merged into those weights, whatever the checkpoint has.
  static std::string without_base_layer(std::string_view name) {
    constexpr std::string_view kBaseLayer = ".base_layer.";
    const size_t at = name.rfind(kBaseLayer);
    if (at == std::string_view::npos) return std::string(name);
    return fmt::format("{}.{}", name.substr(0, at), name.substr(at + kBaseLayer.size()));
  }

  Failure unties(size_t index) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} would no longer be tied, as the config says it is",
                            config_.tensors, quoted(entry(index).name)));
  }

  // Checks that the adapter has the modules that it says it has. Modules that its base lacks belong
  // to other kinds of models.
  Status check_saved() const {
    for (const std::string& module : config_.saved_modules) {
      const auto of_module = [&](const auto& item) {
        return fmt::format(".{}.", item.first).find("." + module + ".") != std::string::npos;
      };
      if (std::ranges::any_of(saved_, of_module) || std::ranges::none_of(index_, of_module))
        continue;
      return bad_input(fmt::format("{}: 'modules_to_save' names {}, of which there is no tensor",
                                   config_.name, quoted(module, 60)));
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
    if (found != index_.end()) return found->second;
    return bad(of, fmt::format("the checkpoint has no {}", quoted(key)));
  }

  Status merge(const std::string& module, const Halves& halves) {
    const size_t one = halves.a.value_or(halves.b.value_or(first_));
    if (!halves.a || !halves.b) return bad(one, "the other half of the adapter is missing");
    if (!config_.has_target(module)) {
      return bad(one, fmt::format("'target_modules' of {} does not name its module", config_.name));
    }
    KeyedTensor& tensor = tensors_.tensors[FERRY_TRY(find(module + ".weight", one))];
    const Shape shape = tensor.recipe.output().shape;
    const int64_t rank = config_.rank_of(module);
    if (shape.size() != 2) return bad(one, fmt::format("{} is no matrix", quoted(tensor.key)));
    const bool transposed = halves.embedding || (conv1d_ && is_conv1d(module));
    const Shape a = {rank, transposed ? shape[0] : shape[1]};
    const Shape b = {transposed ? shape[1] : shape[0], rank};
    for (const auto& [index, expected] : {std::pair{*halves.a, a}, std::pair{*halves.b, b}}) {
      if (entry(index).shape != expected) {
        return bad(index, fmt::format("expected {} for {} {} and rank {}", to_string(expected),
                                      quoted(tensor.key), to_string(shape), rank));
      }
      FERRY_RETURN_IF_ERROR(expect_floats(index));
    }
    std::vector<size_t> parts = entries_of(tensor.recipe);
    parts.insert(parts.end(), {*halves.a, *halves.b});
    const graph::Recipe base = tensor.recipe;
    const size_t made =
        FERRY_TRY(source_.add({.name = tensor.key + " (merged)",
                               .shape = shape,
                               .parts = std::move(parts),
                               .kind = "lora",
                               .derivation = std::make_unique<MergedRows>(
                                   base, *halves.a, *halves.b, rank,
                                   static_cast<float>(config_.scale_of(module)), transposed)}));
    tensor.recipe = graph::derived_tensor(source_, made, kept_dtype(base));
    return {};
  }

  Status expect_floats(size_t index) const {
    if (is_castable(entry(index).dtype) && entry(index).encoding == nullptr) return {};
    return bad(index, fmt::format("is {}, expected f32, f16 or bf16", entry(index).form()));
  }

  // Puts a tensor of the adapter in the place of one of the checkpoint.
  Status replace(const std::string& key, size_t index, bool tied) {
    FERRY_RETURN_IF_ERROR(expect_floats(index));
    if (tied && (key.ends_with("embed_tokens.weight") || is_head(key))) return unties(index);
    const size_t at = FERRY_TRY(find(key, index));
    KeyedTensor& tensor = tensors_.tensors[at];
    if (tensor.recipe.output().shape != entry(index).shape) {
      return bad(index, fmt::format("the checkpoint has {} {}", quoted(tensor.key),
                                    to_string(tensor.recipe.output().shape)));
    }
    KeyedTensor base = tensor;
    base.unused = "replaced by that of the adapter";
    tensor.recipe = graph::derived_tensor(source_, index, kept_dtype(base.recipe));
    tensors_.tensors.push_back(std::move(base));
    return {};
  }

  DerivedSource& source_;
  size_t first_, end_;
  const LoraConfig& config_;
  bool conv1d_;  // the model has layers that store (inputs, outputs)
  KeyedTensors& tensors_;
  std::unordered_map<std::string, size_t> index_;  // keyed tensors by key
  std::map<std::string, Halves> halves_;           // by module
  std::map<std::string, size_t> saved_;            // by key
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
  return Merger(source, first, config, conv1d, tensors).run(tied);
}

}  // namespace ferry::converters
