#include "converters/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "converters/keys/standard_keys.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

// What the file calls the tensor that families know as `key`.
class StoredNames {
 public:
  StoredNames(const TensorSource& source, const KeyedTensors& keyed, std::string prefix)
      : names_(keyed.names), prefix_(std::move(prefix)) {
    for (const KeyedTensor& tensor : keyed.tensors) {
      std::string name = source_names(tensor.recipe, source);
      if (name != tensor.key) names_[tensor.key] = std::move(name);
    }
  }
  std::string of(const std::string& key) const {
    const auto found = names_.find(key);
    return found == names_.end() ? prefix_ + key : found->second;
  }

 private:
  std::unordered_map<std::string, std::string> names_;
  std::string prefix_;  // that a wrapper put before all keys
};

// Explains why the output head is missing.
std::string head_hint(const std::string& weight, const ModelConfig& config) {
  if (weight != "output.weight" || config.tie_word_embeddings) return {};
  return "; the config does not tie the head to the embedding (tie_word_embeddings is false)";
}

// What is wrong with the weight that `value` stands for; none if it is there in the right shape.
std::optional<KeyProblem> check_weight(const graph::Value& value, const MappedKeys& mapped,
                                       const std::vector<KeyRule>& rules, const ModelConfig& config,
                                       const StoredNames& stored) {
  Shape shape;
  for (const graph::Dim& dim : value.shape) shape.push_back(dim.base);
  const std::string key = stored.of(expected_key(rules, value.name, mapped.matched));
  const graph::Weight* weight = mapped.weights.find(value.name);
  if (weight == nullptr) {
    if (mapped.rejected.contains(value.name)) return std::nullopt;
    return KeyProblem{
        .kind = KeyProblem::Kind::kMissing,
        .key = key,
        .message = fmt::format("missing: {} {} (for {}{})", quoted(key), to_string(shape),
                               value.name, head_hint(value.name, config))};
  }
  if (weight->recipe.output().shape == shape) return std::nullopt;
  return KeyProblem{
      .kind = KeyProblem::Kind::kShape,
      .key = key,
      .message = fmt::format("shape: {} makes {} {}, the config wants {}", quoted(key), value.name,
                             to_string(weight->recipe.output().shape), to_string(shape))};
}

// Weights that the methods use and the checkpoint lacks, or has in another shape; weights that no
// method uses.
std::vector<KeyProblem> compare(const Methods& methods, const MappedKeys& mapped,
                                const std::vector<KeyRule>& rules, const ModelConfig& config,
                                const StoredNames& stored) {
  std::vector<KeyProblem> problems;
  std::set<std::string> wanted;
  for (const graph::MethodGraph& method : methods) {
    for (const graph::Value& value : method.graph.values) {
      if (value.origin != graph::Value::Origin::kWeight) continue;
      if (!wanted.insert(value.name).second) continue;
      if (auto problem = check_weight(value, mapped, rules, config, stored)) {
        problems.push_back(*std::move(problem));
      }
    }
  }
  for (const graph::Weight& weight : mapped.weights.weights()) {
    if (wanted.contains(weight.name)) continue;
    const std::string key = stored.of(expected_key(rules, weight.name, mapped.matched));
    problems.push_back(
        {.kind = KeyProblem::Kind::kUnmapped,
         .key = key,
         .message = fmt::format("unmapped: {} (the model that the config describes has no {})",
                                quoted(key), weight.name)});
  }
  return problems;
}

}  // namespace

Result<Assembled> assemble(const TensorSource& source, const KeyedTensors& keyed,
                           const ModelConfig& config, const BuildOptions& build,
                           const MappingOptions& mapping) {
  const FamilySpec& family = *config.family;
  const std::vector<KeyRule> rules = key_rules(family, config);
  MappingOptions options = mapping;
  options.base_prefix = family.text_decoder().prefixes.front();
  MappedKeys mapped =
      FERRY_TRY(map_keys(source, keyed, config, rules, standard_ties(config), options));
  Methods methods = FERRY_TRY(family.text_decoder().build(config, build));
  const StoredNames stored(source, keyed, mapped.report.prefix());
  Assembled out;
  out.problems = std::move(mapped.problems);
  for (KeyProblem& problem : compare(methods, mapped, rules, config, stored)) {
    out.problems.push_back(std::move(problem));
  }
  out.report = std::move(mapped.report);
  if (out.problems.empty()) {
    out.model =
        FERRY_TRY(graph::bind(std::move(methods), std::move(mapped.weights), source.path()));
  } else {
    out.model = {std::move(methods), std::move(mapped.weights)};
  }
  return out;
}

Error problems_error(const std::vector<KeyProblem>& problems, const TensorSource& source) {
  // A dtype that Ferry cannot cast is a limit of Ferry; any other problem is one of the checkpoint.
  const bool only_dtypes = std::ranges::all_of(
      problems, [](const KeyProblem& p) { return p.kind == KeyProblem::Kind::kDType; });
  Error error{.code = only_dtypes ? ErrorCode::kUnsupported : ErrorCode::kBadInput,
              .message = fmt::format("{}: {} problem{} with the checkpoint's keys", source.path(),
                                     problems.size(), problems.size() == 1 ? "" : "s")};
  for (const KeyProblem& problem : problems) error.details.push_back(problem.message);
  return error;
}

}  // namespace ferry::converters
