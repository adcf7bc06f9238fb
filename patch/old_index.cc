#include "patch/old_index.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "core/interrupt.h"

namespace ferry::patch {
namespace {

constexpr uint64_t kReadBytes = uint64_t{4} << 20;

struct ScannedFile {
  Digest digest = {};
  std::vector<Chunk> chunks;
};

// Reads a file from front to back. Bytes behind the last whole chunk are kept for the next read.
Result<ScannedFile> scan(const InputFile& file, uint32_t index, const Chunker& chunker,
                         SharedProgress& progress) {
  ScannedFile scanned;
  Sha256 hash;
  std::vector<std::byte> buffer;
  uint64_t start = 0;  // offset of buffer[0] in the file
  while (start + buffer.size() < file.size() || !buffer.empty()) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const size_t kept = buffer.size();
    const uint64_t size = std::min(kReadBytes, file.size() - start - kept);
    buffer.resize(kept + size);
    const std::span<std::byte> fresh = std::span(buffer).subspan(kept);
    FERRY_RETURN_IF_ERROR(file.read_at(start + kept, fresh));
    hash.update(fresh);
    progress.advance(size);
    const bool last = start + buffer.size() == file.size();
    size_t at = 0;
    while (at < buffer.size() && (last || buffer.size() - at >= chunker.longest())) {
      const size_t bytes = chunker.first_chunk(std::span(buffer).subspan(at));
      scanned.chunks.push_back({chunk_hash(std::span(buffer).subspan(at, bytes)), start + at, index,
                                static_cast<uint32_t>(bytes)});
      at += bytes;
    }
    buffer.erase(buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(at));
    start += at;
  }
  scanned.digest = hash.finish();
  return scanned;
}

}  // namespace

OldIndex::OldIndex(const Folder& folder)
    : folder_(&folder), chunker_(average_chunk(folder.bytes())) {
  for (uint32_t i = 0; i < folder.files.size(); ++i) files_.emplace(folder.files[i].name, i);
  for (const TensorRange& tensor : folder.tensors) {
    by_name_.emplace(tensor.name, &tensor);
    if (!tensor.sha256.empty()) by_digest_.emplace(tensor.sha256, &tensor);
  }
}

Result<OldIndex> OldIndex::make(const Folder& folder, ThreadPool& pool, SharedProgress& progress) {
  OldIndex index(folder);
  std::vector<std::optional<Result<ScannedFile>>> scanned(folder.files.size());
  pool.parallel_for(folder.files.size(), [&](size_t i) {
    scanned[i] = scan(folder.files[i].file, static_cast<uint32_t>(i), index.chunker_, progress);
  });
  std::vector<Chunk> chunks;
  for (auto& file : scanned) {
    const ScannedFile found = FERRY_TRY(std::move(*file));
    index.digests_.push_back(found.digest);
    chunks.insert(chunks.end(), found.chunks.begin(), found.chunks.end());
  }
  index.chunks_ = ChunkIndex(std::move(chunks));
  return index;
}

std::vector<OldPlace> OldIndex::places_of(const TensorRange& tensor) const {
  std::vector<OldPlace> places;
  const auto equal = by_digest_.find(tensor.sha256);
  if (equal != by_digest_.end() && equal->second->bytes == tensor.bytes) {
    places.push_back({equal->second->file, equal->second->offset});
  }
  const auto named = by_name_.find(tensor.name);
  if (named != by_name_.end() && named->second->dtype == tensor.dtype &&
      named->second->shape == tensor.shape && named->second->bytes == tensor.bytes) {
    places.push_back({named->second->file, named->second->offset});
  }
  return places;
}

const uint32_t* OldIndex::file(std::string_view name) const {
  const auto found = files_.find(name);
  return found == files_.end() ? nullptr : &found->second;
}

}  // namespace ferry::patch
