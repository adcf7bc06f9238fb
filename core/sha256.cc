#include "core/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/sha256_blocks.h"

namespace ferry {
namespace {

constexpr size_t kBlock = kSha256BlockBytes;
constexpr Sha256State kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

// EVP calls fail only when memory is exhausted or OpenSSL is broken. In neither case can a digest
// be trusted.
void require(bool ok) {
  if (!ok) std::abort();
}

// The state of a computation that uses the processor's SHA instructions.
struct OwnHash {
  Sha256State state = kInitial;
  uint64_t bytes = 0;
  std::array<std::byte, kBlock> rest = {};  // the first bytes % kBlock bytes of an unfinished block

  // Completes the unfinished block. The returned rest of `data` begins a block.
  std::span<const std::byte> fill_block(std::span<const std::byte> data) {
    const size_t filled = bytes % kBlock;
    if (filled == 0 || data.empty()) return data;  // an empty span may have no address to copy from
    const auto part = data.first(std::min(data.size(), kBlock - filled));
    std::memcpy(rest.data() + filled, part.data(), part.size());
    bytes += part.size();
    if (bytes % kBlock == 0) add_sha256_blocks(state, rest.data(), 1);
    return data.subspan(part.size());
  }
  // `data` begins at the start of a block.
  void add(std::span<const std::byte> data) {
    const size_t blocks = data.size() / kBlock;
    add_sha256_blocks(state, data.data(), blocks);
    bytes += data.size();
    data = data.subspan(blocks * kBlock);
    if (!data.empty()) std::memcpy(rest.data(), data.data(), data.size());
  }
  Digest finish() {
    const uint64_t bits = bytes * 8;
    std::array<std::byte, 2 * kBlock> end = {};
    const size_t filled = bytes % kBlock, blocks = filled + 9 > kBlock ? 2 : 1;
    std::memcpy(end.data(), rest.data(), filled);
    end[filled] = std::byte{0x80};
    for (size_t i = 0; i < 8; ++i)
      end[blocks * kBlock - 1 - i] = static_cast<std::byte>(bits >> 8 * i);
    add_sha256_blocks(state, end.data(), blocks);
    Digest digest;
    for (size_t i = 0; i < digest.size(); ++i) {
      digest[i] = static_cast<std::byte>(state[i / 4] >> (24 - 8 * (i % 4)));
    }
    *this = OwnHash();
    return digest;
  }
};

}  // namespace

// Uses the processor's SHA instructions if it has them, else OpenSSL.
struct Sha256::Impl {
  OwnHash own;
  EVP_MD_CTX* context = nullptr;
  Impl() {
    if (!has_sha256_blocks()) start();
  }
  ~Impl() { EVP_MD_CTX_free(context); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  void start() {
    if (context == nullptr) context = EVP_MD_CTX_new();
    require(context && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1);
  }
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> data) {
  if (impl_->context == nullptr) return impl_->own.add(impl_->own.fill_block(data));
  require(EVP_DigestUpdate(impl_->context, data.data(), data.size()) == 1);
}

Digest Sha256::finish() {
  if (impl_->context == nullptr) return impl_->own.finish();
  Digest digest;
  auto* out = reinterpret_cast<unsigned char*>(digest.data());
  require(EVP_DigestFinal_ex(impl_->context, out, nullptr) == 1);
  impl_->start();
  return digest;
}

namespace {

// From this number of computations on, 16 vector lanes take less time than pairs of computations.
constexpr size_t kLeastLanes = 10;

}  // namespace

size_t sha256_width() { return has_sha256_lanes() ? kSha256Lanes : has_sha256_blocks() ? 2 : 1; }

void update_together(std::span<Sha256Update> updates) {
  const size_t width = has_sha256_lanes() && updates.size() >= kLeastLanes ? kSha256Lanes : 2;
  updates = updates.first(std::min(width, updates.size()));
  if (updates.empty()) return;
  if (updates.size() == 1 || !has_sha256_blocks()) {
    updates[0].hash->update(std::exchange(updates[0].data, {}));
    return;
  }
  size_t blocks = SIZE_MAX;
  for (Sha256Update& update : updates) {
    update.data = update.hash->impl_->own.fill_block(update.data);
    blocks = std::min(blocks, update.data.size() / kBlock);
  }
  std::array<Sha256Lane, kSha256Lanes> lanes;
  for (size_t i = 0; i < updates.size(); ++i) {
    lanes[i] = {&updates[i].hash->impl_->own.state, updates[i].data.data()};
  }
  if (blocks > 0 && updates.size() > 2) {
    add_sha256_blocks_of_many(std::span(lanes).first(updates.size()), blocks);
  } else if (blocks > 0) {
    add_sha256_blocks_of_two(*lanes[0].state, lanes[0].data, *lanes[1].state, lanes[1].data,
                             blocks);
  }
  for (Sha256Update& update : updates) {
    update.hash->impl_->own.bytes += blocks * kBlock;
    update.data = update.data.subspan(blocks * kBlock);
    if (update.data.size() < kBlock) update.hash->update(std::exchange(update.data, {}));
  }
}

Digest sha256(std::span<const std::byte> data) {
  Sha256 hash;
  hash.update(data);
  return hash.finish();
}

std::string to_hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * digest.size());
  for (std::byte b : digest) {
    const auto value = std::to_integer<unsigned>(b);
    out += kDigits[value >> 4];
    out += kDigits[value & 15];
  }
  return out;
}

}  // namespace ferry
