#include "patch/match.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "core/checked.h"
#include "core/interrupt.h"
#include "core/xxh3.h"
#include "patch/blocks.h"

namespace ferry::patch {
namespace {

constexpr uint64_t kLeastAverage = 4096;
constexpr uint64_t kMostChunks = uint64_t{1} << 20;

// A random number for each byte (SplitMix64). Another table would give other patches that are as
// good.
constexpr std::array<uint64_t, 256> gear_table() {
  std::array<uint64_t, 256> table{};
  uint64_t state = 0x66657272;
  for (uint64_t& entry : table) {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    entry = z ^ (z >> 31);
  }
  return table;
}
constexpr std::array<uint64_t, 256> kGear = gear_table();

// Returns a mask of `bits` high bits. The high bits of the hash depend on the last 64 bytes.
constexpr uint64_t high_bits(int bits) { return ~uint64_t{0} << (64 - bits); }

auto order_of(const Chunk& chunk) {
  return std::tuple(chunk.hash, chunk.bytes, chunk.file, chunk.offset);
}

}  // namespace

Chunker::Chunker(uint64_t average)
    : shortest_(average / 4), average_(average), longest_(average * 4) {
  const int bits = std::countr_zero(average);
  strict_mask_ = high_bits(bits + 1);
  loose_mask_ = high_bits(bits - 1);
}

size_t Chunker::first_chunk(std::span<const std::byte> bytes) const {
  const size_t end = std::min<size_t>(bytes.size(), longest_);
  const size_t middle = std::min<size_t>(end, average_);
  uint64_t hash = 0;
  // The hash begins a word of 64 bytes before the first possible end.
  size_t i = std::min<size_t>(end, shortest_ - 64);
  for (; i < std::min<size_t>(end, shortest_); ++i) {
    hash = (hash << 1) + kGear[std::to_integer<size_t>(bytes[i])];
  }
  for (; i < middle; ++i) {
    hash = (hash << 1) + kGear[std::to_integer<size_t>(bytes[i])];
    if ((hash & strict_mask_) == 0) return i + 1;
  }
  for (; i < end; ++i) {
    hash = (hash << 1) + kGear[std::to_integer<size_t>(bytes[i])];
    if ((hash & loose_mask_) == 0) return i + 1;
  }
  return end;
}

uint64_t average_chunk(uint64_t total_bytes) {
  uint64_t average = kLeastAverage;
  while (total_bytes / average > kMostChunks) average *= 2;
  return average;
}

uint64_t chunk_hash(std::span<const std::byte> bytes) {
  const FastDigest digest = xxh3(bytes);
  uint64_t hash;
  std::memcpy(&hash, digest.data(), sizeof(hash));
  return hash;
}

ChunkIndex::ChunkIndex(std::vector<Chunk> chunks) : chunks_(std::move(chunks)) {
  std::ranges::sort(chunks_, {}, order_of);
  const auto equal = [](const Chunk& a, const Chunk& b) {
    return a.hash == b.hash && a.bytes == b.bytes;
  };
  chunks_.erase(std::unique(chunks_.begin(), chunks_.end(), equal), chunks_.end());
}

const Chunk* ChunkIndex::find(uint64_t hash, uint64_t bytes) const {
  const auto key = std::tuple(hash, bytes);
  const auto found = std::ranges::lower_bound(
      chunks_, key, {}, [](const Chunk& c) { return std::tuple(c.hash, uint64_t{c.bytes}); });
  if (found == chunks_.end() || found->hash != hash || found->bytes != bytes) return nullptr;
  return &*found;
}

size_t common_prefix(std::span<const std::byte> a, std::span<const std::byte> b) {
  const size_t size = std::min(a.size(), b.size());
  size_t i = 0;
  while (i + 8 <= size && std::memcmp(a.data() + i, b.data() + i, 8) == 0) i += 8;
  while (i < size && a[i] == b[i]) ++i;
  return i;
}

size_t common_suffix(std::span<const std::byte> a, std::span<const std::byte> b) {
  const size_t size = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < size && a[a.size() - 1 - i] == b[b.size() - 1 - i]) ++i;
  return i;
}

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

namespace {

using Bytes = std::span<const std::byte>;

constexpr uint64_t kExtensionBytes = uint64_t{64} << 10;

class BlockMatcher {
 public:
  BlockMatcher(const Block& block, const OldIndex& old) : block_(block), old_(old) {}

  Result<std::vector<Piece>> run(const InputFile& file) {
    made_.resize(block_.bytes);
    FERRY_RETURN_IF_ERROR(file.read_at(block_.offset, made_));
    if (FERRY_TRY(is_found_whole())) return std::move(pieces_);
    // A few elements that differ take less as differences than as the chunks between them.
    if (!similar_.empty() && differences_ <= made_.size() / block_.width / 8) {
      add_encoded(0, made_.size());
    } else {
      FERRY_RETURN_IF_ERROR(match_chunks());
    }
    return std::move(pieces_);
  }

 private:
  const InputFile& old_file(uint32_t index) const { return old_.folder().files[index].file; }

  // Compares the block with the places that it may come from, and keeps the most similar bytes.
  Result<bool> is_found_whole() {
    for (const OldPlace& place : block_.places) {
      if (!range_inside(place.offset, made_.size(), old_file(place.file).size())) continue;
      std::vector<std::byte> bytes(made_.size());
      FERRY_RETURN_IF_ERROR(old_file(place.file).read_at(place.offset, bytes));
      if (bytes == made_) {
        add_copy(place, made_.size());
        return true;
      }
      const uint64_t differences = count_differences(made_, bytes, block_.width);
      if (!similar_.empty() && differences >= differences_) continue;
      differences_ = differences;
      similar_ = std::move(bytes);
      similar_place_ = place;
    }
    return false;
  }

