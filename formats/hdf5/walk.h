// The walk through an HDF5 file with libhdf5: with its driver (descriptor_driver.h) all of the
// project that uses the library, in functions that run only in a confined child (confined.h).
//
// Hard links are followed, depth first in the order of names; no other link is. A group is visited
// once however many names it has, so that cycles end. No element is read, but those of datasets
// whose bytes are in their header (compact) and of a few text attributes that Keras writes.
#pragma once

#include <cstdint>

#include "formats/hdf5/description.h"

namespace ferry::hdf5 {

// Loads what the library needs of the system; before the confinement.
void prepare_walk();

// The file behind `fd`, of `file_bytes` bytes. Where the library refuses something, or a bound is
// exceeded, the walk ends with a Trouble.
Description walk(int fd, uint64_t file_bytes);

}  // namespace ferry::hdf5
