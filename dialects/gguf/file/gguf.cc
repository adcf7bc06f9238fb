#include "dialects/gguf/file/gguf.h"

#include <fmt/format.h>

#include <utility>

#include "core/file.h"
#include "core/text.h"
#include "dialects/gguf/file/header.h"
#include "formats/file_tensor_source.h"

namespace ferry::formats {
namespace {

constexpr std::string_view kNumber = "split.no", kCount = "split.count",
                           kTensors = "split.tensors.count";
constexpr int64_t kMostFiles = 65535;  // the key is a u16

// Returns "m" for "m-00001-of-00003.gguf"; an empty text where the name is another one.
std::string stem_of(const std::string& name, size_t number, size_t count) {
  const std::string end = gguf_part_name("", number, count);
  if (!name.ends_with(end) || name.size() == end.size()) return {};
  return name.substr(0, name.size() - end.size());
}

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

Result<std::optional<GgufSplit>> gguf_split_of(const GgufMetadata& metadata,
                                               const std::string& path) {
  if (metadata.find(kCount) == nullptr) return std::optional<GgufSplit>();
  GgufSplit split;
  split.count = FERRY_TRY(metadata.integer(kCount));
  if (split.count == 0 || split.count == 1) return std::optional<GgufSplit>();
  split.number = FERRY_TRY(metadata.integer(kNumber));
  split.tensors = FERRY_TRY(metadata.integer(kTensors));
  if (split.count < 0 || split.count > kMostFiles || split.number < 0 ||
      split.number >= split.count || split.tensors < 0) {
    return bad_input(fmt::format("{}: {} {}, {} {} and {} {} are of no split checkpoint",
                                 printable(path), kNumber, split.number, kCount, split.count,
                                 kTensors, split.tensors));
  }
  return std::optional(split);
}

Result<std::vector<std::string>> gguf_later_parts(const std::string& first, int64_t count) {
  const auto files = static_cast<size_t>(count);
  const std::string stem = stem_of(base_name(first), 1, files);
  if (stem.empty()) {
    return bad_input(
        fmt::format("{}: the first of {} files of a checkpoint, whose name does not "
                    "end in {}",
                    printable(first), count, gguf_part_name("", 1, files)));
  }
  std::vector<std::string> names;
  for (size_t i = 2; i <= files; ++i) names.push_back(gguf_part_name(stem, i, files));
  return names;
}

std::string gguf_part_name(const std::string& stem, size_t number, size_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, number, count);
}

bool is_gguf_layout_key(std::string_view key) {
  return key == "general.alignment" || key == kNumber || key == kCount || key == kTensors;
}

bool is_gguf_split(const std::vector<std::string>& names) {
  const std::string stem = names.empty() ? std::string() : stem_of(names[0], 1, names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (stem.empty() || names[i] != gguf_part_name(stem, i + 1, names.size())) return false;
  }
  return !stem.empty();
}

Result<GgufFile> open_gguf(InputFile file, const OpenGgufPart& open_part) {
  return Opener(open_part).run(std::move(file));
}

Result<GgufFile> open_gguf(const std::string& path) {
  const std::string folder = path.substr(0, path.size() - base_name(path).size());
  return open_gguf(FERRY_TRY(InputFile::open(path)),
                   [&](const std::string& name) { return InputFile::open(folder + name); });
}

}  // namespace ferry::formats
