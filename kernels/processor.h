// The instructions of this processor that kernels choose between at run time, beside those that
// Highway chooses.
#pragma once

// Whether the compiler has the dot products of NEON, and its products of matrices of bytes and of
// bf16. Clang before 16 has them only if all target processors have them.
#if defined(__aarch64__) && (!defined(__clang__) || defined(__ARM_FEATURE_DOTPROD))
#define FERRY_NEON_DOT 1
#else
#define FERRY_NEON_DOT 0
#endif
#if FERRY_NEON_DOT && (!defined(__clang__) || defined(__ARM_FEATURE_MATMUL_INT8))
#define FERRY_NEON_I8MM 1
#else
#define FERRY_NEON_I8MM 0
#endif
#if defined(__aarch64__) && (!defined(__clang__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC))
#define FERRY_NEON_BF16 1
#else
#define FERRY_NEON_BF16 0
#endif

namespace ferry::kernels {

// On x86, a set counts if the system also saves its registers.
struct Processor {
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // products of bytes, of 64 at a time
  bool avx_vnni = false;     // products of bytes, of 32 at a time
  bool avx512_bf16 = false;  // products of bf16
  // Whether these are faster than f32. Intel's cores start one of them in two cycles. In that time
  // they start four products of f32 vectors, which have half as many values.
  bool fast_avx512_bf16 = false;
  bool amx_bf16 = false;   // tiles of bf16; the system has granted their registers
  bool neon_dot = false;   // products of bytes on Arm
  bool neon_i8mm = false;  // products of pairs of rows of bytes on Arm, with those of neon_dot
  bool neon_bf16 = false;  // products of bf16 on Arm
};

const Processor& processor();

}  // namespace ferry::kernels
