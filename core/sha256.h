// Computes SHA-256 with the SHA instructions and vectors of an x86 processor if it has them, else
// with OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace ferry {

using Digest = std::array<std::byte, 32>;

struct Sha256Update;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const std::byte> data);
  // Ends the computation; the object then starts a new one.
  Digest finish();

 private:
  friend void update_together(std::span<Sha256Update> updates);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The next bytes for one of several concurrent computations.
struct Sha256Update {
  Sha256* hash = nullptr;
  std::span<const std::byte> data;
};

// Returns how many computations this processor does efficiently at once: 1, 2 or 16. They take much
// less time together than one after the other.
size_t sha256_width();
// Adds bytes to distinct hashes until at least one of them has all of its data; `data` is then the
// rest of each. Only the first hashes get bytes: at most sha256_width() of them, and two if there
// are few.
void update_together(std::span<Sha256Update> updates);

Digest sha256(std::span<const std::byte> data);
std::string to_hex(const Digest& digest);

}  // namespace ferry
