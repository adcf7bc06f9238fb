// WeightJob converts one weight of the checkpoint and writes it to its file. Private to packer/.
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
#include "packer/non_finite.h"
#include "packer/task_dealer.h"

namespace ferry::packer {

// SourceTap computes digests of source tensors from the reads that convert them. Private to
// packer/.

// Passes reads to a source. A watched entry is read and hashed from front to back, one window at a
// time, as reads reach it. So a conversion that reads a tensor in order needs no second pass.
// finish() reads and hashes the rest. For use by one thread.
class SourceTap : public TensorSource {
 public:
  SourceTap(const TensorSource& source, HashQueue& queue) : source_(source), queue_(queue) {}

  void watch(size_t entry) { watched_.try_emplace(entry); }
  // Returns the digest of a whole watched entry. Reads the bytes that were not read in order.
  Result<Digest> finish(size_t entry);

  const std::string& path() const override { return source_.path(); }
  const std::vector<SourceFile>& files() const override { return source_.files(); }
  const std::vector<TensorEntry>& entries() const override { return source_.entries(); }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Result<std::optional<StoredCodes>> codes(size_t index) const override {
    return source_.codes(index);
  }
  Status read_codes(size_t index, int64_t first, std::span<int8_t> codes,
                    std::span<float> scales) const override {
    return source_.read_codes(index, first, codes, scales);
  }
  Status check_unchanged() const override { return source_.check_unchanged(); }

 private:
  struct Watched {
    Sha256 hash;
    std::vector<std::byte> window;  // the bytes before `done`
    uint64_t done = 0;              // bytes from the front that are in `hash` or in the queue
    uint64_t begin() const { return done - window.size(); }
  };
  Status next_window(size_t index, Watched& watched) const;

  const TensorSource& source_;
  HashQueue& queue_;
  mutable std::map<size_t, Watched> watched_;
};

// Whether the weight is an unchanged copy of one whole source tensor, so that one digest serves for
// both.
bool is_whole_copy(const graph::Recipe& recipe, const TensorSource& source);

struct WeightToWrite {
  const FileSet& plan;
  const OutputFile& out;
  std::span<const Extent> extents;  // extents of all outputs of the weight
  std::vector<size_t> hashed;       // source tensors whose digests the job computes
  bool digested = true;             // compute SHA-256 of the outputs
  bool summed = false;              // compute CRC-32 of the output
};

struct WrittenOutputs {
  std::vector<Digest> digests;  // one per output
  std::vector<FastDigest> fast;
  std::vector<std::pair<size_t, Digest>> entries;  // digests of the tensors in `hashed`
  NonFiniteCount non_finite;
  uint32_t crc = 0;
};

uint32_t crc32_of(uint32_t crc, std::span<const std::byte> bytes);

// Writes all outputs of a weight from front to back in tiles of rows. Each tile is filled, hashed
// and written while it is in the cache of one core.
class WeightJob {
 public:
  WeightJob(WeightToWrite weight, HashQueue& queue);
  bool is_written() const { return next_ >= rows_; }
  // Writes the next tile and returns its number of bytes.
  Result<uint64_t> write_tile();
  // Returns the results after the last tile.
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
  std::vector<std::unique_ptr<std::byte[]>> tiles_;  // one per output
  std::vector<Sha256> hashes_;
  std::vector<FastHash> fast_hashes_;
  WrittenOutputs written_;
};

}  // namespace ferry::packer
