// The only place where weight bytes move: writes all files of a plan. Private to packer/.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/sha256.h"
#include "core/thread_pool.h"
#include "core/xxh3.h"
#include "packer/file_set.h"
#include "packer/non_finite.h"
#include "packer/stage_contents.h"
#include "packer/stage_journal.h"

namespace ferry::packer {

struct FileDigests {
  std::vector<Digest> files;           // by index into FileSet::files
  std::vector<FastDigest> fast_files;  // where FileSet::fast_digests
  std::vector<Digest> segments;        // of outputs of weights, by their number among all
  std::vector<FastDigest> fast_segments;
  std::vector<std::optional<Digest>> entries;  // of source tensors; empty where none was read
  std::vector<NonFiniteCount> non_finite;      // by index into FileSet::weights
  uint64_t taken_over = 0;                     // bytes of weights that an earlier run has written
};

// A stage that outlives its run.
struct ResumableStage {
  StageContents contents;  // is not written again
  StageJournal journal;    // takes what is
  // The system could not write a file; what it shows of it may not be on the disk.
  std::atomic<bool> sync_failed{false};
};

// Creates every planned file in `folder`, writes and syncs it; `stage`, which may be nullptr, is
// that of this folder. `progress` is called by one
// thread at a time, with bytes written and their total; it may be empty. Bytes and digests do not
// depend on the number of threads. Memory: a tile and what materialize() needs for it per thread,
// and the longest literal.
Result<FileDigests> write_files(const FileSet& plan, const OutputFolder& folder,
                                ResumableStage* stage, ThreadPool& pool,
                                const std::function<void(uint64_t, uint64_t)>& progress);

}  // namespace ferry::packer
