#include "formats/gguf/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/file.h"
#include "core/text.h"
#include "formats/file_tensor_source.h"
#include "formats/gguf/header.h"

namespace ferry::formats {
namespace {

// Blocks are read from the file in pieces of about this many bytes.
constexpr uint64_t kPieceBytes = uint64_t{64} << 10;

class GgufSource final : public FileTensorSource {
 public:
  GgufSource(std::string path, std::unique_ptr<InputFile> file, std::vector<GgufTensor> tensors,
             std::vector<std::byte> header);

 private:
  Status read_entry(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status read_blocks(size_t index, uint64_t offset, std::span<std::byte> out) const;

  std::vector<const GgufType*> types_;  // parallel to entries()
};

GgufSource::GgufSource(std::string path, std::unique_ptr<InputFile> file,
                       std::vector<GgufTensor> tensors, std::vector<std::byte> header)
    : FileTensorSource(std::move(path)) {
  add_file(base_name(this->path()), std::move(file), std::move(header));
  for (GgufTensor& tensor : tensors) {
    add_entry(std::move(tensor.entry));
    types_.push_back(tensor.type);
  }
}

// Values [offset, offset + out.size()) in bytes of f32, of a tensor that is stored in blocks.
Status GgufSource::read_blocks(size_t index, uint64_t offset, std::span<std::byte> out) const {
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
    FERRY_RETURN_IF_ERROR(FileTensorSource::read_entry(index, block * type.block_bytes, stored));
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

Status GgufSource::read_entry(size_t index, uint64_t offset, std::span<std::byte> out) const {
  return types_[index]->dequantize != nullptr ? read_blocks(index, offset, out)
                                              : FileTensorSource::read_entry(index, offset, out);
}

}  // namespace

Result<GgufFile> open_gguf(const std::string& path) {
  auto file = std::make_unique<InputFile>(FERRY_TRY(InputFile::open(path)));
  const GgufRead read = [&file](uint64_t offset, std::span<std::byte> out) {
    return file->read_at(offset, out);
  };
  GgufHeader header = FERRY_TRY(read_gguf_header(read, file->size(), printable(path)));
  GgufFile out;
  out.source = std::make_unique<GgufSource>(path, std::move(file), std::move(header.tensors),
                                            std::move(header.bytes));
  out.metadata =
      GgufMetadata(std::move(header.items), out.source->files().front().header, printable(path));
  return out;
}

}  // namespace ferry::formats
