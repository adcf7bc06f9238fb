// Plans files as torch.save writes them: a zip archive of uncompressed entries, whose pickle is a
// dict of tensors. torch.load(weights_only=True) reads them. The written file equals the plan to
// the byte, and equal input gives equal bytes: the file has no times and no random ids.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"

namespace ferry::formats {

// A contiguous tensor that fills a storage. Several tensors may share one storage.
struct TorchTensorSpec {
  std::string name;  // unique, valid UTF-8
  DType dtype;
  Shape shape;
  size_t storage = 0;  // index of the storage
};

struct TorchLayout {
  struct Storage {
    uint64_t offset = 0;  // position in the file, a multiple of 64
    uint64_t bytes = 0;
    // The positions of the CRC-32 of the storage, four bytes, little-endian. They are zeros in
    // `known`.
    std::array<uint64_t, 2> crc_places = {};
  };
  std::vector<std::pair<uint64_t, std::vector<std::byte>>>
      known;  // offset and bytes, in ascending order
  std::vector<Storage> storages;
  uint64_t file_bytes = 0;
};

// kUnsupported for a dtype that has no storage class; kInternal if tensors of a storage differ in
// size, or if a storage has no tensor.
Result<TorchLayout> plan_torch(std::span<const TorchTensorSpec> tensors, size_t storages);

}  // namespace ferry::formats
