// MemorySource presents tensors in memory behind the interface of a checkpoint reader.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor_source.h"

namespace ferry {

// Thread-safe after the last tensor was added.
class MemorySource : public TensorSource {
 public:
  // Messages call the source `name`.
  explicit MemorySource(std::string name);

  template <class T>
  void add(std::string name, DType dtype, Shape shape, const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    add_bytes(std::move(name), dtype, std::move(shape), std::move(bytes));
  }

  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;

 private:
  void add_bytes(std::string name, DType dtype, Shape shape, std::vector<std::byte> bytes);

  std::string path_;
  std::vector<SourceFile> files_;
  std::vector<TensorEntry> entries_;
  std::vector<std::vector<std::byte>> contents_;
};

}  // namespace ferry
