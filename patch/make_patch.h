// make_patch() writes what a device needs that has the old folder and wants the new one.
// apply_patch() is the counterpart, docs/updates.md the specification of the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::patch {

enum class FileState { kUnchanged, kChanged, kAdded, kRemoved };
std::string_view name_of(FileState state);

struct PatchedFile {
  std::string name;
  FileState state = FileState::kUnchanged;
  uint64_t bytes = 0;   // in the new folder; for a removed file in the old one
  uint64_t copied = 0;  // bytes that are those of old files
  uint64_t stored = 0;  // bytes in the patch
};
struct PatchSummary {
  std::vector<PatchedFile> files;  // in ascending order of names
  uint64_t old_bytes = 0, new_bytes = 0, patch_bytes = 0;

  uint64_t count(FileState state) const;
};

// The folders are bundles, or other folders of files. Equal folders and an equal version of libzstd
// give equal patches, whatever the number of threads. kExists if `output` exists and `overwrite` is
// false; kBadInput for a folder with folders in it, or with a manifest that is not valid; kIo also
// if a file changes meanwhile. Memory: 24 bytes for each of up to a million chunks, 50 MB for each
// thread, and the table.
Result<PatchSummary> make_patch(const std::string& old_folder, const std::string& new_folder,
                                const std::string& output, bool overwrite, ThreadPool& pool,
                                const ShowProgress& progress);

}  // namespace ferry::patch
