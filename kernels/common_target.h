// CommonTarget makes the kernels of compute.h give the same bits on every x86 processor with AVX2.
#pragma once

namespace ferry::kernels {

// While an object exists, kernels of this process use AVX2 and nothing newer, if the processor has
// it. Otherwise nothing changes. One object may exist at a time. Calls of other threads are slower
// meanwhile, and round as AVX2 does.
class CommonTarget {
 public:
  CommonTarget();
  ~CommonTarget();
  CommonTarget(const CommonTarget&) = delete;
  CommonTarget& operator=(const CommonTarget&) = delete;

 private:
  bool is_common_ = false;
};

// Returns whether kernels may use instructions beyond AVX-512 or NEON that the processor has. On
// x86 it is false while a CommonTarget exists, and without AVX-512.
bool uses_all_instructions();

}  // namespace ferry::kernels
