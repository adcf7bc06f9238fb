#include "kernels/quantized_kernels.h"

#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace ferry::kernels {
namespace {

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool has(unsigned word, std::initializer_list<unsigned> bits) {
  for (const unsigned bit : bits) {
    if ((word >> bit & 1) == 0) return false;
  }
  return true;
}

// Returns the registers that the system saves, as XCR0 states them.
unsigned saved_registers() {
  if (!has(cpuid(1, 0).ecx, {27})) return 0;  // OSXSAVE
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

std::vector<const InstructionSet*> find_instruction_sets() {
  std::vector<const InstructionSet*> sets;
  const Registers basic = cpuid(1, 0), extended = cpuid(7, 0), more = cpuid(7, 1);
  const unsigned saved = saved_registers();
  const bool avx2 = has(saved, {1, 2}) && has(basic.ecx, {12, 28}) && has(extended.ebx, {5});
  // AVX-512 F, DQ, BW, VL.
  const bool avx512 = avx2 && has(saved, {5, 6, 7}) && has(extended.ebx, {16, 17, 30, 31});
  if (avx512 && has(extended.ecx, {11})) sets.push_back(&quantized_avx512_vnni());
  if (avx2 && extended.eax >= 1 && has(more.eax, {4})) sets.push_back(&quantized_avx_vnni());
  if (avx512) sets.push_back(&quantized_avx512());
  if (avx2) sets.push_back(&quantized_avx2());
  sets.push_back(&quantized_portable());
  return sets;
}

#else

std::vector<const InstructionSet*> find_instruction_sets() {
  std::vector<const InstructionSet*> sets;
#if defined(__aarch64__) && (!defined(__clang__) || defined(__ARM_FEATURE_DOTPROD))
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) sets.push_back(&quantized_neon_dot());
#endif
  sets.push_back(&quantized_portable());
  return sets;
}

#endif

}  // namespace

std::span<const InstructionSet* const> instruction_sets() {
  static const std::vector<const InstructionSet*> sets = find_instruction_sets();
  return sets;
}

}  // namespace ferry::kernels
