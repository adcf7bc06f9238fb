// check() turns the untrusted description of an HDF5 file into tensors that can be read. It applies
// the rules H1 to H13 of hdf5.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "formats/hdf5/description.h"

namespace ferry::hdf5 {

struct CheckedTensor {
  TensorEntry
      entry;  // `offset` is the position of the first stored byte, or 0 if no byte is stored
  bool big_endian = false;
  Layout layout = Layout::kContiguous;  // contiguous, compact or chunked
  std::vector<std::byte> inline_bytes;  // all bytes of a compact tensor
  // The little-endian value of elements that are not stored: of every element if the layout is
  // contiguous, of elements in no chunk if it is chunked. Empty if every element is stored.
  std::vector<std::byte> fill;
  std::vector<uint64_t> chunk_dims;  // empty unless chunked
  std::vector<Filter> filters;       // in the order in which the writer applied them
  std::vector<Chunk> chunks;         // in row-major order of their coordinates
};

// The largest total size of the unfiltered chunks that one row needs. They are kept in memory while
// rows are read in order.
inline constexpr uint64_t kMaxHeldBytes = uint64_t{64} << 20;

struct CheckedFile {
  std::vector<CheckedTensor> tensors;  // in ascending order of offset, then size, then name
  std::vector<Attribute> attributes;
  uint64_t optimizer_bytes = 0;  // left out by rule H12
};

// Checks a description. `base` is the file offset of the superblock; addresses of objects count
// from it. `name` begins the messages. `keras` says that the file is known to be part of a Keras
// checkpoint. kBadInput or kUnsupported by the rules of hdf5.h.
Result<CheckedFile> check(Description description, uint64_t base, uint64_t file_bytes,
                          const std::string& name, bool keras = false);

}  // namespace ferry::hdf5
