// Finds how a block of a new file is made of old bytes: chunks find equal bytes wherever they have
// moved to, OldIndex also finds tensors, match_block() makes the pieces. Private to patch/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/sha256.h"
#include "core/thread_pool.h"
#include "patch/folder.h"
#include "patch/patch_file.h"

namespace ferry::patch {

// Chunks whose ends depend on the bytes before them, so that equal bytes are found wherever they
// have moved to. Method: Xia et al., "FastCDC", USENIX ATC 2016.
class Chunker {
 public:
  // `average` is a power of two from 1024 on. A chunk has a quarter to four times as many bytes.
  explicit Chunker(uint64_t average);
  uint64_t longest() const { return longest_; }
  // Returns the size of the chunk at the start of `bytes`, which hold longest() bytes or all that
  // are left. At least 1 unless `bytes` is empty.
  size_t first_chunk(std::span<const std::byte> bytes) const;

 private:
  uint64_t shortest_, average_, longest_;
  uint64_t strict_mask_, loose_mask_;  // decide before and after the average
};

// Returns the average size for old files of this many bytes together: 4 KiB or, so that the index
// has about a million chunks, more.
uint64_t average_chunk(uint64_t total_bytes);

struct Chunk {
  uint64_t hash = 0;
  uint64_t offset = 0;  // in the file
  uint32_t file = 0, bytes = 0;
};
uint64_t chunk_hash(std::span<const std::byte> bytes);

// The chunks of all old files. The bytes of a chunk that is found must be compared: hashes can be
// equal by chance or on purpose.
class ChunkIndex {
 public:
  ChunkIndex() = default;
  explicit ChunkIndex(std::vector<Chunk> chunks);
  // Returns the first chunk of that hash and size, or nullptr.
  const Chunk* find(uint64_t hash, uint64_t bytes) const;

 private:
  std::vector<Chunk> chunks_;  // in ascending order of hash, size, file and offset
};

// Returns how many bytes at the start, or at the end, of both are equal. The sizes may differ.
size_t common_prefix(std::span<const std::byte> a, std::span<const std::byte> b);
size_t common_suffix(std::span<const std::byte> a, std::span<const std::byte> b);

// OldIndex finds bytes and tensors of the old folder while a patch is made.
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

// A range of a new file, at most kMaxBlockBytes. Blocks do not depend on each other, so that any
// number of threads gives the same patch.
struct Block {
  uint64_t offset = 0, bytes = 0;  // bytes is a multiple of `width`
  uint8_t width = 1;
  std::vector<OldPlace> places = {};  // where its bytes, or similar ones, may be
};

struct Piece {
  Op op;  // old_file is an index into the files of the old folder
  std::vector<std::byte> stored;
};

// Cuts a new file into blocks: tensors by themselves, and what is between them.
std::vector<Block> blocks_of(const Folder& folder, uint32_t file, const OldIndex& old);

// Returns the pieces of a block in their order.
Result<std::vector<Piece>> match_block(const InputFile& file, const Block& block,
                                       const OldIndex& old);

}  // namespace ferry::patch
