// The digests of a data file by its segments (docs/bundle_format.md, "Digests of data files"). The
// writer and the reader share this code. Private to packer/.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/sha256.h"
#include "core/tensor_source.h"
#include "core/xxh3.h"
#include "packer/manifest.h"

namespace ferry::packer {

// Values of ManifestFile::method.
inline constexpr std::string_view kPlainDigest = "sha256";
inline constexpr std::string_view kSegmentsDigest = "sha256-segments";

struct HashedSegment {
  uint64_t offset = 0, bytes = 0;  // position in the file; bytes > 0
  Digest digest = {};
  FastDigest fast = {};
};
struct FileDigest {
  Digest sha256 = {};
  FastDigest fast = {};
};

// Hashes `value` as eight little-endian bytes.
void update_u64(Sha256& hash, uint64_t value);
void update_text(Sha256& hash, std::string_view text);

// `segments` are ascending, disjoint and inside the file. `read` fills its span with bytes of the
// file from an offset; it is called only for bytes outside of the segments. SHA-256 depends only on
// the SHA-256 digests of the segments, and XXH3 only on theirs.
Result<FileDigest> digest_of_segments(
    uint64_t file_bytes, std::span<const HashedSegment> segments,
    const std::function<Status(uint64_t offset, std::span<std::byte> out)>& read);

// The tensors of each data file, in the order of the manifest.
using TensorsByFile = std::map<std::string_view, std::vector<const ManifestTensor*>>;
TensorsByFile tensors_by_file(const Manifest& manifest);

// Returns the distinct positions of tensors that have bytes, with zeros for digests. `owners` gets
// the first tensor at each position. nullopt if positions overlap, are not ascending, leave the
// file, or have two different digests.
std::optional<std::vector<HashedSegment>> segments_of(
    std::span<const ManifestTensor* const> tensors, uint64_t file_bytes,
    std::vector<const ManifestTensor*>* owners);

// sha256_tree: the digest that identifies the files of a checkpoint (docs/bundle_format.md, "Source
// files").

// Returns the digest of each file of `source` as hexadecimal digits. `entries` has the digest of
// each tensor that the conversion reads, and nullopt for all others.
std::vector<std::string> source_tree_digests(const TensorSource& source,
                                             const std::vector<std::optional<Digest>>& entries);

}  // namespace ferry::packer
