#include "formats/safetensors/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "core/checked.h"
#include "core/file.h"
#include "core/text.h"
#include "formats/safetensors/header.h"

namespace ferry {
namespace {

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

// The bytes before the data: length and JSON.
Result<std::vector<std::byte>> read_header(const InputFile& input, const std::string& name) {
  std::array<std::byte, 64> buffer;
  const auto start = std::span(buffer).first(std::min<uint64_t>(buffer.size(), input.size()));
  FERRY_CHECK(input.read_at(0, start));
  const uint64_t json_bytes = FERRY_TRY(safetensors_header_bytes(start, input.size(), name));
  std::vector<std::byte> header(kSafetensorsPrefixBytes + json_bytes);
  FERRY_CHECK(input.read_at(0, header));
  return header;
}

Status SafetensorsSource::add(const SafetensorsFile& file) {
  const std::string shown = printable(file.path);
  InputFile input = FERRY_TRY(InputFile::open(file.path));
  std::vector<std::byte> header = FERRY_TRY(read_header(input, shown));
  const auto json = std::span(header).subspan(kSafetensorsPrefixBytes);
  std::vector<TensorEntry> entries = FERRY_TRY(
      parse_safetensors_header(json, input.size(), shown, static_cast<uint32_t>(files_.size())));
  files_.push_back({file.name, input.size(), std::move(header)});
  inputs_.push_back(std::move(input));
  if (entries_.empty()) {
    entries_ = std::move(entries);
  } else {
    std::move(entries.begin(), entries.end(), std::back_inserter(entries_));
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
  FERRY_CHECK(input.read_at(entry.offset + offset, out));
  return input.check_unchanged();
}

Status SafetensorsSource::check_unchanged() const {
  for (const InputFile& input : inputs_) FERRY_CHECK(input.check_unchanged());
  return {};
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_safetensors(const std::vector<SafetensorsFile>& files,
                                                       const std::string& display_path) {
  auto source = std::make_unique<SafetensorsSource>(display_path);
  for (const SafetensorsFile& file : files) FERRY_CHECK(source->add(file));
  if (files.size() > 1) FERRY_CHECK(check_unique_names(*source));
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace ferry
