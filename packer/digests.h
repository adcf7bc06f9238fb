// The digests of a data file by its segments (docs/bundle_format.md, "Digests of data files"),
// shared by the writer and the reader. Private to packer/.
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
  uint64_t offset = 0, bytes = 0;  // in the file; bytes > 0
  Digest digest = {};
  FastDigest fast = {};
};
struct FileDigest {
  Digest sha256 = {};
  FastDigest fast = {};
};

// Eight bytes, little-endian.
void update_u64(Sha256& hash, uint64_t value);
void update_text(Sha256& hash, std::string_view text);

// `segments` are ascending, disjoint and inside the file; `read` fills its span with the bytes of
// the file from an offset, and is asked only for what is in no segment. Each digest depends on
// those of its kind in the segments only.
Result<FileDigest> digest_of_segments(
    uint64_t file_bytes, std::span<const HashedSegment> segments,
    const std::function<Status(uint64_t offset, std::span<std::byte> out)>& read);

// Tensors of each data file, in the order of the manifest.
using TensorsByFile = std::map<std::string_view, std::vector<const ManifestTensor*>>;
TensorsByFile tensors_by_file(const Manifest& manifest);

// The distinct places of tensors that have bytes, with zeros for digests; the first tensor at each
// place goes to `owners`. Empty if places overlap, go back, leave the file,
// or have two digests.
std::optional<std::vector<HashedSegment>> segments_of(
    std::span<const ManifestTensor* const> tensors, uint64_t file_bytes,
    std::vector<const ManifestTensor*>* owners);

// sha256_tree: what identifies the files of a checkpoint (docs/bundle_format.md,
// "Source files").

// Of each file of `source`, as hexadecimal digits. `entries` has the digest of each tensor that the
// conversion reads, and none of the others.
std::vector<std::string> source_tree_digests(const TensorSource& source,
                                             const std::vector<std::optional<Digest>>& entries);

}  // namespace ferry::packer
