#include "kernels/fetch_ahead.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ferry::kernels {
namespace {

// The distances for one row of activations, and for more rows.
struct Distances {
  FetchAhead one, more;
};

Distances both(const FetchAhead& ahead) { return {ahead, ahead}; }

// All distances were measured with Qwen3-0.6B on two cores, as tokens per second of decoding.
#if defined(__x86_64__)

// A Xeon with AMX. For codes, 3072 was the best of 1024 to 8192. On an Emerald Rapids, 2048 in each
// band decodes bf16 1.15 and f32 1.07 times as fast as without fetches; 1024 and 4096 do as well.
Distances intel() {
  return both({.stream = {3072}, .blocks = {3072}, .nibbles = {3072}, .band = {2048}});
}

// An EPYC of family 26. For codes of 4 and of 8 bits, 8192 was the best of 512 to 16384, and
// decodes 1.2 times as fast as without fetches. For bf16, 2048 in each of four streams was the best
// of 512 to 8192, and decodes 1.08 times as fast.
Distances zen5() {
  return both({.stream = {8192}, .blocks = {8192}, .nibbles = {8192}, .band = {2048}});
}

// An EPYC of family 25 without AVX-512 (Zen 3), measured with SmolLM2-135M. For codes of 8 bits in
// rows, 2048 was the best of 1024 to 8192, and decodes 1.15 times as fast as without fetches; for
// blocks, 1.05 times. bf16 and 4-bit codes in groups are slower with fetches.
Distances zen3() { return both({.stream = {2048}, .blocks = {2048}}); }

unsigned family() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid(1, &eax, &ebx, &ecx, &edx);
  const unsigned base = eax >> 8 & 15;
  return base == 15 ? base + (eax >> 20 & 255) : base;
}

// An EPYC of family 25 with AVX-512 (Zen 4), measured with SmolLM2-135M. One row: 4 bits decode
// 1.07 times as fast as without fetches, with 2048 as with 4096. Four rows of 1,536 columns in Q4_0
// at once took 37 us without fetches, 19 with 2048, 17 with 4096 and 18 with 8192. Where four rows
// are longer than that, the second cache decodes Q4_0 1.13 times as fast with the shapes of
// Qwen3-0.6B, and 1.26 times with those of Qwen2.5-1.5B. bf16 gains 1.04 from the second cache.
// With files in Q4_K_M of the three sizes, blocks of 256 gain 1.02, 1.08 and 1.05 from 8192 into
// the second cache, and four rows of activations 1.2. Codes of 8 bits, and blocks of 32 that are
// read row by row, are slower with fetches. Eight rows: too few lines are on their way into the
// first cache at a time. Two rows of codes of 8 bits took 12.7 ms for 135 MB without fetches, 8.3
// with the best distance into the first cache, and 5.4 into the second, which is the rate of
// memory. f32 gains 1.2, bf16 1.07.
Distances zen4() {
  return {.one = {.blocks = {8192, true},
                  .nibbles = {4096},
                  .long_nibbles = {8192, true},
                  .band = {1024, true}},
          .more = {.stream = {8192, true},
                   .blocks = {8192, true},
                   .nibbles = {4096},
                   .long_nibbles = {8192, true},
                   .band = {2048, true}}};
}

Distances of_processor() {
  if (__builtin_cpu_is("intel")) return intel();
  if (__builtin_cpu_is("amd") && family() >= 26) return zen5();
  if (__builtin_cpu_is("amd") && family() == 25) {
    return __builtin_cpu_supports("avx512f") ? zen4() : zen3();
  }
  return {};
}

#else
Distances of_processor() { return {}; }
#endif

}  // namespace

const FetchAhead& fetch_ahead(size_t rows) {
  static const Distances ahead = of_processor();
  return rows > 1 ? ahead.more : ahead.one;
}

}  // namespace ferry::kernels
