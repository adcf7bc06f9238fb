// SourceTap: digests of source tensors, taken from the reads that convert them. Private to packer/.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/sha256.h"
#include "core/tensor_source.h"
#include "packer/hash_queue.h"

namespace ferry::packer {

// Passes reads on to a source. A watched entry is read and hashed from front to back, a window at a
// time, as reads come to it, so that a conversion which reads a tensor in order needs no second
// pass. finish() reads and hashes the rest. For use by one thread.
class SourceTap : public TensorSource {
 public:
  SourceTap(const TensorSource& source, HashQueue& queue) : source_(source), queue_(queue) {}

  void watch(size_t entry) { watched_.try_emplace(entry); }
  // The digest of the whole of a watched entry; reads what was not read in order.
  Result<Digest> finish(size_t entry);

  const std::string& path() const override { return source_.path(); }
  const std::vector<SourceFile>& files() const override { return source_.files(); }
  const std::vector<TensorEntry>& entries() const override { return source_.entries(); }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status check_unchanged() const override { return source_.check_unchanged(); }

 private:
  struct Watched {
    Sha256 hash;
    std::vector<std::byte> window;  // the bytes before `done`
    uint64_t done = 0;              // bytes from the front that are in `hash`, or in the queue
    uint64_t begin() const { return done - window.size(); }
  };
  Status next_window(size_t index, Watched& watched) const;

  const TensorSource& source_;
  HashQueue& queue_;
  mutable std::map<size_t, Watched> watched_;
};

}  // namespace ferry::packer
