#include "formats/gguf/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/checked.h"
#include "core/file.h"
#include "core/text.h"
#include "formats/gguf/header.h"

namespace ferry::formats {
namespace {

// Blocks are read from the file in pieces of about this many bytes.
constexpr uint64_t kPieceBytes = uint64_t{64} << 10;

class FileSource final : public GgufSource {
 public:
  FileSource(std::string path, InputFile input, GgufHeader header);

  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status check_unchanged() const override { return input_.check_unchanged(); }
  const GgufMetadata& metadata() const override { return metadata_; }

 private:
  Status read_blocks(size_t index, uint64_t offset, std::span<std::byte> out) const;

  std::string path_;
  InputFile input_;
  std::vector<SourceFile> files_;
  std::vector<TensorEntry> entries_;
  std::vector<const GgufType*> types_;  // parallel to entries_
  GgufMetadata metadata_;
};

FileSource::FileSource(std::string path, InputFile input, GgufHeader header)
    : path_(std::move(path)), input_(std::move(input)) {
  for (GgufTensor& tensor : header.tensors) {
    entries_.push_back(std::move(tensor.entry));
    types_.push_back(tensor.type);
  }
  files_.push_back({base_name(path_), input_.size(), std::move(header.bytes)});
  metadata_ = GgufMetadata(std::move(header.items), files_.front().header, printable(path_));
}

// Values [offset, offset + out.size()) in bytes of f32, of a tensor that is stored in blocks.
Status FileSource::read_blocks(size_t index, uint64_t offset, std::span<std::byte> out) const {
  const GgufType& type = *types_[index];
  const uint64_t value_bytes = type.block_elements * sizeof(float);  // of a block
  uint64_t block = offset / value_bytes;
  uint64_t skip = offset % value_bytes;
  std::array<float, kMaxGgufBlockElements> values;
  std::vector<std::byte> stored;
  while (!out.empty()) {
    const uint64_t blocks = std::min((skip + out.size() + value_bytes - 1) / value_bytes,
                                     kPieceBytes / type.block_bytes);
    stored.resize(blocks * type.block_bytes);
    FERRY_RETURN_IF_ERROR(
        input_.read_at(entries_[index].offset + block * type.block_bytes, stored));
    for (uint64_t i = 0; i < blocks; ++i) {
      type.dequantize(stored.data() + i * type.block_bytes, values.data());
      const auto bytes = std::as_bytes(std::span(values)).first(value_bytes).subspan(skip);
      const size_t count = std::min(bytes.size(), out.size());
      std::memcpy(out.data(), bytes.data(), count);
      out = out.subspan(count);
      skip = 0;
    }
    block += blocks;
  }
  return {};
}

Status FileSource::read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  if (index >= entries_.size() || !range_inside(offset, out.size(), entries_[index].bytes)) {
    return fail(ErrorCode::kInternal,
                fmt::format("{}: read outside of a tensor", printable(path_)));
  }
  if (types_[index]->dequantize != nullptr) {
    FERRY_RETURN_IF_ERROR(read_blocks(index, offset, out));
  } else {
    FERRY_RETURN_IF_ERROR(input_.read_at(entries_[index].offset + offset, out));
  }
  return input_.check_unchanged();
}

}  // namespace

Result<std::unique_ptr<GgufSource>> open_gguf(const std::string& path) {
  InputFile input = FERRY_TRY(InputFile::open(path));
  const GgufRead read = [&input](uint64_t offset, std::span<std::byte> out) {
    return input.read_at(offset, out);
  };
  GgufHeader header = FERRY_TRY(read_gguf_header(read, input.size(), printable(path)));
  return std::unique_ptr<GgufSource>(
      std::make_unique<FileSource>(path, std::move(input), std::move(header)));
}

}  // namespace ferry::formats