  Status match_chunks() {
    const Chunker& chunker = old_.chunker();
    size_t at = 0;
    while (at < made_.size()) {
      const Bytes rest = Bytes(made_).subspan(at);
      const size_t bytes = chunker.first_chunk(rest);
      const Chunk* chunk = old_.chunks().find(chunk_hash(rest.first(bytes)), bytes);
      if (chunk == nullptr || !FERRY_TRY(take_match(at, *chunk))) {
        at += bytes;
      } else {
        at = done_;
      }
    }
    add_encoded(done_, made_.size());
    return {};
  }

  // Compares the bytes of the chunk and those around it. Returns whether a copy was added.
  Result<bool> take_match(size_t at, const Chunk& chunk) {
    std::vector<std::byte> old(chunk.bytes);
    FERRY_RETURN_IF_ERROR(old_file(chunk.file).read_at(chunk.offset, old));
    if (!std::ranges::equal(old, Bytes(made_).subspan(at, chunk.bytes))) return false;
    const size_t before = FERRY_TRY(equal_before(at, chunk));
    const size_t end = at + chunk.bytes + FERRY_TRY(equal_behind(at + chunk.bytes, chunk));
    const size_t width = block_.width;
    const size_t from = (at - before + width - 1) / width * width;
    const size_t to = end / width * width;
    if (to <= at || from >= to) return false;
    add_encoded(done_, from);
    add_copy({chunk.file, chunk.offset - at + from}, to - from);
    done_ = to;
    return true;
  }

  Result<size_t> equal_before(size_t at, const Chunk& chunk) {
    const auto size = std::min<uint64_t>({at - done_, chunk.offset, kExtensionBytes});
    std::vector<std::byte> old(size);
    FERRY_RETURN_IF_ERROR(old_file(chunk.file).read_at(chunk.offset - size, old));
    return common_suffix(old, Bytes(made_).subspan(at - size, size));
  }

  Result<size_t> equal_behind(size_t at, const Chunk& chunk) {
    const uint64_t old_end = chunk.offset + chunk.bytes;
    size_t equal = 0;
    while (true) {
      const auto size = std::min<uint64_t>({made_.size() - at - equal, kExtensionBytes,
                                            old_file(chunk.file).size() - old_end - equal});
      std::vector<std::byte> old(size);
      FERRY_RETURN_IF_ERROR(old_file(chunk.file).read_at(old_end + equal, old));
      const size_t more = common_prefix(old, Bytes(made_).subspan(at + equal, size));
      equal += more;
      if (more < size || size == 0) return equal;
    }
  }

  void add_copy(const OldPlace& place, uint64_t bytes) {
    pieces_.push_back({{OpKind::kCopy, 0, place.file, bytes, place.offset, 0}, {}});
  }

  // Adds made_[begin, end) as data or as differences from the similar bytes.
  void add_encoded(size_t begin, size_t end) {
    if (begin >= end) return;
    const Bytes made = Bytes(made_).subspan(begin, end - begin);
    const Bytes old = similar_.empty() ? Bytes() : Bytes(similar_).subspan(begin, end - begin);
    const OldPlace place{similar_place_.file, similar_place_.offset + begin};
    if (!old.empty() && std::ranges::equal(made, old)) return add_copy(place, made.size());
    EncodedBlock encoded = encode_block(made, old, block_.width);
    Op op{encoded.kind, block_.width, 0, made.size(), 0, encoded.stored.size()};
    if (encoded.kind != OpKind::kData) {
      op.old_file = place.file;
      op.old_offset = place.offset;
    }
    pieces_.push_back({op, std::move(encoded.stored)});
  }

  const Block& block_;
  const OldIndex& old_;
  std::vector<std::byte> made_, similar_;
  OldPlace similar_place_;
  uint64_t differences_ = 0;
  size_t done_ = 0;  // end of the last copy in the block
  std::vector<Piece> pieces_;
};

void add_blocks(uint64_t offset, uint64_t bytes, uint8_t width, std::vector<OldPlace> places,
                std::vector<Block>& blocks) {
  while (bytes > 0) {
    const uint64_t size = std::min(bytes, kMaxBlockBytes);
    blocks.push_back({offset, size, width, places});
    for (OldPlace& place : places) place.offset += size;
    offset += size;
    bytes -= size;
  }
}

}  // namespace

std::vector<Block> blocks_of(const Folder& folder, uint32_t file, const OldIndex& old) {
  std::vector<Block> blocks;
  uint64_t at = 0;
  const uint32_t* named = old.file(folder.files[file].name);
  const auto add_plain = [&](uint64_t end) {
    std::vector<OldPlace> places;
    if (named != nullptr) places.push_back({*named, at});
    add_blocks(at, end - at, 1, std::move(places), blocks);
    at = end;
  };
  for (const TensorRange& tensor : folder.tensors) {
    if (tensor.file != file) continue;
    add_plain(tensor.offset);
    add_blocks(tensor.offset, tensor.bytes, tensor.width(), old.places_of(tensor), blocks);
    at = tensor.offset + tensor.bytes;
  }
  add_plain(folder.files[file].file.size());
  return blocks;
}

Result<std::vector<Piece>> match_block(const InputFile& file, const Block& block,
                                       const OldIndex& old) {
  return BlockMatcher(block, old).run(file);
}

}  // namespace ferry::patch
