#include "runner/delegate/delegate_memory.h"

namespace ferry::runner {

Result<const kernels::PackedMatrix*> DelegateMemory::packed(const kernels::CodedMatrix& matrix,
                                                            MemoryBudget& budget) {
  const Key key = {matrix.codes, matrix.scales, matrix.rows,       matrix.columns,
                   matrix.group, matrix.bits,   matrix.scale_dtype};
  auto found = packed_.find(key);
  if (found == packed_.end()) {
    kernels::PackedMatrix made = kernels::PackedMatrix::pack(matrix);
    FERRY_RETURN_IF_ERROR(budget.take(made.bytes()));
    found = packed_.emplace(key, std::move(made)).first;
  }
  return &found->second;
}

Status DelegateMemory::reserve(uint64_t bytes, MemoryBudget& budget) {
  if (bytes <= scratch_.size()) return {};
  scratch_ = FERRY_TRY(Arena::allocate(bytes, budget));
  if (poison_) scratch_.refill(true);
  return {};
}

}  // namespace ferry::runner
