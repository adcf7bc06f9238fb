#include "core/sha256.h"

#include <openssl/evp.h>

#include <cstdlib>
#include <utility>

namespace ferry {
namespace {

// EVP calls fail only when memory is exhausted or OpenSSL is broken; neither leaves a digest to
// trust.
void require(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  Impl() { start(); }
  ~Impl() { EVP_MD_CTX_free(context); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  void start() { require(context && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1); }
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> data) {
  require(EVP_DigestUpdate(impl_->context, data.data(), data.size()) == 1);
}

Digest Sha256::finish() {
  Digest digest;
  auto* out = reinterpret_cast<unsigned char*>(digest.data());
  require(EVP_DigestFinal_ex(impl_->context, out, nullptr) == 1);
  impl_->start();
  return digest;
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
