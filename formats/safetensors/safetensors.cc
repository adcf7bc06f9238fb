#include "formats/safetensors/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "core/checked.h"
#include "core/file.h"
#include "core/text.h"
#include "formats/safetensors/header.h"

namespace ferry::formats {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{64} << 10;
// Those of real checkpoints are a hundredth of this; the format allows 100 MB.
constexpr uint64_t kMaxKeptHeaderBytes = uint64_t{16} << 20;

class SafetensorsSource final : public TensorSource {
 public:
  explicit SafetensorsSource(std::string path) : path_(std::move(path)) {}

  Status add(const SafetensorsFile& file);

  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status check_unchanged() const override;

 private:
  std::string path_;
  std::vector<InputFile> inputs_;
  std::vector<SourceFile> files_;  // parallel to inputs_
  std::vector<TensorEntry> entries_;
};

struct Header {
  std::vector<TensorEntry> entries;
  std::vector<std::byte> bytes;  // from the start of the file; none where they are too many to keep
};

// The JSON is read in pieces; nothing needs all of it at once.
Result<Header> read_header(const InputFile& input, const std::string& name, uint32_t file) {
  std::array<std::byte, 64> buffer;
  const auto start = std::span(buffer).first(std::min<uint64_t>(buffer.size(), input.size()));
  FERRY_RETURN_IF_ERROR(input.read_at(0, start));
  const uint64_t json_bytes = FERRY_TRY(safetensors_header_bytes(start, input.size(), name));
  const bool keep = json_bytes <= kMaxKeptHeaderBytes;
  Header header;
  if (keep) header.bytes.assign(start.begin(), start.begin() + kSafetensorsPrefixBytes);
  std::vector<std::byte> piece(kPieceBytes);
  uint64_t done = 0;
  const JsonPieces next = [&]() -> Result<std::string_view> {
    piece.resize(std::min(kPieceBytes, json_bytes - done));
    FERRY_RETURN_IF_ERROR(input.read_at(kSafetensorsPrefixBytes + done, piece));
    done += piece.size();
    if (keep) header.bytes.insert(header.bytes.end(), piece.begin(), piece.end());
    return std::string_view(reinterpret_cast<const char*>(piece.data()), piece.size());
  };
  header.entries = FERRY_TRY(parse_safetensors_header(next, json_bytes, input.size(), name, file));
  return header;
}

Status SafetensorsSource::add(const SafetensorsFile& file) {
  InputFile input = FERRY_TRY(InputFile::open(file.path));
  Header header =
      FERRY_TRY(read_header(input, printable(file.path), static_cast<uint32_t>(files_.size())));
  files_.push_back({file.name, input.size(), std::move(header.bytes)});
  inputs_.push_back(std::move(input));
  if (entries_.empty()) {
    entries_ = std::move(header.entries);
  } else {
    std::move(header.entries.begin(), header.entries.end(), std::back_inserter(entries_));
  }
  return {};
}

Status SafetensorsSource::read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  if (index >= entries_.size() || !range_inside(offset, out.size(), entries_[index].bytes)) {
    return fail(ErrorCode::kInternal,
                fmt::format("{}: read outside of a tensor", printable(path_)));
  }
  const TensorEntry& entry = entries_[index];
  const InputFile& input = inputs_[entry.file];
  FERRY_RETURN_IF_ERROR(input.read_at(entry.offset + offset, out));
  return input.check_unchanged();
}

Status SafetensorsSource::check_unchanged() const {
  for (const InputFile& input : inputs_) FERRY_RETURN_IF_ERROR(input.check_unchanged());
  return {};
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_safetensors(const std::vector<SafetensorsFile>& files,
                                                       const std::string& display_path) {
  auto source = std::make_unique<SafetensorsSource>(display_path);
  for (const SafetensorsFile& file : files) FERRY_RETURN_IF_ERROR(source->add(file));
  if (files.size() > 1) FERRY_RETURN_IF_ERROR(check_unique_names(*source));
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace ferry::formats
