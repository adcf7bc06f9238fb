// read_state_dict() returns the tensors that a pickle describes, checked against the storages of
// the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/strided.h"
#include "formats/torch/pickle.h"

namespace ferry::formats {

// A tensor that is a view of a storage.
struct TorchTensor {
  std::string name;  // valid UTF-8
  DType dtype;
  Shape shape;
  StridedPiece place;  // the elements in the storage that `tensor`, a StorageRecord::index, names
  uint64_t bytes = 0;  // size when contiguous
};

struct StorageRecord {
  size_t index;  // the caller's number for the storage
  uint64_t bytes;
};
// Storages by key. The key is the last component of the name of the storage's zip entry.
using StorageRecords = std::unordered_map<std::string_view, StorageRecord>;

// Returns the tensors in the order of the dict. kBadInput if all tensors, made contiguous, have
// more than `max_bytes` bytes.
Result<std::vector<TorchTensor>> read_state_dict(const Pickle& pickle,
                                                 const StorageRecords& storages, uint64_t max_bytes,
                                                 const std::string& name);

}  // namespace ferry::formats
