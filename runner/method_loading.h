// The stages of load_method: values, their memory, instructions. This is not a public header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "runner/method_state.h"

namespace ferry::runner {

constexpr size_t kMaxListed = 100;  // limit of the causes that one error lists

using IndexList = std::vector<int32_t>;

// The data that the stages of loading pass on, beside the state that they fill.
struct Loading {
  const pte::LoadedProgram& program;
  const pte::Method& method;
  const std::vector<ExternalTensor>& external;
  MemoryBudget& budget;
  MethodState& state;
  std::vector<IndexList> reads = {};      // per instruction: values that it reads
  std::vector<IndexList> unplanned = {};  // per instruction: outs that may lack planned memory
  // The data that delegates find by name. It is filled for the first delegate.
  std::unordered_map<std::string_view, std::span<const std::byte>> named = {};

  const pte::Tensor* pte_tensor(int32_t value) const {
    return std::get_if<pte::Tensor>(&method.values[static_cast<size_t>(value)]);
  }
  kernels::Tensor* tensor(int32_t value) const {
    return state.values[static_cast<size_t>(value)].tensor;
  }
};

// Makes the values. Tensors have sizes, but no memory yet.
Status make_values(Loading& loading);
// Gives the tensors planned memory and constants. kBadInput lists every absent external tensor.
Status bind_tensors(Loading& loading);
// Returns a copy of the f32 constant of a norm or a bias, with each finite value but 0 moved by one
// unit in the last place (MethodOptions::disturb, which must be set). `place` chooses the
// directions.
std::span<const std::byte> disturbed(MethodState& state, std::span<const std::byte> bytes,
                                     uint64_t place);
// Compiles one call of a delegate. It is defined in delegate/delegate.cc. Errors begin with the
// file.
Status make_delegate_step(Loading& loading, const pte::DelegateCall& call, size_t index,
                          Step& step);
// Looks up the operators and values of the instructions. Fills Loading::reads and ::unplanned.
Status make_steps(Loading& loading);

}  // namespace ferry::runner
