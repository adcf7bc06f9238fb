#include "graph/shared_values.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>

#include "core/text.h"

namespace ferry::graph {
namespace {

std::string type_of(const Graph& graph, const Value& value) {
  Shape shape;
  for (const Dim& dim : value.shape) shape.push_back(graph.max_of(dim));
  return fmt::format("{} {}", dtype_name(value.dtype), to_string(shape));
}

// What all methods must agree on, in words: equal words mean that they do.
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

}  // namespace

Status check_shared_values(std::span<const MethodGraph> methods) {
  Agreement agreement;
  for (const MethodGraph& method : methods) FERRY_RETURN_IF_ERROR(agreement.add(method));
  return {};
}

}  // namespace ferry::graph
