#include "formats/safetensors/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/file.h"
#include "core/text.h"
#include "formats/file_tensor_source.h"
#include "formats/safetensors/header.h"

namespace ferry::formats {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{64} << 10;
// Headers of real checkpoints have a hundredth of this size. The format allows 100 MB.
constexpr uint64_t kMaxKeptHeaderBytes = uint64_t{16} << 20;

class SafetensorsSource final : public FileTensorSource {
 public:
  explicit SafetensorsSource(std::string path) : FileTensorSource(std::move(path)) {}

  Status add(CheckpointFile file);
};

struct Header {
  std::vector<TensorEntry> entries;
  std::vector<std::byte>
      bytes;  // bytes from the start of the file; empty if there are too many to keep
};

// Reads the JSON in pieces, so that it is never in memory as a whole.
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

Status SafetensorsSource::add(CheckpointFile file) {
  auto input = std::make_unique<InputFile>(std::move(file.file));
  const auto number = static_cast<uint32_t>(files().size());
  Header header = FERRY_TRY(read_header(*input, printable(input->path()), number));
  add_file(file.name, std::move(input), std::move(header.bytes));
  for (TensorEntry& entry : header.entries) add_entry(std::move(entry));
  return {};
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_safetensors(std::vector<CheckpointFile> files,
                                                       const std::string& display_path) {
  auto source = std::make_unique<SafetensorsSource>(display_path);
  for (CheckpointFile& file : files) FERRY_RETURN_IF_ERROR(source->add(std::move(file)));
  if (files.size() > 1) FERRY_RETURN_IF_ERROR(check_unique_names(*source));
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace ferry::formats
