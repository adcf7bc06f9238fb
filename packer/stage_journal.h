// StageJournal: what of a bundle that is being written is on the disk already, so that a later run
// need not write it again (docs/crash_consistency.md). Private to packer/.
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

// What the manifest will say of a weight whose bytes have been written.
struct WeightRecord {
  size_t weight = 0;                                    // index into FileSet::weights
  std::vector<Digest> outputs = {};                     // of each output
  std::vector<std::pair<size_t, Digest>> entries = {};  // source tensors that were hashed with it
  NonFiniteCount non_finite = {};
  std::vector<FastDigest> fast_outputs = {};  // not in the journal: verified_contents() makes them
};

// A text file of one line for each weight. Every line has a number and a checksum over itself and
// the random name of the journal, so that a line that is torn, altered, moved or of another journal
// is not read; nor is any line behind it. What a line says of the stage is checked against the
// stage by those who read it (verified_weights()); what it says of the source stands as long as the
// fingerprint does.
class StageJournal {
 public:
  // The journal of `fingerprint` at `path`; another one, or none, gives way to an empty one.
  static Result<StageJournal> open(const std::string& path, std::string_view fingerprint);
  // The records of the journal of `fingerprint` at `path`, which is not changed. nullopt where it
  // is none, or one of something else.
  static Result<std::optional<std::vector<WeightRecord>>> records_of(const std::string& path,
                                                                     std::string_view fingerprint);
  StageJournal(StageJournal&& other) noexcept;
  StageJournal& operator=(StageJournal&&) = delete;

  // As read by open(), in the order of the file.
  std::span<const WeightRecord> records() const { return records_; }
  // Thread-safe. `bytes` is the size of the weight: the journal is synced now and then.
  Status append(const WeightRecord& record, uint64_t bytes);
  bool empty() const { return lines_ <= 1; }  // has no records

 private:
  StageJournal() = default;
  // False where the text does not begin as a journal of `fingerprint` does.
  bool read(std::string_view text, std::string_view fingerprint);
  Status begin(std::string_view fingerprint);
  Status append_line(std::string_view body);

  OutputFile file_;
  std::string run_;                    // random
  std::vector<WeightRecord> records_;  // read by open()
  std::mutex mutex_;                   // guards what follows
  uint64_t end_ = 0, lines_ = 0, unsynced_ = 0;
};

}  // namespace ferry::packer
