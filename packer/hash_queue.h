// HashQueue: SHA-256 of the streams that one thread hashes, two of them at a time. Private to
// packer/.
#pragma once

#include <cstddef>
#include <span>

#include "core/sha256.h"

namespace ferry::packer {

// Bytes wait until there are some of another stream. For use by one thread.
class HashQueue {
 public:
  // The next bytes of a stream. They and `hash` must stay as they are until settle(hash).
  void add(Sha256& hash, std::span<const std::byte> data) {
    settle(hash);
    if (waiting_ == nullptr) return wait(hash, data);
    const auto [of_waiting, of_new] = update_both(*waiting_, data_, hash, data);
    data_ = data_.subspan(of_waiting);
    data = data.subspan(of_new);
    if (data.size() <= data_.size()) return hash.update(data);
    waiting_->update(data_);
    wait(hash, data);
  }
  // All bytes of the stream are in `hash`.
  void settle(Sha256& hash) {
    if (waiting_ != &hash) return;
    hash.update(data_);
    waiting_ = nullptr;
  }

 private:
  void wait(Sha256& hash, std::span<const std::byte> data) {
    waiting_ = &hash;
    data_ = data;
  }

  Sha256* waiting_ = nullptr;
  std::span<const std::byte> data_;
};

}  // namespace ferry::packer
