#include "formats/gguf/gguf.h"

#include <utility>

#include "core/file.h"
#include "core/text.h"
#include "formats/file_tensor_source.h"
#include "formats/gguf/header.h"

namespace ferry::formats {
namespace {

class GgufSource final : public FileTensorSource {
 public:
  GgufSource(std::string path, std::unique_ptr<InputFile> file, std::vector<GgufTensor> tensors,
             std::vector<std::byte> header);
};

GgufSource::GgufSource(std::string path, std::unique_ptr<InputFile> file,
                       std::vector<GgufTensor> tensors, std::vector<std::byte> header)
    : FileTensorSource(std::move(path)) {
  add_file(base_name(this->path()), std::move(file), std::move(header));
  for (GgufTensor& tensor : tensors) add_entry(std::move(tensor.entry));
}

}  // namespace

Result<GgufFile> open_gguf(const std::string& path) {
  return open_gguf(FERRY_TRY(InputFile::open(path)));
}

Result<GgufFile> open_gguf(InputFile input) {
  auto file = std::make_unique<InputFile>(std::move(input));
  const std::string path = file->path();
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
