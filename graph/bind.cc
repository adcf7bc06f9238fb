// Checks agreement by name: between the methods of a model, and between methods and the weights of
// a checkpoint.
#include <fmt/format.h>

#include <map>
#include <set>
#include <string>

#include "core/text.h"
#include "graph/graph.h"

namespace ferry::graph {
namespace {

std::string type_of(const Graph& graph, const Value& value) {
  Shape shape;
  for (const Dim& dim : value.shape) shape.push_back(graph.max_of(dim));
  return fmt::format("{} {}", dtype_name(value.dtype), to_string(shape));
}

// Describes the properties of a value that all methods must share. Equal texts mean that the
// methods agree.
std::string describe(const Graph& graph, const Value& value) {
  if (value.origin == Value::Origin::kWeight) return "a weight " + type_of(graph, value);
  const std::string type = "a buffer " + type_of(graph, value);
  if (!value.stored) return type + " without stored contents";
  const std::string contents =
      value.literal < 0 ? "zeros" : quoted(graph.literals[static_cast<size_t>(value.literal)].key);
  return fmt::format("{} with stored contents {}", type, contents);
}

class Agreement {
 public:
  Status add(const MethodGraph& method) {
    if (!methods_.insert(method.name).second) {
      return fail(ErrorCode::kInternal,
                  fmt::format("two methods are named {}", quoted(method.name)));
    }
    for (const Value& value : method.graph.values) {
      if (value.origin != Value::Origin::kWeight && value.origin != Value::Origin::kBuffer)
        continue;
      FERRY_RETURN_IF_ERROR(agree(values_, value.name, describe(method.graph, value), method.name));
    }
    for (const Literal& literal : method.graph.literals) {
      FERRY_RETURN_IF_ERROR(agree(literals_, literal.key,
                                  fmt::format("a literal of {} bytes", literal.bytes),
                                  method.name));
    }
    return {};
  }

 private:
  struct Meaning {
    std::string what, method;
  };
  using Meanings = std::map<std::string, Meaning>;

  static Status agree(Meanings& known, const std::string& name, const std::string& what,
                      const std::string& method) {
    const Meaning& first = known.try_emplace(name, Meaning{what, method}).first->second;
    if (first.what == what) return {};
    return fail(ErrorCode::kInternal,
                fmt::format("{} is {} in method {} and {} in method {}", quoted(name), first.what,
                            quoted(first.method), what, quoted(method)));
  }

  std::set<std::string> methods_;
  Meanings values_, literals_;
};

Shape static_shape(const Value& value) {
  Shape shape;
  for (const Dim& dim : value.shape) shape.push_back(dim.base);
  return shape;
}

// Says how the weight does not fit `value`. The text is empty if the weight fits.
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

Status check_shared_values(std::span<const MethodGraph> methods) {
  Agreement agreement;
  for (const MethodGraph& method : methods) FERRY_RETURN_IF_ERROR(agreement.add(method));
  return {};
}

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
