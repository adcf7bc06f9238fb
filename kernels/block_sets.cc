#include <vector>

#include "kernels/block_product.h"

namespace ferry::kernels {
namespace {

std::vector<const BlockSet*> find_block_sets() {
  std::vector<const BlockSet*> sets;
  [[maybe_unused]] const Processor& has = processor();
#if defined(__x86_64__)
  if (has.avx512_vnni) sets.push_back(&block_vnni());
  if (has.avx_vnni) sets.push_back(&block_avx_vnni());
#endif
#if FERRY_NEON_I8MM
  if (has.neon_i8mm) sets.push_back(&block_neon_i8mm());
#endif
#if FERRY_NEON_DOT
  if (has.neon_dot) sets.push_back(&block_neon_dot());
#endif
  return sets;
}

}  // namespace

std::span<const BlockSet* const> block_sets() {
  static const std::vector<const BlockSet*> sets = find_block_sets();
  return sets;
}

}  // namespace ferry::kernels
