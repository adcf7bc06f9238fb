// write_files() writes all files of a plan. Weight bytes are moved only here. Private to packer/.
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
  std::vector<FastDigest> fast_files;  // if FileSet::fast_digests is set
  std::vector<Digest> segments;        // of outputs of weights, by their number among all outputs
  std::vector<FastDigest> fast_segments;
  // Digests of source tensors; nullopt if a tensor was not read.
  std::vector<std::optional<Digest>> entries;
  std::vector<NonFiniteCount> non_finite;  // by index into FileSet::weights
  uint64_t taken_over = 0;                 // bytes of weights that an earlier run has written
};

// A stage that later runs can continue from.
struct ResumableStage {
  StageContents contents;  // contents that are not written again
  StageJournal journal;    // receives the record of each weight that is written
  // Set if the system could not write a file. Content that the system still shows may be missing on
  // the disk.
  std::atomic<bool> sync_failed{false};
};

// Creates, writes and syncs every planned file in `folder`. `stage` is the stage of this folder, or
// nullptr. `progress` is called by one thread at a time with the bytes written and their total; it
// may be empty. Bytes and digests do not depend on the number of threads. Memory: for each thread
// one tile and the needs of materialize(), and the longest literal.
Result<FileDigests> write_files(const FileSet& plan, const OutputFolder& folder,
                                ResumableStage* stage, ThreadPool& pool,
                                const std::function<void(uint64_t, uint64_t)>& progress);

}  // namespace ferry::packer
