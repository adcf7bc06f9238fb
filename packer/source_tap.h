// SourceTap: digests of source tensors, taken from the reads that convert them. Private to packer/.
#pragma once

#include <map>
#include <utility>

#include "core/sha256.h"
#include "core/tensor_source.h"

namespace ferry::packer {

// Passes reads on to a source. Of watched entries it hashes what the reads give, as long as each
// begins at or before the end of those before it, so that a conversion which reads a tensor from
// front to back needs no second pass. finish() reads and hashes the rest. For use by one thread.
class SourceTap : public TensorSource {
 public:
  explicit SourceTap(const TensorSource& source) : source_(source) {}

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
    uint64_t done = 0;  // bytes from the front that are in `hash`
  };
  const TensorSource& source_;
  mutable std::map<size_t, Watched> watched_;
};

}  // namespace ferry::packer
