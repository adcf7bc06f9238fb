// HashQueue: SHA-256 of the streams that one thread hashes, several of them at a time. Private to
// packer/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/sha256.h"

namespace ferry::packer {

// Bytes wait until one of the streams must go on; as many as are worth it are then hashed together.
// For use by one thread.
class HashQueue {
 public:
  // The next bytes of a stream. They and `hash` must stay as they are until settle(hash).
  void add(Sha256& hash, std::span<const std::byte> data) {
    settle(hash);
    if (!data.empty()) waiting_.push_back({&hash, data});
  }
  // All bytes of the stream are in `hash`.
  void settle(Sha256& hash) {
    const auto is_wanted = [&](const Sha256Update& update) { return update.hash == &hash; };
    for (;;) {
      const auto wanted = std::ranges::find_if(waiting_, is_wanted);
      if (wanted == waiting_.end()) return;
      // The streams beside it are those that wait longest.
      std::rotate(waiting_.begin(), wanted, wanted + 1);
      update_together(waiting_);
      std::erase_if(waiting_, [](const Sha256Update& update) { return update.data.empty(); });
    }
  }

 private:
  std::vector<Sha256Update> waiting_;
};

}  // namespace ferry::packer
