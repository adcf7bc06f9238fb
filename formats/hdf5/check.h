// From the untrusted description of an HDF5 file to tensors that can be read: the rules H1 to H13
// of hdf5.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "formats/hdf5/description.h"

namespace ferry::hdf5 {

struct CheckedTensor {
  TensorEntry entry;  // its offset is that of the first stored byte; 0 where there is none
  bool big_endian = false;
  Layout layout = Layout::kContiguous;  // or compact or chunked
  std::vector<std::byte> inline_bytes;  // compact: all of them
  // Little-endian, of an element that is not stored: all of them where the layout is contiguous,
  // those in no chunk where it is chunked. Empty where everything is stored.
  std::vector<std::byte> fill;
  std::vector<uint64_t> chunk_dims;  // chunked
  std::vector<Filter> filters;       // in the order in which they were applied
  std::vector<Chunk> chunks;         // all of them, in row-major order of their places
};

// Of filtered chunks that rows have in common: as many are held while rows are read in order.
inline constexpr uint64_t kMaxHeldBytes = uint64_t{64} << 20;

struct CheckedFile {
  std::vector<CheckedTensor> tensors;  // by offset, then size, then name
  std::vector<Attribute> attributes;
  uint64_t optimizer_bytes = 0;  // left out by rule H12
};

// `base` is where the superblock is in the file: addresses of objects count from there. `name`
// begins the messages. `keras`: the file is one of a Keras checkpoint, whatever is in this one.
// kBadInput or kUnsupported.
Result<CheckedFile> check(Description description, uint64_t base, uint64_t file_bytes,
                          const std::string& name, bool keras = false);

}  // namespace ferry::hdf5
