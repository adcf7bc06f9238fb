// Computes digests of ranges of a model's files. Private to signing/.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "signing/model_tree.h"

namespace ferry::signing {

enum class HashType { kSha256, kBlake2b };
std::string_view name_of(HashType type);
size_t digest_bytes(HashType type);

struct FileRange {
  std::string name;
  uint64_t offset = 0, bytes = 0;
  uint64_t file_bytes = 0;  // the file must have this size
};

// Takes (done, total) bytes. Calls do not overlap.
using Progress = std::function<void(uint64_t, uint64_t)>;

// Returns the digest of each range as raw bytes. Files are read and not mapped, so that a file that
// shrinks meanwhile is an error. kIo if a file cannot be read or changes. The ranges are spread
// over the pool.
Result<std::vector<std::string>> hash_ranges(const ModelTree& tree,
                                             std::span<const FileRange> ranges, HashType type,
                                             ThreadPool& pool, const Progress& progress);

std::string hex_of(std::string_view bytes);

}  // namespace ferry::signing
