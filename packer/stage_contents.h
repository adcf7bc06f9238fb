// What an earlier run has left in the stage of a bundle. Private to packer/.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/file_set.h"
#include "packer/output_folder.h"
#include "packer/stage_journal.h"

namespace ferry::packer {

// Empty where the source is not files (core/file_state.h): nothing says then that it is the same.
// Otherwise 64 hexadecimal digits, which differ wherever the weights of two plans could have other
// bytes or other places: they are over the version of the program, `plan_text`, which states every
// recipe and place, and the state and the headers of the files that are read. Names of directories
// and threads are not in it.
Result<std::string> stage_fingerprint(const FileSet& plan, std::string_view plan_text);

struct StageContents {
  std::vector<bool> files;                           // by index into FileSet::files: it is there
  std::vector<std::optional<WeightRecord>> weights;  // by index into FileSet::weights: whole
  uint64_t bytes = 0;                                // of these weights
};

// Reads every weight that `records` names back from the data files in `directory`, and returns
// those that have the digests that are stated. Everything else in the directory, but for data
// files of the planned size, is removed.
Result<StageContents> verified_contents(const FileSet& plan, const std::string& directory,
                                        std::span<const WeightRecord> records, ThreadPool& pool);

// Every planned file is made in `folder`, with its size; for all of them space is reserved where
// the file system can do that. What `contents` has stays, and what is between its weights becomes
// zero.
Status prepare_files(const FileSet& plan, const OutputFolder& folder,
                     const StageContents& contents);

}  // namespace ferry::packer
