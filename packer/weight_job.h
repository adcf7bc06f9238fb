// WeightJob: one weight on its way from the checkpoint to its file. Private to packer/.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "core/sha256.h"
#include "core/tensor_source.h"
#include "core/xxh3.h"
#include "graph/recipe.h"
#include "packer/file_set.h"
#include "packer/hash_queue.h"
#include "packer/non_finite.h"

namespace ferry::packer {

// SourceTap: digests of source tensors, taken from the reads that convert them.
// Private to packer/.

// Passes reads on to a source. A watched entry is read and hashed from front to back, a window at a
// time, as reads come to it, so that a conversion which reads a tensor in order needs no second
// pass. finish() reads and hashes the rest. For use by one thread.
class SourceTap : public TensorSource {
 public:
  SourceTap(const TensorSource& source, HashQueue& queue) : source_(source), queue_(queue) {}

  void watch(size_t entry) { watched_.try_emplace(entry); }
  // The digest of the whole of a watched entry; reads what was not read in order.
  Result<Digest> finish(size_t entry);

  const std::string& path() const override { return source_.path(); }
  const std::vector<SourceFile>& files() const override { return source_.files(); }
  const std::vector<TensorEntry>& entries() const override { return source_.entries(); }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status check_unchanged() const override { return source_.check_unchanged(); }

 private:
  struct Watched {
    Sha256 hash;
    std::vector<std::byte> window;  // the bytes before `done`
    uint64_t done = 0;              // bytes from the front that are in `hash`, or in the queue
    uint64_t begin() const { return done - window.size(); }
  };
  Status next_window(size_t index, Watched& watched) const;

  const TensorSource& source_;
  HashQueue& queue_;
  mutable std::map<size_t, Watched> watched_;
};

// Unchanged bytes of one whole source tensor: one digest serves both.
bool is_whole_copy(const graph::Recipe& recipe, const TensorSource& source);

struct WeightToWrite {
  const FileSet& plan;
  const OutputFile& out;
  std::span<const Extent> extents;  // of all its outputs
  std::vector<size_t> hashed;       // source tensors whose digests are made with it
  bool digested = true;             // SHA-256 of its outputs is wanted
  bool summed = false;              // CRC-32 of its output is wanted
};

struct WrittenOutputs {
  std::vector<Digest> digests;  // of each output
  std::vector<FastDigest> fast;
  std::vector<std::pair<size_t, Digest>> entries;  // of `hashed`
  NonFiniteCount non_finite;
  uint32_t crc = 0;
};

uint32_t crc32_of(uint32_t crc, std::span<const std::byte> bytes);

// Writes all outputs of a weight from front to back in tiles of rows: fill a tile, hash it, write
// it, while it is in the cache of one core.
class WeightJob {
 public:
  WeightJob(WeightToWrite weight, HashQueue& queue);
  bool is_written() const { return next_ >= rows_; }
  // The next tile; the number of bytes.
  Result<uint64_t> write_tile();
  // After the last one.
  Result<WrittenOutputs> finish();

 private:
  Status write(size_t output, int64_t first, std::span<const std::byte> tile) const;
  Status count_uncoded(int64_t first, int64_t rows, uint64_t uncoded);
  Status count_non_finite(int64_t first, std::span<const std::byte> tile);

  WeightToWrite weight_;
  const graph::Recipe& recipe_;
  HashQueue& queue_;
  SourceTap tap_;
  bool copied_;
  int64_t rows_, step_, next_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> tiles_;  // of each output
  std::vector<Sha256> hashes_;
  std::vector<FastHash> fast_hashes_;
  WrittenOutputs written_;
};

}  // namespace ferry::packer
