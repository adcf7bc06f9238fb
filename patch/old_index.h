// OldIndex finds bytes and tensors of the old folder while a patch is made. Private to patch/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/progress.h"
#include "core/result.h"
#include "core/sha256.h"
#include "core/thread_pool.h"
#include "patch/chunks.h"
#include "patch/folder.h"

namespace ferry::patch {

struct OldPlace {
  uint32_t file = 0;  // index into Folder::files
  uint64_t offset = 0;
};

class OldIndex {
 public:
  // Reads all files once: takes their digests and their chunks. `folder` must outlive the result.
  // Memory: at most a million chunks of 24 bytes, and the tensors.
  static Result<OldIndex> make(const Folder& folder, ThreadPool& pool, SharedProgress& progress);

  const Folder& folder() const { return *folder_; }
  const std::vector<Digest>& digests() const { return digests_; }  // by index of the file
  const Chunker& chunker() const { return chunker_; }
  const ChunkIndex& chunks() const { return chunks_; }

  // Returns where the bytes of `tensor` may be: that of the same digest first, then that of the
  // same name, dtype and shape. The bytes must be compared.
  std::vector<OldPlace> places_of(const TensorRange& tensor) const;
  // Returns the index of the file of that name, or nullptr.
  const uint32_t* file(std::string_view name) const;

 private:
  explicit OldIndex(const Folder& folder);

  const Folder* folder_;
  Chunker chunker_;
  ChunkIndex chunks_;
  std::vector<Digest> digests_;
  std::map<std::string_view, uint32_t> files_;
  std::map<std::string_view, const TensorRange*> by_digest_, by_name_;
};

}  // namespace ferry::patch
