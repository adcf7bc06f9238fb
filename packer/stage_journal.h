// StageJournal records which weights of an unfinished bundle are on the disk, so that a later run
// need not write them again (docs/crash_consistency.md). Private to packer/.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "core/sha256.h"
#include "core/xxh3.h"
#include "packer/non_finite.h"

namespace ferry::packer {

// The facts of a written weight that the manifest will state.
struct WeightRecord {
  size_t weight = 0;                 // index into FileSet::weights
  std::vector<Digest> outputs = {};  // one per output
  // Source tensors that were hashed with the weight.
  std::vector<std::pair<size_t, Digest>> entries = {};
  NonFiniteCount non_finite = {};
  // Not in the journal; verified_contents() computes them.
  std::vector<FastDigest> fast_outputs = {};
};

// A text file with one line per weight. Every line has a number and a checksum over its text and
// the random name of the journal. Reading ends at the first line that is torn, altered, moved or
// from another journal. A reader checks what lines state about the stage against the stage
// (verified_contents()). What they state about the source is valid as long as the fingerprint is
// equal.
class StageJournal {
 public:
  // Opens the journal of `fingerprint` at `path`. A journal of another fingerprint is replaced by
  // an empty one, and so is a missing one.
  static Result<StageJournal> open(const std::string& path, std::string_view fingerprint);
  // Returns the records of the journal at `path` without changing it. nullopt if the file is not a
  // journal of `fingerprint`.
  static Result<std::optional<std::vector<WeightRecord>>> records_of(const std::string& path,
                                                                     std::string_view fingerprint);
  StageJournal(StageJournal&& other) noexcept;
  StageJournal& operator=(StageJournal&&) = delete;

  // Returns the records that open() has read, in the order of the file.
  std::span<const WeightRecord> records() const { return records_; }
  // Thread-safe. `bytes` is the size of the weight and decides when the journal is synced.
  Status append(const WeightRecord& record, uint64_t bytes);
  bool empty() const { return lines_ <= 1; }  // has no records

 private:
  StageJournal() = default;
  // Returns false if the text does not begin as a journal of `fingerprint` does.
  bool read(std::string_view text, std::string_view fingerprint);
  Status begin(std::string_view fingerprint);
  Status append_line(std::string_view body);

  OutputFile file_;
  std::string run_;                    // random name of the journal
  std::vector<WeightRecord> records_;  // read by open()
  std::mutex mutex_;                   // guards the members below
  uint64_t end_ = 0, lines_ = 0, unsynced_ = 0;
};

}  // namespace ferry::packer
