// Checks a checkpoint, a program or a data file by reading every value as a conversion does.
#pragma once

#include <cstdint>
#include <string>

#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"

namespace ferry::listing {

struct FileCheck {
  std::string kind;            // "bundle", "checkpoint", "program", "data"
  packer::CheckReport report;  // `directory` in the report of a file is the path of the file
  uint64_t tensors = 0;        // for a checkpoint or a data file
};

// Returns all problems inside of `path`, one per tensor or file. Problems are wrong structure and
// errors of reading, such as a wrong CRC of a zip entry, a broken chunk of HDF5, or scales of
// delegates that are not positive. packer::check_bundle() checks bundles. Formats without checksums
// (safetensors, GGUF, programs, data files) cannot reveal a changed value. kIo if `path` cannot be
// opened, kBadInput if it is no such file, kUnsupported for formats and operators that Ferry does
// not read.
Result<FileCheck> check_path(const std::string& path, ThreadPool& pool,
                             const ShowProgress& progress = {});

}  // namespace ferry::listing
