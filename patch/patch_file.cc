#include "patch/patch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/interrupt.h"
#include "core/sha256.h"
#include "core/text.h"
#include "patch/frames.h"

namespace ferry::patch {
namespace {

constexpr uint64_t kPatchReadBytes = uint64_t{1} << 20;

void append(std::vector<std::byte>& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

uint64_t number_at(std::span<const std::byte> bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
  return value;
}

Failure wrong(const InputFile& file, const std::string& what) {
  return bad_input(fmt::format("{}: {}", printable(file.path()), what));
}

Status check_head(const InputFile& file) {
  const std::string shape = fmt::format("is not a patch: {} bytes", file.size());
  if (file.size() < kHeadBytes + kTailBytes) return wrong(file, shape);
  std::vector<std::byte> head(kHeadBytes);
  FERRY_RETURN_IF_ERROR(file.read_at(0, head));
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) {
    return wrong(file, "is not a patch: offset 0 does not have \"FERRYPAT\"");
  }
  const uint64_t version = number_at(head, kMagic.size(), 4);
  if (version == kVersion) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: a patch of version {}, and this program reads version {}",
                          printable(file.path()), version, kVersion));
}

Status check_digest(const InputFile& file, const ShowProgress& progress) {
  const uint64_t hashed = file.size() - kDigestBytes;
  Sha256 hash;
  std::vector<std::byte> buffer(std::min(kPatchReadBytes, hashed));
  for (uint64_t at = 0; at < hashed;) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const auto tile = std::span(buffer).first(std::min<uint64_t>(buffer.size(), hashed - at));
    FERRY_RETURN_IF_ERROR(file.read_at(at, tile));
    hash.update(tile);
    at += tile.size();
    if (progress) progress(at, hashed);
  }
  Digest stated;
  FERRY_RETURN_IF_ERROR(file.read_at(hashed, stated));
  if (hash.finish() == stated) return {};
  return wrong(file, "the patch is damaged or not whole: its SHA-256 differs");
}

Result<Table> read_stored_table(const InputFile& file) {
  const uint64_t end = file.size() - kTailBytes;
  std::vector<std::byte> tail(kTailBytes);
  FERRY_RETURN_IF_ERROR(file.read_at(end, tail));
  const uint64_t offset = number_at(tail, 0, 8), stored = number_at(tail, 8, 8);
  const uint64_t bytes = number_at(tail, 16, 8);
  if (offset < kHeadBytes || offset > end || stored != end - offset || stored > kMaxTableBytes ||
      bytes > kMaxTableBytes) {
    return wrong(file, fmt::format("offset {}: the table has a wrong place or size", end));
  }
  std::vector<std::byte> frame_bytes(stored);
  FERRY_RETURN_IF_ERROR(file.read_at(offset, frame_bytes));
  std::span<const std::byte> rest = frame_bytes;
  const auto frame = take_frame(rest);
  if (!frame || !rest.empty() || frame->bytes != bytes) {
    return wrong(file, fmt::format("offset {}: the table is not a zstd frame", offset));
  }
  std::vector<std::byte> table(bytes);
  if (!decompress(*frame, table)) {
    return wrong(file, fmt::format("offset {}: the table does not decompress", offset));
  }
  return read_table(table, offset - kHeadBytes, file.path());
}

}  // namespace

Result<PatchFile> PatchFile::open(const std::string& path, const ShowProgress& progress) {
  PatchFile patch;
  patch.file_ = FERRY_TRY(InputFile::open(path));
  FERRY_RETURN_IF_ERROR(check_head(patch.file_));
  FERRY_RETURN_IF_ERROR(check_digest(patch.file_, progress));
  patch.table_ = FERRY_TRY(read_stored_table(patch.file_));
  return patch;
}

std::vector<std::byte> PatchBytes::head() {
  std::vector<std::byte> out;
  for (const char c : kMagic) out.push_back(static_cast<std::byte>(c));
  append(out, kVersion, 4);
  append(out, 0, 4);
  return out;
}

std::vector<std::byte> PatchBytes::tail(uint64_t table_offset, uint64_t stored, uint64_t bytes) {
  std::vector<std::byte> out;
  append(out, table_offset, 8);
  append(out, stored, 8);
  append(out, bytes, 8);
  return out;
}

}  // namespace ferry::patch
