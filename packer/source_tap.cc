#include "packer/source_tap.h"

#include <algorithm>
#include <memory>

namespace ferry::packer {
namespace {

constexpr uint64_t kChunk = uint64_t{1} << 20;

}  // namespace

Status SourceTap::read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  FERRY_RETURN_IF_ERROR(source_.read(index, offset, out));
  const auto found = watched_.find(index);
  if (found == watched_.end()) return {};
  Watched& watched = found->second;
  if (offset > watched.done || offset + out.size() <= watched.done) return {};
  watched.hash.update(out.subspan(watched.done - offset));
  watched.done = offset + out.size();
  return {};
}

Result<Digest> SourceTap::finish(size_t entry) {
  Watched& watched = watched_.at(entry);
  const uint64_t bytes = source_.entries()[entry].bytes;
  if (watched.done < bytes) {
    const uint64_t size = std::min(kChunk, bytes - watched.done);
    const auto chunk = std::make_unique_for_overwrite<std::byte[]>(size);
    while (watched.done < bytes) {
      const uint64_t part = std::min(size, bytes - watched.done);
      FERRY_RETURN_IF_ERROR(read(entry, watched.done, {chunk.get(), part}));
    }
  }
  return watched.hash.finish();
}

}  // namespace ferry::packer
