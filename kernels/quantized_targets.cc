#include <vector>

#include "kernels/processor.h"
#include "kernels/quantized_kernels.h"

namespace ferry::kernels {
namespace {

std::vector<const InstructionSet*> find_instruction_sets() {
  std::vector<const InstructionSet*> sets;
  [[maybe_unused]] const Processor& has = processor();
#if defined(__x86_64__)
  if (has.avx512_vnni) sets.push_back(&quantized_avx512_vnni());
  if (has.avx_vnni) sets.push_back(&quantized_avx_vnni());
  if (has.avx512) sets.push_back(&quantized_avx512());
  if (has.avx2) sets.push_back(&quantized_avx2());
#endif
#if FERRY_NEON_I8MM
  if (has.neon_i8mm) sets.push_back(&quantized_neon_i8mm());
#endif
#if FERRY_NEON_DOT
  if (has.neon_dot) sets.push_back(&quantized_neon_dot());
#endif
  sets.push_back(&quantized_portable());
  return sets;
}

}  // namespace

std::span<const InstructionSet* const> instruction_sets() {
  static const std::vector<const InstructionSet*> sets = find_instruction_sets();
  return sets;
}

}  // namespace ferry::kernels
