// Input: a whole GGUF file, adopted as a Hugging Face checkpoint.

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "converters/adapters/gguf/adopt.h"
#include "converters/config/model_config.h"
#include "core/checked.h"
#include "formats/gguf/header.h"
#include "tests/fuzz/require.h"

namespace ferry {
namespace {

constexpr uint64_t kReadBytes = 4096;  // of each tensor

class Memory : public TensorSource {
 public:
  Memory(const formats::GgufHeader& header, std::span<const std::byte> file) : file_(file) {
    for (const formats::GgufTensor& tensor : header.tensors) entries_.push_back(tensor.entry);
  }
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    require(index < entries_.size() && range_inside(offset, out.size(), entries_[index].bytes));
    std::ranges::copy(file_.subspan(entries_[index].offset + offset, out.size()), out.begin());
    return {};
  }

 private:
  std::span<const std::byte> file_;
  std::string path_ = "f";
  std::vector<SourceFile> files_ = {{"f", 0}};
  std::vector<TensorEntry> entries_;
};

void run(std::span<const std::byte> file) {
  const formats::GgufRead read = [file](uint64_t offset, std::span<std::byte> out) -> Status {
    if (!out.empty()) std::memcpy(out.data(), file.data() + offset, out.size());
    return {};
  };
  const auto header = formats::read_gguf_header(read, file.size(), "f");
  if (!header) return;
  const auto metadata = formats::GgufMetadata(header->items, header->bytes, "f").to_json();
  if (!metadata) return require_good_message(metadata.error());
  const Memory source(*header, file);
  const auto adopted = converters::adopt_gguf(source, *metadata, "", "");
  if (!adopted) return require_good_message(adopted.error());
  require(converters::parse_model_config(adopted->config, adopted->generation, "f").has_value());
  for (const converters::KeyedTensor& tensor : adopted->tensors.tensors) {
    const graph::RecipeOutput& made = tensor.recipe.output();
    const auto count = checked_numel(made.shape);
    require(count && made.bytes() == static_cast<uint64_t>(*count * dtype_bytes(made.dtype)));
    std::vector<std::byte> bytes(std::min(made.bytes(), kReadBytes));
    require(materialize(tensor.recipe, source, made.bytes() - bytes.size(), bytes).has_value());
  }
}

}  // namespace
}  // namespace ferry

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ferry::run(std::as_bytes(std::span(data, size)));
  return 0;
}
