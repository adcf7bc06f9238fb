// The driver through which libhdf5 reads its file in the confined child (confined.h): bytes of a
// descriptor by offset, and nothing else.
#pragma once

#define H5_USE_110_API  // newer libraries keep the functions of 1.10 under their names
#include <hdf5.h>

#include <cstdint>

namespace ferry::hdf5 {

// The identifier of the driver, for H5Pset_driver; registered at the first call, which is for
// before the confinement.
hid_t descriptor_driver();

// The file that is opened next, whatever name it is opened by. Where a read fails the process ends
// with kExitCannotRead.
void read_from_descriptor(int fd, uint64_t file_bytes);

}  // namespace ferry::hdf5
