// --to hf: writes a checkpoint with Hugging Face keys from a source of any format.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "checkpoint/checkpoint_input.h"
#include "conversion/export.h"
#include "conversion/safetensors_files.h"
#include "converters/family.h"
#include "converters/keys/key_pattern.h"
#include "converters/keys/keyed_tensors.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/undo_keys.h"
#include "core/json.h"
#include "core/text.h"
#include "graph/recipe.h"

namespace ferry::conversion {
namespace {

using converters::KeyedTensor;
using converters::KeyRule;
using converters::MappedEntry;

// The names of the rules whose tensors have another layout than in checkpoints of the family.
std::set<std::string> foreign_rules(const std::vector<KeyRule>& rules) {
  std::set<std::string> foreign;
  for (const KeyRule& rule : rules) {
    if (rule.layout && !rule.own_layout) foreign.insert(rule.name);
    if (rule.name == converters::kDialectRule) foreign.insert(rule.name);
  }
  return foreign;
}

// Copies tensors of the checkpoint unchanged, under the keys that the reference library knows.
class Carrier {
 public:
  Carrier(plan::MappedModel& model)
      : model_(model),
        prefix_(model.checkpoint.mapping.prefix()),
        index_(converters::entry_index(*model.checkpoint.source, model.tensors)) {}

  Result<std::vector<NamedRecipe>> run() {
    const std::vector<KeyRule> rules = converters::key_rules(model_.checkpoint.config);
    const std::set<std::string> foreign = foreign_rules(rules);
    std::vector<MappedEntry>& entries = model_.checkpoint.mapping.entries;
    const bool undo = std::ranges::any_of(
        entries, [&](const MappedEntry& entry) { return foreign.contains(entry.rule); });
    if (entries.size() < index_.back()) {
      return fail(ErrorCode::kInternal, "the account does not have every tensor");
    }
    for (size_t i = 0; i < model_.tensors.tensors.size(); ++i) {
      KeyedTensor& tensor = model_.tensors.tensors[i];
      const std::span<MappedEntry> own =
          std::span(entries).subspan(index_[i], index_[i + 1] - index_[i]);
      if (!tensor.unused.empty() || is_tied(own)) continue;
      const bool mapped = !own[0].targets.empty();
      if (mapped && foreign.contains(own[0].rule)) continue;
      std::string key = tensor.key.substr(prefix_.size());
      known_.insert(key);
      if (undo && mapped) continue;
      carry(own, std::move(key), std::move(tensor.recipe));
    }
    // Entries without a source are tied weights.
    std::erase_if(entries, [](const MappedEntry& entry) { return entry.source.empty(); });
    if (undo) FERRY_RETURN_IF_ERROR(undo_all(rules));
    return std::move(out_);
  }

 private:
  // Whether the entries of a tensor are a second copy of a tensor that the config ties to another
  // one.
  bool is_tied(std::span<MappedEntry> own) const {
    for (const converters::TieRule& tie : converters::standard_ties(model_.checkpoint.config)) {
      if (own[0].rule != tie.name) continue;
      for (MappedEntry& entry : own) {
        entry.targets.clear();
        entry.reason = "the config ties it to another tensor";
      }
      return true;
    }
    return false;
  }

  void carry(std::span<MappedEntry> own, std::string key, graph::Recipe recipe) {
    for (MappedEntry& entry : own) {
      entry.targets = {key};
      entry.reason.clear();
    }
    out_.push_back({std::move(key), std::move(recipe)});
  }

  // Writes all weights under the keys of the family, because tensors are packed in a way that the
  // reference library does not read.
  Status undo_all(const std::vector<KeyRule>& rules) {
    const converters::ModelConfig& config = model_.checkpoint.config;
    std::map<std::string, std::vector<std::string>> keys_of;  // by name of the weight
    for (converters::AssembledComponent& component : model_.components) {
      graph::StateDict weights;
      for (graph::Weight weight : component.model.weights.weights()) {
        weight.recipe.cast(weight.recipe.source_dtype);
        FERRY_RETURN_IF_ERROR(weights.add(std::move(weight)));
      }
      for (converters::UndoneTensor& made : FERRY_TRY(converters::undo_keys(
               weights, config, rules, converters::standard_ties(config), known_))) {
        for (const std::string& weight : made.weights) keys_of[weight].push_back(made.tensor.key);
        if (!names_.insert(made.tensor.key).second) continue;
        out_.push_back({std::move(made.tensor.key), std::move(made.tensor.recipe)});
      }
    }
    for (MappedEntry& entry : model_.checkpoint.mapping.entries) name_targets(entry, keys_of);
    return {};
  }

