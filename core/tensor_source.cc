#include "core/tensor_source.h"

#include <algorithm>

namespace ferry {

MemorySource::MemorySource(std::string name) : path_(std::move(name)) {
  files_.push_back({.name = path_});
}

void MemorySource::add_bytes(std::string name, DType dtype, Shape shape,
                             std::vector<std::byte> bytes) {
  entries_.push_back({.name = std::move(name),
                      .dtype = dtype,
                      .shape = std::move(shape),
                      .bytes = bytes.size(),
                      .offset = files_[0].bytes});
  files_[0].bytes += bytes.size();
  contents_.push_back(std::move(bytes));
}

Status MemorySource::read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  const std::vector<std::byte>& bytes = contents_[index];
  if (offset > bytes.size() || out.size() > bytes.size() - offset) {
    return fail(ErrorCode::kInternal, "read beyond a tensor in memory");
  }
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
  return {};
}

}  // namespace ferry
