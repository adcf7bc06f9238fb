// Checking a checkpoint, a program or a data file: every value is read, as a conversion reads it.
#pragma once

#include <cstdint>
#include <string>

#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/check.h"

namespace ferry::listing {

struct FileCheck {
  std::string kind;            // "bundle", "checkpoint", "program", "data"
  packer::CheckReport report;  // of a file: `directory` is its path
  uint64_t tensors = 0;        // of a checkpoint or a data file
};

// Returns what is wrong inside of `path`, one problem per tensor or file: structure, and whatever
// reading finds, such as a wrong CRC of an entry of a zip archive, a broken chunk of HDF5, and
// scales of delegates that are not positive. A bundle is checked by packer::check_bundle(). Formats
// without checksums (safetensors, GGUF, programs, data files) keep a changed value to themselves.
// An error where there is nothing to check: kIo for what cannot be opened, kBadInput for what is no
// such thing, kUnsupported for formats and operators that are not read.
Result<FileCheck> check_path(const std::string& path, ThreadPool& pool,
                             const ShowProgress& progress = {});

}  // namespace ferry::listing
