// init_buffers: which mutable buffers have their initial contents in the program.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "graph/passes/passes.h"

namespace ferry::graph {
namespace {

std::string_view last_component(std::string_view name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

bool is_named(const Value& buffer, const std::vector<std::string>& names) {
  return std::ranges::find(names, last_component(buffer.name)) != names.end();
}

bool wants_contents(const Value& buffer, const BufferInitOptions& options) {
  if (buffer.must_store || is_named(buffer, options.names)) return true;
  if (options.mode == BufferInit::kState) return buffer.literal >= 0;
  return options.mode == BufferInit::kAll;
}

// Index of the literal of `bytes` zeros.
int32_t zeros(Graph& graph, uint64_t bytes) {
  Literal literal = zero_literal(bytes);
  const auto known = std::ranges::find(graph.literals, literal.key, &Literal::key);
  const auto index = static_cast<int32_t>(known - graph.literals.begin());
  if (known == graph.literals.end()) graph.literals.push_back(std::move(literal));
  return index;
}

Status check_names(const Graph& graph, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const bool known = std::ranges::any_of(graph.values, [&](const Value& value) {
      return value.origin == Value::Origin::kBuffer && is_named(value, {name});
    });
    if (!known) {
      return fail(ErrorCode::kUsage, fmt::format("the model has no buffer {}", quoted(name)));
    }
  }
  return {};
}

}  // namespace

Result<Model> init_buffers(Model model, const BufferInitOptions& options) {
  Graph& graph = model.graph;
  FERRY_RETURN_IF_ERROR(check_names(graph, options.names));
  for (size_t i = 0; i < graph.values.size(); ++i) {
    Value& value = graph.values[i];
    if (value.origin != Value::Origin::kBuffer) continue;
    value.stored = wants_contents(value, options);
    if (!value.stored || value.literal >= 0) continue;
    value.literal = zeros(graph, graph.max_bytes({static_cast<int32_t>(i)}));
  }
  FERRY_RETURN_IF_ERROR(validate(graph));
  return model;
}

}  // namespace ferry::graph
