// Runs the confined reader as a process of its own.
//
// A fork of a program with threads may only call a few functions, and libhdf5 is not among them. So
// a program whose main() calls serve_if_asked() is started anew as the reader: /proc/self/exe is
// executed under another name. In other programs the reader is a fork, which works with a C library
// whose memory and streams work after a fork of a threaded process, as those of glibc do.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "formats/hdf5/confined.h"

namespace ferry::hdf5 {

// Must be called first in main(). If describe_confined() started this process, the function reads
// the file, answers and exits. Otherwise it returns, and readers are started as processes of this
// program.
void serve_if_asked(int argc, char** argv);

// Returns the encoded description of the HDF5 file behind `fd`, which has `file_bytes` bytes.
// Errors are those of call_confined().
Result<std::string> describe_confined(const std::string& name, int fd, uint64_t file_bytes,
                                      const ConfinedLimits& limits);

}  // namespace ferry::hdf5
