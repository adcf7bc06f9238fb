// The confined reader as a process of its own.
//
// A fork of a program with threads may only call a few functions, and libhdf5 is not among them. So
// the reader is this same program, started anew: /proc/self/exe is executed under another name, and
// before main() a function of this library sees that name, reads the file and ends the process.
// Nothing has to be installed, and programs that use the library, tests among them, get this
// without a line in their main(). Where the library is not part of the executable itself (it was
// loaded by one), or the executable cannot be started again, the reader is a fork.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "formats/hdf5/confined.h"

namespace ferry::hdf5 {

// The encoded description of the HDF5 file behind `fd`, of `file_bytes` bytes. Errors as those of
// call_confined().
Result<std::string> describe_confined(const std::string& name, int fd, uint64_t file_bytes,
                                      const ConfinedLimits& limits);

}  // namespace ferry::hdf5
