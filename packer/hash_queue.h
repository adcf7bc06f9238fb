// HashQueue computes SHA-256 of several streams that one thread hashes at a time. Private to
// packer/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/sha256.h"

namespace ferry::packer {

// Bytes wait in the queue until one of the streams must be finished. As many streams as help are
// then hashed together. For use by one thread.
class HashQueue {
 public:
  // Adds the next bytes of a stream. `data` and `hash` must not change until settle(hash).
  void add(Sha256& hash, std::span<const std::byte> data) {
    settle(hash);
    if (!data.empty()) waiting_.push_back({&hash, data});
  }
  // Hashes all bytes of the stream that are in the queue.
  void settle(Sha256& hash) {
    const auto is_wanted = [&](const Sha256Update& update) { return update.hash == &hash; };
    for (;;) {
      const auto wanted = std::ranges::find_if(waiting_, is_wanted);
      if (wanted == waiting_.end()) return;
      // The other streams that are hashed have waited longest.
      std::rotate(waiting_.begin(), wanted, wanted + 1);
      update_together(waiting_);
      std::erase_if(waiting_, [](const Sha256Update& update) { return update.data.empty(); });
    }
  }

 private:
  std::vector<Sha256Update> waiting_;
};

}  // namespace ferry::packer
