// init_buffers decides which mutable buffers have their initial contents in the program.
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

// Returns the index of the literal of `bytes` zeros.
int32_t zeros(Graph& graph, uint64_t bytes) {
  Literal literal = zero_literal(bytes);
  const auto known = std::ranges::find(graph.literals, literal.key, &Literal::key);
  const auto index = static_cast<int32_t>(known - graph.literals.begin());
  if (known == graph.literals.end()) graph.literals.push_back(std::move(literal));
  return index;
}

bool has_buffer(const MethodGraph& method, const std::string& name) {
  return std::ranges::any_of(method.graph.values, [&](const Value& value) {
    return value.origin == Value::Origin::kBuffer && is_named(value, {name});
  });
}

Status check_names(const Model& model, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto has_it = [&](const MethodGraph& method) { return has_buffer(method, name); };
    if (std::ranges::none_of(model.methods, has_it)) {
      return fail(ErrorCode::kUsage, fmt::format("the model has no buffer {}", quoted(name)));
    }
  }
  return {};
}

void settle(Graph& graph, const BufferInitOptions& options) {
  for (size_t i = 0; i < graph.values.size(); ++i) {
    Value& value = graph.values[i];
    if (value.origin != Value::Origin::kBuffer) continue;
    value.stored = wants_contents(value, options);
    if (!value.stored || value.literal >= 0) continue;
    value.literal = zeros(graph, graph.max_bytes({static_cast<int32_t>(i)}));
  }
}

}  // namespace

Result<Model> init_buffers(Model model, const BufferInitOptions& options) {
  FERRY_RETURN_IF_ERROR(check_names(model, options.names));
  for (MethodGraph& method : model.methods) {
    settle(method.graph, options);
    FERRY_RETURN_IF_ERROR(validate(method.graph));
  }
  return model;
}

}  // namespace ferry::graph
