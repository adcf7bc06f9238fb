// The driver through which libhdf5 reads its file in the confined child (confined.h). It reads the
// bytes of one descriptor by offset.
#pragma once

#define H5_USE_110_API  // newer libraries also offer the functions of 1.10
#include <hdf5.h>

#include <cstdint>

namespace ferry::hdf5 {

// Returns the identifier of the driver, for H5Pset_driver. The first call registers the driver, and
// must precede the confinement.
hid_t descriptor_driver();

// Sets the file that the driver opens next; its name is ignored. A failed read ends the process
// with kExitCannotRead.
void read_from_descriptor(int fd, uint64_t file_bytes);

}  // namespace ferry::hdf5
