#include "dialects/gguf/file/gguf.h"

#include <fmt/format.h>

#include <utility>

#include "core/file.h"
#include "core/text.h"
#include "dialects/gguf/file/header.h"
#include "formats/checkpoint_file.h"
#include "formats/file_tensor_source.h"

namespace ferry::formats {
namespace {

class GgufSource final : public FileTensorSource {
 public:
  explicit GgufSource(std::string path) : FileTensorSource(std::move(path)) {}

  void add(std::unique_ptr<InputFile> file, GgufHeader& header) {
    std::string name = base_name(file->path());
    const uint32_t index = add_file(std::move(name), std::move(file), std::move(header.bytes));
    for (GgufTensor& tensor : header.tensors) {
      tensor.entry.file = index;
      add_entry(std::move(tensor.entry));
    }
  }
};

// Opens the files of one checkpoint in their order.
class Opener {
 public:
  explicit Opener(const OpenGgufPart& open_part) : open_part_(open_part) {}

  Result<GgufFile> run(InputFile first) {
    const std::string path = first.path();
    source_ = std::make_unique<GgufSource>(path);
    std::vector<GgufItem> items;
    const auto split = FERRY_TRY(add(std::move(first), items));
    if (split) FERRY_RETURN_IF_ERROR(add_others(path, *split));
    GgufFile out;
    out.metadata = GgufMetadata(std::move(items), source_->files().front().header, printable(path));
    out.source = std::move(source_);
    return out;
  }

 private:
  Result<std::optional<GgufSplit>> add(InputFile input, std::vector<GgufItem>& items) {
    auto file = std::make_unique<InputFile>(std::move(input));
    const std::string path = file->path();
    const GgufRead read = [&file](uint64_t offset, std::span<std::byte> out) {
      return file->read_at(offset, out);
    };
    GgufHeader header = FERRY_TRY(read_gguf_header(read, file->size(), printable(path)));
    const auto split =
        FERRY_TRY(gguf_split_of(GgufMetadata(header.items, header.bytes, printable(path)), path));
    items = std::move(header.items);
    source_->add(std::move(file), header);
    return split;
  }

  Status add_others(const std::string& path, const GgufSplit& first) {
    if (first.number != 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: number {} of {} files of a split checkpoint: give the first one",
                              printable(path), first.number + 1, first.count));
    }
    int64_t number = 0;
    for (const std::string& name : FERRY_TRY(gguf_later_parts(path, first.count))) {
      InputFile file = FERRY_TRY(open_part_(name));
      const std::string shown = printable(file.path());
      std::vector<GgufItem> items;
      const auto split = FERRY_TRY(add(std::move(file), items));
      ++number;
      if (split && split->number == number && split->count == first.count) continue;
      return bad_input(
          fmt::format("{}: does not say that it is number {} of {} files, as its name "
                      "does",
                      shown, number + 1, first.count));
    }
    if (std::ssize(source_->entries()) != first.tensors) {
      return bad_input(fmt::format("{}: the {} files have {} tensors, split.tensors.count is {}",
                                   printable(path), first.count, source_->entries().size(),
                                   first.tensors));
    }
    return check_unique_names(*source_);
  }

  const OpenGgufPart& open_part_;
  std::unique_ptr<GgufSource> source_;
};

}  // namespace

Result<GgufFile> open_gguf(InputFile file, const OpenGgufPart& open_part) {
  return Opener(open_part).run(std::move(file));
}

Result<GgufFile> open_gguf(const std::string& path) {
  const std::string folder = path.substr(0, path.size() - base_name(path).size());
  return open_gguf(FERRY_TRY(InputFile::open(path)),
                   [&](const std::string& name) { return InputFile::open(folder + name); });
}

}  // namespace ferry::formats
