#include "converters/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

// How the checkpoint itself calls what families know as `key`.
class StoredNames {
 public:
  StoredNames(const TensorSource& source, const MappingOptions& mapping, std::string prefix)
      : stored_(mapping.stored_names), prefix_(std::move(prefix)) {
    for (const TensorEntry& entry : source.entries()) {
      if (!entry.original.empty()) stored_[entry.name] = entry.original;
    }
  }
  std::string of(const std::string& key) const {
    const auto found = stored_.find(key);
    return found == stored_.end() ? prefix_ + key : found->second;
  }

 private:
  std::unordered_map<std::string, std::string> stored_;
  std::string prefix_;  // of wrappers, before all keys
};

// Why a checkpoint without its own output head is not complete.
std::string head_hint(const std::string& weight, const ModelConfig& config) {
  if (weight != "output.weight" || config.tie_word_embeddings) return {};
  return "; the config does not tie the head to the embedding (tie_word_embeddings is false)";
}

// Weights that the graph wants and the dict lacks, or has in another shape; weights nobody wants.
std::vector<KeyProblem> compare(const graph::Graph& graph, const MappedKeys& mapped,
                                const std::vector<KeyRule>& rules, const ModelConfig& config,
                                const StoredNames& stored) {
  std::vector<KeyProblem> problems;
  std::set<std::string> wanted;
  for (const graph::Value& value : graph.values) {
    if (value.origin != graph::Value::Origin::kWeight) continue;
    wanted.insert(value.name);
    Shape shape;
    for (const graph::Dim& dim : value.shape) shape.push_back(dim.base);
    const std::string key = stored.of(expected_key(rules, value.name, mapped.matched));
    const graph::Weight* weight = mapped.weights.find(value.name);
    if (weight == nullptr && mapped.spoiled.contains(value.name)) continue;
    if (weight == nullptr) {
      problems.push_back(
          {.kind = KeyProblem::Kind::kMissing,
           .key = key,
           .message = fmt::format("missing: {} {} (for {}{})", quoted(key), to_string(shape),
                                  value.name, head_hint(value.name, config))});
    } else if (weight->expr.shape != shape) {
      problems.push_back(
          {.kind = KeyProblem::Kind::kShape,
           .key = key,
           .message = fmt::format("shape: {} gives {} {}, the config wants {}", quoted(key),
                                  value.name, to_string(weight->expr.shape), to_string(shape))});
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

Result<Assembled> assemble(const TensorSource& source, const ModelConfig& config,
                           const FamilySpec& family, const BuildOptions& build,
                           const MappingOptions& mapping) {
  const std::vector<KeyRule> rules = family.rules(config);
  MappingOptions options = mapping;
  options.base_prefix = family.base_prefix;
  MappedKeys mapped = FERRY_TRY(map_keys(source, config, rules, family.ties(config), options));
  graph::Graph graph = FERRY_TRY(family.build(config, build));
  const StoredNames stored(source, mapping, mapped.report.prefix());
  Assembled out;
  out.problems = std::move(mapped.problems);
  for (KeyProblem& problem : compare(graph, mapped, rules, config, stored)) {
    out.problems.push_back(std::move(problem));
  }
  out.report = std::move(mapped.report);
  if (out.problems.empty()) {
    out.model = FERRY_TRY(graph::bind({{std::string(kForwardMethod), std::move(graph)}},
                                      std::move(mapped.weights), source.path()));
  } else {
    out.model.methods.push_back({std::string(kForwardMethod), std::move(graph)});
    out.model.weights = std::move(mapped.weights);
  }
  return out;
}

Error problems_error(const std::vector<KeyProblem>& problems, const TensorSource& source) {
  // Dtypes that are not cast are a limit of ours; all else is wrong with the checkpoint.
  const bool only_dtypes = std::ranges::all_of(
      problems, [](const KeyProblem& p) { return p.kind == KeyProblem::Kind::kDType; });
  Error error{.code = only_dtypes ? ErrorCode::kUnsupported : ErrorCode::kBadInput,
              .message = fmt::format("{}: {} problem{} with the checkpoint's keys", source.path(),
                                     problems.size(), problems.size() == 1 ? "" : "s")};
  for (const KeyProblem& problem : problems) error.details.push_back(problem.message);
  return error;
}

}  // namespace ferry::converters
