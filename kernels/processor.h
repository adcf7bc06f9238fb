// The instructions of this processor that kernels choose between at run time, beside those that
// Highway chooses.
#pragma once

namespace ferry::kernels {

// On x86, a set counts if the system also saves its registers.
struct Processor {
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // products of bytes, of 64 at a time
  bool avx_vnni = false;     // products of bytes, of 32 at a time
  bool avx512_bf16 = false;  // products of bf16
  bool amx_bf16 = false;     // tiles of bf16; the system has granted their registers
  bool neon_dot = false;     // products of bytes on Arm
};

const Processor& processor();

}  // namespace ferry::kernels
