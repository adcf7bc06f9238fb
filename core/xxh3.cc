#include "core/xxh3.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/xxh3_targets.h"

namespace ferry {
namespace {

const Xxh3Functions& functions() {
#if defined(__x86_64__)
  static const Xxh3Functions& chosen =
      __builtin_cpu_supports("avx2") ? xxh3_avx2() : xxh3_baseline();
  return chosen;
#else
  return xxh3_baseline();
#endif
}

struct alignas(kXxh3StateAlignment) State {
  std::byte bytes[kXxh3StateBytes];

  State() { functions().reset(this); }
  void update(std::span<const std::byte> data) {
    functions().update(this, data.data(), data.size());
  }
  FastDigest finish() {
    FastDigest digest;
    functions().finish(this, digest.data());
    functions().reset(this);
    return digest;
  }
};

}  // namespace

struct FastHash::Impl {
  State block, blocks;
  uint64_t filled = 0;  // bytes in the current block
};

FastHash::FastHash() : impl_(std::make_unique<Impl>()) {}
FastHash::~FastHash() = default;
FastHash::FastHash(FastHash&&) noexcept = default;
FastHash& FastHash::operator=(FastHash&&) noexcept = default;

void FastHash::update(std::span<const std::byte> data) {
  while (!data.empty()) {
    const auto part = data.first(std::min<uint64_t>(data.size(), kFastDigestBlock - impl_->filled));
    impl_->block.update(part);
    impl_->filled += part.size();
    if (impl_->filled == kFastDigestBlock) {
      impl_->blocks.update(impl_->block.finish());
      impl_->filled = 0;
    }
    data = data.subspan(part.size());
  }
}

void FastHash::add_block(const FastDigest& digest) { impl_->blocks.update(digest); }

FastDigest FastHash::finish() {
  if (impl_->filled > 0) impl_->blocks.update(impl_->block.finish());
  impl_->filled = 0;
  return impl_->blocks.finish();
}

FastDigest xxh3(std::span<const std::byte> data) {
  FastDigest digest;
  functions().digest(data.data(), data.size(), digest.data());
  return digest;
}

std::string to_hex(const FastDigest& digest) {
  std::string out;
  for (const std::byte b : digest) out += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return out;
}

}  // namespace ferry
