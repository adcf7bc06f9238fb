// The digest of a model is one SHA-256 that stands for the contents of all its files. Signatures of
// OpenSSF Model Signing 1.0 have it as their subject; any other statement about a model can have it
// too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::signing {

// The name of a folder's signature, which lies in the folder.
inline constexpr std::string_view kSignatureName = "model.sig";

struct DigestOptions {
  // Files and directories, relative to the model, that are left out with all that is below them.
  // Those of version control (.git, .gitignore, .gitattributes, .github) are always left out.
  std::vector<std::string> ignore_paths = {};
  // With 0 there is one digest per file. Otherwise there is one per part of this many bytes, and
  // parts are hashed in parallel.
  uint64_t shard_size = 0;
  // Takes (done, total) bytes; may be empty.
  std::function<void(uint64_t, uint64_t)> progress = {};
  // The name that a signature gives the model; empty: the last component of its path.
  std::string name = {};
};

struct DigestedPart {
  std::string name;    // name of the file; "NAME:BEGIN:END" with shards
  std::string sha256;  // hexadecimal digits
  uint64_t bytes = 0;
};

struct ModelDigest {
  std::string name;  // last component of the model's path
  std::string root;  // SHA-256 over the raw digests of `parts` in their order; hexadecimal digits
  std::vector<DigestedPart> parts = {};        // in ascending order of names
  std::vector<std::string> ignored = {};       // existing files and directories that were left out
  std::vector<std::string> ignore_paths = {};  // paths that were to be left out, in ascending order
  uint64_t files = 0, bytes = 0;
};

// Hashes all files of a folder, or one file, without following a symbolic link below `path`. The
// result does not depend on the number of threads. kUsage for a path to ignore that is not a plain
// relative one; kBadInput for symbolic links, devices, names that are not UTF-8, and a model
// without anything to hash; kIo.
Result<ModelDigest> model_digest(const std::string& path, const DigestOptions& options,
                                 ThreadPool& pool);

}  // namespace ferry::signing