  static void name_targets(MappedEntry& entry,
                           const std::map<std::string, std::vector<std::string>>& keys_of) {
    std::vector<std::string> keys;
    for (const std::string& weight : entry.targets) {
      const auto found = keys_of.find(weight);
      if (found == keys_of.end()) continue;
      for (const std::string& key : found->second) {
        if (std::ranges::count(keys, key) == 0) keys.push_back(key);
      }
    }
    if (!keys.empty()) entry.targets = std::move(keys);
  }

  plan::MappedModel& model_;
  std::string prefix_;           // the prefix that wrappers put before keys
  std::vector<size_t> index_;    // the first entry of each tensor
  std::set<std::string> known_;  // keys that are not changed
  std::set<std::string> names_;  // names of the tensors whose key rules were undone
  std::vector<NamedRecipe> out_;
};

// Sets the dtype in every object of the config that states one.
void set_dtype(nlohmann::json& value, const std::string& dtype) {
  if (!value.is_object()) return;
  for (auto& [key, member] : value.items()) {
    if ((key == "dtype" || key == "torch_dtype") && member.is_string()) member = dtype;
    set_dtype(member, dtype);
  }
}

// Removes the description of quantised tensors, which the output no longer has. Returns whether
// there was one.
bool drop_quantization(nlohmann::json& config) {
  bool dropped = config.erase("quantization_config") > 0;
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) {
    dropped = text->erase("quantization_config") > 0 || dropped;
  }
  return dropped;
}

// Sets the dtype in which the reference library computes to the dtype of the weights. Removes the
// description of quantisation if all tensors are floats.
Status settle_config(plan::MappedModel& model, std::optional<DType> dtype, bool all_floats) {
  nlohmann::json config = FERRY_TRY(parse_json(model.config_text, model.config_name));
  if (!config.is_object()) return {};
  const bool dropped = all_floats && drop_quantization(config);
  if (!dtype && !dropped) return {};
  if (dtype) {
    set_dtype(config, *dtype == DType::kF32   ? "float32"
                      : *dtype == DType::kF16 ? "float16"
                                              : "bfloat16");
  }
  for (packer::CopiedFile& file : model.copied) {
    if (file.name != "config.json") continue;
    file.file = nullptr;
    file.text = config.dump(2) + "\n";
  }
  return {};
}

}  // namespace

Result<PlannedFiles> plan_hugging_face_files(plan::MappedModel& model,
                                             const ExportOptions& options) {
  const converters::ModelConfig& config = model.checkpoint.config;
  if (config.multimodal && config.vision_family == nullptr &&
      checkpoint::is_bundle(options.convert.source)) {
    return fail_field(ErrorCode::kUnsupported, "to",
                      fmt::format(" hf: {}: the bundle has the text decoder of {} alone, and its "
                                  "config.json describes all of the model",
                                  printable(options.convert.source), quoted(config.model_type)));
  }
  std::vector<NamedRecipe> tensors = FERRY_TRY(Carrier(model).run());
  const std::optional<DType> dtype = dtype_of(options.convert.dtype);
  bool all_floats = true;
  for (NamedRecipe& tensor : tensors) {
    const bool is_float = is_castable(tensor.recipe.output().dtype);
    const bool derived = graph::is_derived(tensor.recipe, *model.checkpoint.source);
    if (is_float && (dtype || derived)) {
      tensor.recipe.cast(dtype.value_or(graph::kept_dtype(tensor.recipe)));
    }
    all_floats = all_floats && is_float;
  }
  FERRY_RETURN_IF_ERROR(settle_config(model, dtype, all_floats));
  PlannedFiles planned;
  planned.files = FERRY_TRY(safetensors_files(std::move(tensors), model.copied, options));
  return planned;
}

}  // namespace ferry::conversion
