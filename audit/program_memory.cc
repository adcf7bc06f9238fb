#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "audit/audit.h"
#include "audit/program_leaves.h"
#include "formats/pte/state_finder.h"

namespace ferry::audit {
namespace {

AuditedBuffer buffer_of(const pte::Tensor& tensor, uint32_t file) {
  return {.file = file,
          .name = tensor.fqn,
          .dtype = tensor.dtype,
          .shape = {tensor.sizes.begin(), tensor.sizes.end()},
          .bytes = pte::tensor_bytes(tensor).value_or(0),
          .stored = tensor.data_index > 0};
}

// Of all methods of a file, the largest, because they share their memory; then the sum of files.
uint64_t sum_of_largest(const std::vector<AuditedMethod>& methods,
                        uint64_t AuditedMethod::*member) {
  std::map<uint32_t, uint64_t> largest;
  for (const AuditedMethod& method : methods) {
    largest[method.file] = std::max(largest[method.file], method.*member);
  }
  uint64_t sum = 0;
  for (const auto& [file, bytes] : largest) sum += bytes;
  return sum;
}

}  // namespace

uint64_t Memory::activation_bytes() const {
  return sum_of_largest(methods, &AuditedMethod::activation_bytes);
}
uint64_t Memory::state_bytes() const {
  return sum_of_largest(methods, &AuditedMethod::state_bytes);
}

void add_memory(const pte::Program& program, uint32_t file_index, Memory& memory) {
  std::set<std::pair<uint32_t, uint64_t>> places;  // of buffers, which methods may share
  for (const pte::Method& method : program.methods) {
    if (method.instructions.empty()) continue;
    const pte::StateFinder state(method);
    std::set<std::pair<uint32_t, uint64_t>> own;
    uint64_t state_bytes = 0;
    for (size_t i = 0; i < method.values.size(); ++i) {
      const auto* tensor = std::get_if<pte::Tensor>(&method.values[i]);
      if (tensor == nullptr || !tensor->allocation || tensor->external) continue;
      if (tensor->data_index == 0 && !state.values().contains(static_cast<int32_t>(i))) continue;
      const std::pair place(tensor->allocation->memory, tensor->allocation->offset);
      if (!own.insert(place).second) continue;
      state_bytes += pte::tensor_bytes(*tensor).value_or(0);
      if (places.insert(place).second) memory.buffers.push_back(buffer_of(*tensor, file_index));
    }
    const uint64_t planned =
        std::accumulate(method.memory_bytes.begin(), method.memory_bytes.end(), uint64_t{0});
    memory.methods.push_back({.file = file_index,
                              .name = method.name,
                              .activation_bytes = planned - std::min(planned, state_bytes),
                              .state_bytes = state_bytes});
  }
}

}  // namespace ferry::audit
