// Plans files as torch.save writes them: a zip archive of stored entries, whose pickle is a dict of
// tensors. torch.load(weights_only=True) reads them. What is planned is what is written, to the
// byte, and equal input gives equal bytes: there are no times and no random ids.
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
#include "core/shape.h"

namespace ferry::formats {

// A contiguous tensor, all of a storage. Tensors may share one.
struct TorchTensorSpec {
  std::string name;  // unique, valid UTF-8
  DType dtype;
  Shape shape;
  size_t storage = 0;  // index
};

struct TorchLayout {
  struct Storage {
    uint64_t offset = 0;  // in the file, a multiple of 64
    uint64_t bytes = 0;
    // Where the CRC-32 of its bytes belongs, four bytes, little-endian; zeros in `known`.
    std::array<uint64_t, 2> crc_places = {};
  };
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> known;  // offset, bytes; ascending
  std::vector<Storage> storages;
  uint64_t file_bytes = 0;
};

// kUnsupported for a dtype that has no storage class; kInternal where tensors of a storage differ
// in size, or a storage has none.
Result<TorchLayout> plan_torch(std::span<const TorchTensorSpec> tensors, size_t storages);

}  // namespace ferry::formats
