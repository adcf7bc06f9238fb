#include "patch/match.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "core/checked.h"
#include "patch/blocks.h"
#include "patch/chunks.h"

namespace ferry::patch {
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
