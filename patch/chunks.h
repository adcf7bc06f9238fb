// Chunks whose ends depend on the bytes before them, so that equal bytes are found wherever they
// have moved to. Method: Xia et al., "FastCDC", USENIX ATC 2016. Private to patch/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ferry::patch {

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

}  // namespace ferry::patch
