// read_state_dict() returns the tensors that a pickle describes, checked against the storages of
// its file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/shape.h"
#include "core/strided.h"
#include "formats/torch/pickle.h"

namespace ferry::formats {

// A view of a storage.
struct TorchTensor {
  std::string name;  // valid UTF-8
  DType dtype;
  Shape shape;
  StridedPiece
      place;  // its elements; `tensor` is StorageRecord::index, and they lie in the storage
  uint64_t bytes = 0;  // when contiguous
};

struct StorageRecord {
  size_t index;  // the caller's number for it
  uint64_t bytes;
};
// By key: the last component of the name of the storage's zip entry.
using StorageRecords = std::unordered_map<std::string_view, StorageRecord>;

// The tensors in the order of the dict. kBadInput if all tensors, made contiguous, have more than
// `max_bytes` bytes.
Result<std::vector<TorchTensor>> read_state_dict(const Pickle& pickle,
                                                 const StorageRecords& storages, uint64_t max_bytes,
                                                 const std::string& name);

}  // namespace ferry::formats
