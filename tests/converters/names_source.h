// A checkpoint of names and shapes only.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor_source.h"

namespace ferry::converters {

class Names : public TensorSource {
 public:
  explicit Names(std::vector<TensorEntry> entries) : entries_(std::move(entries)) {}
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  std::vector<TensorEntry>& edit() { return entries_; }
  Status read(size_t, uint64_t, std::span<std::byte>) const override {
    return fail(ErrorCode::kInternal, "mapping must not read weights");
  }

 private:
  std::string path_ = "checkpoint";
  std::vector<SourceFile> files_ = {{.name = "model.safetensors"}};
  std::vector<TensorEntry> entries_;
};

}  // namespace ferry::converters
