#include "kernels/processor.h"

#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
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

// The first letters of the name that leaf 0 states for Intel.
constexpr unsigned kGenuineIntel = 'G' | 'e' << 8 | 'n' << 16 | 'u' << 24;

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

// Linux saves the registers of tiles only for processes that ask for it.
bool ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Processor find() {
  Processor p;
  const Registers basic = cpuid(1, 0), extended = cpuid(7, 0);
  const Registers more = extended.eax >= 1 ? cpuid(7, 1) : Registers();
  const unsigned saved = saved_registers();
  p.avx2 = has(saved, {1, 2}) && has(basic.ecx, {12, 28}) && has(extended.ebx, {5});
  p.avx512 = p.avx2 && has(saved, {5, 6, 7}) && has(extended.ebx, {16, 17, 30, 31});
  p.avx512_vnni = p.avx512 && has(extended.ecx, {11});
  p.avx_vnni = p.avx2 && has(more.eax, {4});
  p.avx512_bf16 = p.avx512 && has(more.eax, {5});
  p.fast_avx512_bf16 = p.avx512_bf16 && cpuid(0, 0).ebx != kGenuineIntel;
  p.amx_bf16 =
      p.avx512_bf16 && has(saved, {17, 18}) && has(extended.edx, {22, 24}) && ask_for_tiles();
  return p;
}

#else

Processor find() {
  Processor p;
#if defined(__aarch64__)
  const unsigned long more = getauxval(AT_HWCAP2);
  p.neon_dot = FERRY_NEON_DOT && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  p.neon_i8mm = FERRY_NEON_I8MM && p.neon_dot && (more & HWCAP2_I8MM) != 0;
  p.neon_bf16 = FERRY_NEON_BF16 && (more & HWCAP2_BF16) != 0;
#endif
  return p;
}

#endif

}  // namespace

const Processor& processor() {
  static const Processor found = find();
  return found;
}

}  // namespace ferry::kernels
