// The walk through an HDF5 file with libhdf5. Only this and the driver (descriptor_driver.h) use
// the library, in functions that run only in a confined child (confined.h).
//
// Hard links are followed, depth first in the order of names. Other links are not followed. A group
// is visited once however many names it has, so that cycles end. Elements are read only of datasets
// whose bytes are in their header (compact) and of a few text attributes that Keras writes.
#pragma once

#include <cstdint>

#include "formats/hdf5/description.h"

namespace ferry::hdf5 {

// Loads the system resources that the library needs. Must precede the confinement.
void prepare_walk();

// Walks through the file behind `fd`, which has `file_bytes` bytes. If the library reports an error
// or a bound is exceeded, the description ends with a Trouble.
Description walk(int fd, uint64_t file_bytes);

}  // namespace ferry::hdf5
