#include "graph/lower.h"

#include <utility>

#include "graph/method_lowering.h"
#include "graph/shared_values.h"

namespace ferry::graph {

namespace {

pte::Method constant(const MetadataMethod& entry) {
  pte::Method method;
  method.name = entry.name;
  method.memory_bytes = {0};
  for (const MetadataMethod::Value& value : entry.values) {
    method.outputs.push_back(static_cast<int32_t>(method.values.size()));
    std::visit([&](const auto& v) { method.values.emplace_back(v); }, value);
  }
  return method;
}

}  // namespace

Result<LoweredProgram> lower(std::span<const MethodGraph> methods,
                             const std::vector<MetadataMethod>& metadata, OutputMemory outputs) {
  for (const MethodGraph& method : methods) FERRY_RETURN_IF_ERROR(validate(method.graph));
  FERRY_RETURN_IF_ERROR(check_shared_values(methods));
  LoweredProgram out;
  ProgramPools pools;
  pools.state = plan_state(methods);
  pools.outputs = outputs;
  for (const MethodGraph& method : methods) {
    MethodAndDescription lowered = FERRY_TRY(lower_method(method, pools));
    out.program.methods.push_back(std::move(lowered.method));
    out.methods.push_back(std::move(lowered.description));
  }
  for (const MetadataMethod& entry : metadata) out.program.methods.push_back(constant(entry));
  out.sizes = {std::move(pools.constants.sizes), std::move(pools.initial.sizes)};
  out.constants = std::move(pools.constants.literals);
  out.initial = std::move(pools.initial.literals);
  out.weights = std::move(pools.weights.names);
  out.named = std::move(pools.named.names);
  out.delegates = std::move(pools.delegates);
  for (const auto& blob : out.delegates) out.sizes.delegates.push_back(blob.size());
  out.state_bytes = pools.state.bytes;
  return out;
}

}  // namespace ferry::graph
