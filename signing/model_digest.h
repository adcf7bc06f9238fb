// The digest of a model: one SHA-256 that stands for the contents of all its files. Signatures of
// OpenSSF Model Signing 1.0 have it as their subject, and so can any other statement about a model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::signing {

// The file of a folder's signature, in the folder.
inline constexpr std::string_view kSignatureName = "model.sig";

struct DigestOptions {
  // Relative to the model: files and directories that are left out, with all that is below them.
  // Those of the version control are left out always (.git, .gitignore, .gitattributes, .github).
  std::vector<std::string> ignore_paths = {};
  // 0: one digest per file; otherwise one per part of this many bytes, which are hashed in
  // parallel.
  uint64_t shard_size = 0;
  // Takes (done, total) bytes; may be empty.
  std::function<void(uint64_t, uint64_t)> progress = {};
};

struct DigestedPart {
  std::string name;    // of a file; "NAME:BEGIN:END" with shards
  std::string sha256;  // hexadecimal digits
  uint64_t bytes = 0;
};

struct ModelDigest {
  std::string name;  // last component of the model's path
  std::string root;  // SHA-256 over the raw digests of `parts` in their order; hexadecimal digits
  std::vector<DigestedPart> parts = {};        // in ascending order of names
  std::vector<std::string> ignored = {};       // what is there and was left out
  std::vector<std::string> ignore_paths = {};  // what was to be left out, in ascending order
  uint64_t files = 0, bytes = 0;
};

// Hashes all files of a folder, or one file, without following a symbolic link below `path`. kUsage
// for a path to ignore that is not a plain relative one, kBadInput for symbolic links, devices and
// names that are not UTF-8, and where there is nothing to hash; kIo. Does not depend on threads.
Result<ModelDigest> model_digest(const std::string& path, const DigestOptions& options,
                                 ThreadPool& pool);

}  // namespace ferry::signing
