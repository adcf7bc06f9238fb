#include "formats/hdf5/hdf5.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/checked.h"
#include "core/text.h"
#include "formats/hdf5/check.h"
#include "formats/hdf5/chunks.h"
#include "formats/hdf5/reader_process.h"

namespace ferry::formats {
namespace {

constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
constexpr uint64_t kFirstUserBlock = 512;

// An honest walk takes milliseconds for each MiB of headers; of large files few are headers.
hdf5::ConfinedLimits limits_for(uint64_t file_bytes) {
  constexpr uint64_t kLeast = 700, kMost = 20'000;
  return {.memory_bytes = uint64_t{64} << 20,
          .cpu_milliseconds = std::min(kLeast + (file_bytes >> 20) * 100, kMost),
          .answer_bytes = hdf5::kMaxMessageBytes};
}

class FileSource final : public Hdf5Source {
 public:
  explicit FileSource(std::string path) : path_(std::move(path)) {}

  Status add(const CheckpointFile& file, bool keras);

  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status check_unchanged() const override;
  const std::vector<hdf5::Attribute>& attributes() const override { return attributes_; }
  uint64_t optimizer_bytes() const override { return optimizer_bytes_; }

 private:
  Status read_swapped(const InputFile& input, const TensorEntry& entry, uint64_t offset,
                      std::span<std::byte> out) const;

  std::string path_;
  std::vector<InputFile> inputs_;
  std::vector<SourceFile> files_;  // parallel to inputs_
  std::vector<TensorEntry> entries_;
  std::vector<hdf5::CheckedTensor> tensors_;  // parallel to entries_
  std::vector<hdf5::Attribute> attributes_;
  uint64_t optimizer_bytes_ = 0;
  mutable hdf5::ChunkReader chunks_;
};

// Where the superblock begins: at 0, or after a user block of 512, 1024, 2048, ... bytes.
Result<bool> has_signature(const InputFile& file, uint64_t at) {
  std::array<std::byte, kSignature.size()> start;
  if (!range_inside(at, start.size(), file.size())) return false;
  FERRY_RETURN_IF_ERROR(file.read_at(at, start));
  return std::memcmp(start.data(), kSignature.data(), start.size()) == 0;
}

Result<std::optional<uint64_t>> find_superblock(const InputFile& file) {
  for (uint64_t at = 0; range_inside(at, kSignature.size(), file.size());
       at = at == 0 ? kFirstUserBlock : 2 * at) {
    if (FERRY_TRY(has_signature(file, at))) return at;
  }
  return std::nullopt;
}

Result<std::string> describe(const InputFile& input, const std::string& shown) {
  const InputFile::Descriptor descriptor = FERRY_TRY(input.descriptor());
  return hdf5::describe_confined(shown, descriptor.fd(), input.size(), limits_for(input.size()));
}

Status FileSource::add(const CheckpointFile& file, bool keras) {
  const std::string shown = printable(file.path);
  InputFile input = FERRY_TRY(InputFile::open(file.path));
  const auto base = FERRY_TRY(find_superblock(input));
  if (!base) return bad_input(fmt::format("{}: no HDF5 signature", shown));
  const std::string message = FERRY_TRY(describe(input, shown));
  const auto bytes = std::as_bytes(std::span(message));
  hdf5::Description description = FERRY_TRY(hdf5::decode(bytes, shown));
  hdf5::CheckedFile checked =
      FERRY_TRY(hdf5::check(std::move(description), *base, input.size(), shown, keras));
  for (hdf5::CheckedTensor& tensor : checked.tensors) {
    FERRY_RETURN_IF_ERROR(hdf5::check_sums(input, tensor));
    if (tensor.big_endian) {  // of compact tensors; others have no bytes here
      hdf5::swap_elements(tensor.inline_bytes,
                          static_cast<size_t>(dtype_bytes(tensor.entry.dtype)));
    }
    tensor.entry.file = static_cast<uint32_t>(files_.size());
    entries_.push_back(tensor.entry);
    tensors_.push_back(std::move(tensor));
  }
  for (hdf5::Attribute& a : checked.attributes) attributes_.push_back(std::move(a));
  optimizer_bytes_ += checked.optimizer_bytes;
  files_.push_back({file.name, input.size(), {bytes.begin(), bytes.end()}});
  // What the library and the checks saw was one state of the file.
  FERRY_RETURN_IF_ERROR(input.check_unchanged());
  inputs_.push_back(std::move(input));
  return {};
}

// Whole elements are needed to reverse their bytes.
Status FileSource::read_swapped(const InputFile& input, const TensorEntry& entry, uint64_t offset,
                                std::span<std::byte> out) const {
  const auto size = static_cast<uint64_t>(dtype_bytes(entry.dtype));
  const uint64_t begin = offset / size * size;
  const uint64_t end = (offset + out.size() + size - 1) / size * size;
  std::vector<std::byte> whole(end - begin);
  FERRY_RETURN_IF_ERROR(input.read_at(entry.offset + begin, whole));
  hdf5::swap_elements(whole, size);
  std::memcpy(out.data(), whole.data() + (offset - begin), out.size());
  return {};
}

Status FileSource::read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  if (index >= entries_.size() || !range_inside(offset, out.size(), entries_[index].bytes)) {
    return fail(ErrorCode::kInternal,
                fmt::format("{}: read outside of a tensor", printable(path_)));
  }
  if (out.empty()) return {};
  const hdf5::CheckedTensor& tensor = tensors_[index];
  const InputFile& input = inputs_[tensor.entry.file];
  if (tensor.layout == hdf5::Layout::kCompact) {
    std::memcpy(out.data(), tensor.inline_bytes.data() + offset, out.size());
  } else if (tensor.layout == hdf5::Layout::kChunked) {
    FERRY_RETURN_IF_ERROR(chunks_.read(input, tensor, index, offset, out));
  } else if (!tensor.fill.empty()) {
    hdf5::fill_elements(out, offset, tensor.fill);
  } else if (tensor.big_endian) {
    FERRY_RETURN_IF_ERROR(read_swapped(input, tensor.entry, offset, out));
  } else {
    FERRY_RETURN_IF_ERROR(input.read_at(tensor.entry.offset + offset, out));
  }
  return input.check_unchanged();
}

Status FileSource::check_unchanged() const {
  for (const InputFile& input : inputs_) FERRY_RETURN_IF_ERROR(input.check_unchanged());
  return {};
}

}  // namespace

Result<bool> detect_hdf5(const InputFile& file) { return has_signature(file, 0); }

Result<std::unique_ptr<Hdf5Source>> open_hdf5(const std::vector<CheckpointFile>& files,
                                              const std::string& display_path, bool keras) {
  auto source = std::make_unique<FileSource>(display_path);
  for (const CheckpointFile& file : files) FERRY_RETURN_IF_ERROR(source->add(file, keras));
  if (files.size() > 1) FERRY_RETURN_IF_ERROR(check_unique_names(*source));
  return std::unique_ptr<Hdf5Source>(std::move(source));
}

}  // namespace ferry::formats
