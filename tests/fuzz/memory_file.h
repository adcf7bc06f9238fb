// The tensors of a file in memory, and requirements on every weight that is made of them.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "converters/keys/keyed_tensors.h"
#include "core/checked.h"
#include "core/tensor_source.h"
#include "tests/fuzz/require.h"

namespace ferry {

class MemoryFile : public TensorSource {
 public:
  // The entries have their offsets in `bytes`, which must outlive this object.
  MemoryFile(std::vector<TensorEntry> entries, std::span<const std::byte> bytes)
      : bytes_(bytes), entries_(std::move(entries)) {}
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    require(index < entries_.size() && range_inside(offset, out.size(), entries_[index].bytes));
    std::ranges::copy(bytes_.subspan(entries_[index].offset + offset, out.size()), out.begin());
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
  std::string path_ = "f";
  std::vector<SourceFile> files_ = {{"f", 0}};
  std::vector<TensorEntry> entries_;
};

// Reads the end of a weight. Its shape gives its size.
inline Status read_end(const graph::Recipe& recipe, const TensorSource& source) {
  constexpr uint64_t kBytes = 4096;
  const graph::RecipeOutput& made = recipe.output();
  const auto count = checked_numel(made.shape);
  require(count && made.bytes() == static_cast<uint64_t>(*count * dtype_bytes(made.dtype)));
  std::vector<std::byte> bytes(std::min(made.bytes(), kBytes));
  return graph::materialize(recipe, source, made.bytes() - bytes.size(), bytes);
}

}  // namespace ferry
