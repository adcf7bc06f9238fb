// SHA-256 by the instructions and vectors of the processor where it has them on x86, else through
// OpenSSL.
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

// The next bytes of one of several computations.
struct Sha256Update {
  Sha256* hash = nullptr;
  std::span<const std::byte> data;
};

// How many computations at once this processor is good for: 1, 2, or 16. That many take much less
// time than one after the other.
size_t sha256_width();
// Adds bytes to distinct hashes until at least one of them has all of its data; `data` is then what
// is left. Only the first ones get bytes: at most sha256_width(), and two where there are few.
void update_together(std::span<Sha256Update> updates);

Digest sha256(std::span<const std::byte> data);
std::string to_hex(const Digest& digest);

}  // namespace ferry
