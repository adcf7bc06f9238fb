// .ptd files (ExecuTorch FlatTensor, FlatBuffer identifier FT01) hold named constant tensors, and
// named data of delegates, outside of the program. This is a reader with full validation, and a
// planner for writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"

namespace ferry::ptd {

struct NamedTensor {
  std::string key;
  DType dtype;
  std::vector<int32_t> sizes;
  uint32_t segment = 0;  // several keys may share one segment (tied and identical tensors)
  // If false, these are bytes that only a delegate can read. The entry then has no layout in the
  // file, no dtype (kU8 here) and no sizes. No tensor of a program is found by its key.
  bool is_tensor = true;
};

struct Segment {
  uint64_t offset = 0;  // position in the file
  uint64_t size = 0;
};

struct DataFile {
  std::vector<NamedTensor> tensors;  // in file order; keys are unique
  std::vector<Segment> segments;
};

// `name` begins the messages.
Result<DataFile> read_data_file(std::span<const std::byte> file, const std::string& name);

struct Layout {
  std::vector<std::byte> head;    // all bytes before the first segment, padded
  std::vector<Segment> segments;  // positions in the file, aligned to 128; gaps are zero bytes
  uint64_t file_bytes = 0;
};

// Assigns a place to `segment_sizes[i]` bytes for each segment, and writes the header that
// describes the segments.
Result<Layout> plan_data_file(const std::vector<NamedTensor>& tensors,
                              const std::vector<uint64_t>& segment_sizes);

}  // namespace ferry::ptd
