// The functions of XXH3 for one instruction set. Each xxh3_TARGET.cc includes this file once.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/xxh3_targets.h"

namespace ferry {
namespace {

static_assert(sizeof(XXH3_state_t) == kXxh3StateBytes);
static_assert(alignof(XXH3_state_t) <= kXxh3StateAlignment);

void store(const XXH128_hash_t& hash, void* out) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  __builtin_memcpy(out, canonical.digest, sizeof canonical.digest);
}

void digest(const void* data, size_t size, void* out) { store(XXH3_128bits(data, size), out); }
void reset(void* state) { (void)XXH3_128bits_reset(static_cast<XXH3_state_t*>(state)); }
void update(void* state, const void* data, size_t size) {
  (void)XXH3_128bits_update(static_cast<XXH3_state_t*>(state), data, size);
}
void finish(const void* state, void* out) {
  store(XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state)), out);
}

constexpr Xxh3Functions kFunctions{digest, reset, update, finish};

}  // namespace
}  // namespace ferry
