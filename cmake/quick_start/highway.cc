// The functions of Highway's library that its headers call: which instructions this processor has,
// and aligned memory. For links without the library, of which Debian has no archive.
#include <hwy/aligned_allocator.h>
#include <hwy/targets.h>
#if HWY_ARCH_X86
#include <cpuid.h>
#endif

#include <cstdint>
#include <cstdlib>

namespace hwy {
namespace {

constexpr size_t kAlignment = 128;  // of two cache lines, and of any vector

#if HWY_ARCH_X86
// Two features that clang 14 has no name for in __builtin_cpu_supports.
bool has_f16c_and_lzcnt() {
  unsigned a = 0, b = 0, basic = 0, extended = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &basic, &d) == 0) return false;
  if (__get_cpuid(0x80000001U, &a, &b, &extended, &d) == 0) return false;
  return (basic & bit_F16C) != 0 && (extended & bit_LZCNT) != 0;
}

// The compiler's library asks the processor, and the system whether it saves the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_f16c_and_lzcnt();
}
bool has_avx3() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
// The targets that sources are compiled for (AVX3_DL is not: nobody defines HWY_WANT_AVX3_DL).
int64_t detected() {
  int64_t targets = 0;
  if (!__builtin_cpu_supports("ssse3")) return targets;
  targets |= HWY_SSSE3;
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("aes") ||
      !__builtin_cpu_supports("pclmul")) {
    return targets;
  }
  targets |= HWY_SSE4;
  if (!has_avx2()) return targets;
  targets |= HWY_AVX2;
  return has_avx3() ? targets | HWY_AVX3 : targets;
}
#else
int64_t detected() { return HWY_STATIC_TARGET; }  // what every processor of the kind has
#endif

}  // namespace

int64_t SupportedTargets() {
  static const int64_t targets = detected();
  return targets | HWY_EMU128 | HWY_SCALAR;  // which need nothing
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

// Callers may give allocators; only the system's is used here.
void* AllocateAlignedBytes(size_t payload_size, AllocPtr, void*) {
  if (payload_size > SIZE_MAX - kAlignment) return nullptr;
  const size_t size = (payload_size + kAlignment - 1) / kAlignment * kAlignment;
  return std::aligned_alloc(kAlignment, size);
}

void FreeAlignedBytes(const void* aligned_pointer, FreePtr, void*) {
  std::free(const_cast<void*>(aligned_pointer));
}

}  // namespace hwy
