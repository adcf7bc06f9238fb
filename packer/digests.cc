#include "packer/digests.h"

#include <algorithm>
#include <string_view>

#include "core/checked.h"
#include "core/derived_source.h"

namespace ferry::packer {
namespace {

constexpr std::string_view kTag = "ferry-segments-v1\n";
constexpr uint64_t kChunk = uint64_t{1} << 16;

constexpr std::string_view kTreeTag = "ferry-source-file-v1\n";

}  // namespace

Result<FileDigest> digest_of_segments(
    uint64_t file_bytes, std::span<const HashedSegment> segments,
    const std::function<Status(uint64_t offset, std::span<std::byte> out)>& read) {
  Sha256 hash;
  update_text(hash, kTag);
  update_u64(hash, file_bytes);
  FastHash fast_gap;
  std::vector<std::byte> chunk, fast;  // `fast`: the XXH3 digest of each range
  const auto add_fast = [&](const FastDigest& digest) {
    fast.insert(fast.end(), digest.begin(), digest.end());
  };
  const auto hash_gap = [&](uint64_t from, uint64_t to) -> Status {
    if (from == to) return {};
    for (; from < to; from += chunk.size()) {
      chunk.resize(std::min(kChunk, to - from));
      FERRY_RETURN_IF_ERROR(read(from, chunk));
      hash.update(chunk);
      fast_gap.update(chunk);
    }
    add_fast(fast_gap.finish());
    return {};
  };
  uint64_t done = 0;
  for (const HashedSegment& segment : segments) {
    FERRY_RETURN_IF_ERROR(hash_gap(done, segment.offset));
    hash.update(segment.digest);
    add_fast(segment.fast);
    done = segment.offset + segment.bytes;
  }
  FERRY_RETURN_IF_ERROR(hash_gap(done, file_bytes));
  return FileDigest{hash.finish(), xxh3(fast)};
}

void update_u64(Sha256& hash, uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (std::byte& b : bytes) {
    b = static_cast<std::byte>(value & 0xff);
    value >>= 8;
  }
  hash.update(bytes);
}

void update_text(Sha256& hash, std::string_view text) {
  hash.update(std::as_bytes(std::span(text.data(), text.size())));
}

TensorsByFile tensors_by_file(const Manifest& manifest) {
  TensorsByFile files;
  for (const ManifestTensor& tensor : manifest.tensors) files[tensor.file].push_back(&tensor);
  return files;
}

std::optional<std::vector<HashedSegment>> segments_of(
    std::span<const ManifestTensor* const> tensors, uint64_t file_bytes,
    std::vector<const ManifestTensor*>* owners) {
  std::vector<HashedSegment> segments;
  std::string_view sha256;  // of the previous tensor at a place
  uint64_t end = 0;
  for (const ManifestTensor* tensor : tensors) {
    if (!range_inside(tensor->offset, tensor->bytes, file_bytes)) return std::nullopt;
    if (tensor->bytes == 0) continue;
    const bool again = !segments.empty() && segments.back().offset == tensor->offset &&
                       segments.back().bytes == tensor->bytes;
    if (again) {
      if (tensor->sha256 != sha256) return std::nullopt;
      continue;
    }
    if (tensor->offset < end) return std::nullopt;
    segments.push_back({tensor->offset, tensor->bytes});
    sha256 = tensor->sha256;
    if (owners) owners->push_back(tensor);
    end = tensor->offset + tensor->bytes;
  }
  return segments;
}

std::vector<std::string> source_tree_digests(const TensorSource& source,
                                             const std::vector<std::optional<Digest>>& entries) {
  std::vector<Sha256> trees(source.files().size());
  for (size_t i = 0; i < trees.size(); ++i) {
    const SourceFile& file = source.files()[i];
    update_text(trees[i], kTreeTag);
    update_u64(trees[i], file.bytes);
    update_u64(trees[i], file.header.size());
    trees[i].update(file.header);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const TensorEntry& entry = source.entries()[i];
    if (!parts_of(source, i).empty()) continue;
    Sha256& tree = trees[entry.file];
    update_u64(tree, entry.offset);
    update_u64(tree, entry.bytes);
    const std::byte was_read{static_cast<unsigned char>(entries[i] ? 1 : 0)};
    tree.update({&was_read, 1});
    if (entries[i]) tree.update(*entries[i]);
  }
  std::vector<std::string> digests;
  for (Sha256& tree : trees) digests.push_back(to_hex(tree.finish()));
  return digests;
}

}  // namespace ferry::packer
