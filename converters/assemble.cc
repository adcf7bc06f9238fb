#include "converters/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "converters/family.h"
#include "converters/keys/key_hints.h"
#include "converters/keys/standard_keys.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

// Maps the keys that a family knows to the names that the checkpoint's files have.
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
  std::string prefix_;  // a prefix that a wrapper put before all keys
};

// Explains why the output head is missing.
std::string head_hint(const std::string& weight, const ModelConfig& config) {
  if (weight != "output.weight" || config.tie_word_embeddings) return {};
  return "; the config does not tie the head to the embedding (tie_word_embeddings is false)";
}

// Returns the name under which a missing weight is reported: that of the table that stands for it,
// where an encoder-decoder has one.
std::string missing_name(const std::string& weight, const MappedKeys& mapped,
                         const ModelConfig& config) {
  if (!config.source || mapped.weights.find(weight) != nullptr) return weight;
  for (const TieRule& tie : standard_ties(config)) {
    if (tie.target == weight && mapped.weights.find(tie.same_as) == nullptr) return tie.same_as;
  }
  return weight;
}

// Returns the problem with the weight that `value` stands for; nullopt if the weight is there in
// the right shape.
std::optional<KeyProblem> check_weight(const graph::Value& value, const MappedKeys& mapped,
                                       const ExpectedKeys& expected, const ModelConfig& config,
                                       const StoredNames& stored) {
  Shape shape;
  for (const graph::Dim& dim : value.shape) shape.push_back(dim.base);
  const graph::Weight* weight = mapped.weights.find(value.name);
  const std::string name = missing_name(value.name, mapped, config);
  if (weight == nullptr && mapped.rejected.contains(name)) return std::nullopt;
  if (weight != nullptr && weight->recipe.output().shape == shape) return std::nullopt;
  const std::string key = stored.of(expected.of(name));
  if (weight == nullptr) {
    return KeyProblem{.kind = KeyProblem::Kind::kMissing,
                      .key = key,
                      .message = fmt::format("missing: {} {} (for {}{})", quoted(key),
                                             to_string(shape), name, head_hint(name, config))};
  }
  return KeyProblem{
      .kind = KeyProblem::Kind::kShape,
      .key = key,
      .message = fmt::format("shape: {} makes {} {}, the config wants {}", quoted(key), value.name,
                             to_string(weight->recipe.output().shape), to_string(shape))};
}

void for_each_weight(const Methods& methods, const std::function<void(const graph::Value&)>& body) {
  for (const graph::MethodGraph& method : methods) {
    for (const graph::Value& value : method.graph.values) {
      if (value.origin == graph::Value::Origin::kWeight) body(value);
    }
  }
}

// Returns the weights that the methods use, in the order of `all`.
Result<graph::StateDict> weights_of(const Methods& methods, const graph::StateDict& all) {
  std::set<std::string> wanted;
  for_each_weight(methods, [&](const graph::Value& value) { wanted.insert(value.name); });
  graph::StateDict used;
  for (const graph::Weight& weight : all.weights()) {
    if (wanted.contains(weight.name)) FERRY_RETURN_IF_ERROR(used.add(weight));
  }
  return used;
}

// Lists the weights that the methods use and the checkpoint lacks or has in another shape, and the
// mapped weights that no method uses.
std::vector<KeyProblem> compare(const std::vector<Methods>& components, const MappedKeys& mapped,
                                const std::vector<KeyRule>& rules, const ModelConfig& config,
                                const StoredNames& stored) {
  const std::vector<TieRule> ties = standard_ties(config);
  const ExpectedKeys expected(rules, mapped.matched);
  std::vector<KeyProblem> problems;
  std::set<std::string> wanted;
  for (const Methods& methods : components) {
    for_each_weight(methods, [&](const graph::Value& value) {
      const std::string name = missing_name(value.name, mapped, config);
      const bool is_new = wanted.insert(value.name).second;
      if (!is_new || (name != value.name && !wanted.insert(name).second)) return;
      if (auto problem = check_weight(value, mapped, expected, config, stored)) {
        problems.push_back(*std::move(problem));
      }
    });
  }
  for (const graph::Weight& weight : mapped.weights.weights()) {
    const bool tied = std::ranges::count(ties, weight.name, &TieRule::same_as) > 0;
    if (wanted.contains(weight.name) || tied) continue;
    const std::string key = stored.of(expected.of(weight.name));
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
  const std::vector<KeyRule> rules = key_rules(config);
  MappingOptions options = mapping;
  options.base_prefix = base_prefix(config);
  MappedKeys mapped =
      FERRY_TRY(map_keys(source, keyed, config, rules, standard_ties(config), options));
  const std::vector<Component> components = components_of(config);
  std::vector<Methods> methods;
  for (const Component& component : components) {
    methods.push_back(FERRY_TRY(component.build(config, build)));
  }
  const StoredNames stored(source, keyed, mapped.report.prefix());
  Assembled out;
  out.problems = std::move(mapped.problems);
  for (KeyProblem& problem : compare(methods, mapped, rules, config, stored)) {
    out.problems.push_back(std::move(problem));
  }
  out.report = std::move(mapped.report);
  for (size_t i = 0; i < components.size() && out.problems.empty(); ++i) {
    graph::StateDict weights = FERRY_TRY(weights_of(methods[i], mapped.weights));
    auto bound = FERRY_TRY(graph::bind(std::move(methods[i]), std::move(weights), source.path()));
    out.components.push_back({std::string(components[i].role), std::move(bound)});
  }
  for (const TieRule& tie : standard_ties(config)) {
    const graph::Weight* same = std::as_const(mapped.weights).find(tie.same_as);
    if (same != nullptr && out.tied.find(tie.same_as) == nullptr) {
      FERRY_RETURN_IF_ERROR(out.tied.add(*same));
    }
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
  for (const KeyProblem& problem : problems) {
    error.details.push_back(problem.message);
    if (problem.kind == KeyProblem::Kind::kAmbiguous) error.field = "packed_layout";
  }
  return error;
}

}  // namespace ferry::converters
