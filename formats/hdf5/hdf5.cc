#include "formats/hdf5/hdf5.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <optional>

#include "core/checked.h"
#include "core/text.h"
#include "formats/file_tensor_source.h"
#include "formats/hdf5/check.h"
#include "formats/hdf5/chunks.h"
#include "formats/hdf5/reader_process.h"

namespace ferry::formats {
namespace {

constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
constexpr uint64_t kFirstUserBlock = 512;

// The walk of a valid file takes milliseconds for each MiB of headers, and large files have few
// headers.
hdf5::ConfinedLimits limits_for(uint64_t file_bytes) {
  constexpr uint64_t kLeast = 700, kMost = 20'000;
  return {.memory_bytes = uint64_t{64} << 20,
          .cpu_milliseconds = std::min(kLeast + (file_bytes >> 20) * 100, kMost),
          .answer_bytes = hdf5::kMaxMessageBytes};
}

class Hdf5Source final : public FileTensorSource {
 public:
  explicit Hdf5Source(std::string path) : FileTensorSource(std::move(path)) {}

  // Adds the file's attributes to `attributes`.
  Status add(CheckpointFile file, bool keras, KerasAttributes& attributes);

 private:
  Status read_entry(size_t index, uint64_t offset, std::span<std::byte> out) const override;
  Status read_swapped(size_t index, uint64_t offset, std::span<std::byte> out) const;

  std::vector<hdf5::CheckedTensor> tensors_;  // parallel to entries()
  mutable hdf5::ChunkReader chunks_;
};

// Returns whether a superblock begins at `at`: at 0, or after a user block of 512, 1024, 2048, ...
// bytes.
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

Status Hdf5Source::add(CheckpointFile file, bool keras, KerasAttributes& attributes) {
  auto input = std::make_unique<InputFile>(std::move(file.file));
  const std::string shown = printable(input->path());
  const auto base = FERRY_TRY(find_superblock(*input));
  if (!base) return bad_input(fmt::format("{}: no HDF5 signature", shown));
  const std::string message = FERRY_TRY(describe(*input, shown));
  const auto bytes = std::as_bytes(std::span(message));
  hdf5::Description description = FERRY_TRY(hdf5::decode(bytes, shown));
  hdf5::CheckedFile checked =
      FERRY_TRY(hdf5::check(std::move(description), *base, input->size(), shown, keras));
  for (hdf5::CheckedTensor& tensor : checked.tensors) {
    FERRY_RETURN_IF_ERROR(hdf5::check_sums(*input, tensor));
    if (tensor.big_endian) {  // only compact tensors have bytes here
      hdf5::swap_elements(tensor.inline_bytes,
                          static_cast<size_t>(dtype_bytes(tensor.entry.dtype)));
    }
    tensor.entry.file = static_cast<uint32_t>(files().size());
    add_entry(tensor.entry);
    tensors_.push_back(std::move(tensor));
  }
  std::ranges::move(checked.attributes, std::back_inserter(attributes.attributes));
  attributes.optimizer_bytes += checked.optimizer_bytes;
  // The library and the checks must have seen the same state of the file.
  FERRY_RETURN_IF_ERROR(input->check_unchanged());
  add_file(file.name, std::move(input), {bytes.begin(), bytes.end()});
  return {};
}

// Reads whole elements and reverses their bytes.
Status Hdf5Source::read_swapped(size_t index, uint64_t offset, std::span<std::byte> out) const {
  const auto size = static_cast<uint64_t>(dtype_bytes(entries()[index].dtype));
  const uint64_t begin = offset / size * size;
  const uint64_t end = (offset + out.size() + size - 1) / size * size;
  std::vector<std::byte> whole(end - begin);
  FERRY_RETURN_IF_ERROR(FileTensorSource::read_entry(index, begin, whole));
  hdf5::swap_elements(whole, size);
  std::memcpy(out.data(), whole.data() + (offset - begin), out.size());
  return {};
}

Status Hdf5Source::read_entry(size_t index, uint64_t offset, std::span<std::byte> out) const {
  const hdf5::CheckedTensor& tensor = tensors_[index];
  if (tensor.layout == hdf5::Layout::kCompact) {
    std::memcpy(out.data(), tensor.inline_bytes.data() + offset, out.size());
    return {};
  }
  if (tensor.layout == hdf5::Layout::kChunked) {
    return chunks_.read(input(tensor.entry.file), tensor, index, offset, out);
  }
  if (!tensor.fill.empty()) {
    hdf5::fill_elements(out, offset, tensor.fill);
    return {};
  }
  return tensor.big_endian ? read_swapped(index, offset, out)
                           : FileTensorSource::read_entry(index, offset, out);
}

}  // namespace

Result<bool> detect_hdf5(const InputFile& file) { return has_signature(file, 0); }

Result<Hdf5File> open_hdf5(std::vector<CheckpointFile> files, const std::string& display_path,
                           bool keras) {
  auto source = std::make_unique<Hdf5Source>(display_path);
  Hdf5File out;
  for (CheckpointFile& file : files) {
    FERRY_RETURN_IF_ERROR(source->add(std::move(file), keras, out.attributes));
  }
  if (files.size() > 1) FERRY_RETURN_IF_ERROR(check_unique_names(*source));
  out.source = std::move(source);
  return out;
}

}  // namespace ferry::formats
