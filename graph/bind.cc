// bind: the weights that methods use, paired with the weights that a checkpoint has.
#include <fmt/format.h>

#include <set>

#include "core/text.h"
#include "graph/graph.h"
#include "graph/shared_values.h"

namespace ferry::graph {
namespace {

Shape static_shape(const Value& value) {
  Shape shape;
  for (const Dim& dim : value.shape) shape.push_back(dim.base);
  return shape;
}

// What is wrong with the weight that `value` wants, or nothing.
std::string mismatch(const Value& value, const Weight* weight) {
  const Shape wanted = static_shape(value);
  if (weight == nullptr) {
    return fmt::format("missing weight {} {}", quoted(value.name), to_string(wanted));
  }
  if (weight->recipe.output().shape != wanted) {
    return fmt::format("weight {} has shape {}, the model wants {}", quoted(value.name),
                       to_string(weight->recipe.output().shape), to_string(wanted));
  }
  if (!is_castable(weight->recipe.source_dtype)) {
    return fmt::format("weight {} is {}, the model wants f32, f16 or bf16", quoted(value.name),
                       dtype_name(weight->recipe.source_dtype));
  }
  return "";
}

}  // namespace

Result<Model> bind(std::vector<MethodGraph> methods, StateDict dict,
                   const std::string& source_name) {
  FERRY_RETURN_IF_ERROR(check_shared_values(methods));
  std::vector<std::string> problems;
  std::set<std::string> wanted;
  for (const MethodGraph& method : methods) {
    for (const Value& value : method.graph.values) {
      if (value.origin != Value::Origin::kWeight || !wanted.insert(value.name).second) continue;
      Weight* weight = dict.find(value.name);
      if (std::string problem = mismatch(value, weight); !problem.empty()) {
        problems.push_back(std::move(problem));
      } else {
        weight->recipe.cast(value.dtype);
      }
    }
  }
  for (const Weight& weight : dict.weights()) {
    if (wanted.contains(weight.name)) continue;
    problems.push_back(fmt::format("unexpected weight {}", quoted(weight.name)));
  }
  if (problems.empty()) return Model{std::move(methods), std::move(dict)};
  const std::string summary = problems.size() == 1
                                  ? problems[0]
                                  : fmt::format("{} weights do not fit the model", problems.size());
  return Failure(Error{ErrorCode::kBadInput, source_name + ": " + summary, std::move(problems)});
}

}  // namespace ferry::graph
