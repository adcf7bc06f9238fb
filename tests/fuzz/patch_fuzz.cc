// Input: a patch whose digest is made right first, so that everything behind it is reached. It is
// refused in one line, or its table has the properties that patch_file.h promises and is written as
// it was read. Every operation then makes its block of old bytes, or its payload is refused.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/checked.h"
#include "core/sha256.h"
#include "patch/blocks.h"
#include "patch/frames.h"
#include "patch/patch_file.h"
#include "tests/fuzz/require.h"

namespace ferry::patch_fuzz {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kMaxPayload = 1 << 20;

Bytes with_digest(const uint8_t* data, size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(data[i]);
  if (size < patch::kDigestBytes) return bytes;
  const size_t hashed = size - patch::kDigestBytes;
  const Digest digest = sha256(std::span(bytes).first(hashed));
  std::copy(digest.begin(), digest.end(), bytes.begin() + static_cast<ptrdiff_t>(hashed));
  return bytes;
}

void decode(const patch::Op& op, std::span<const std::byte> stored) {
  Bytes old, out(op.bytes);
  if (op.kind != patch::OpKind::kData) old.resize(op.bytes, std::byte{0x5a});
  (void)patch::decode_block(op, stored, old, out);
}

// Returns the bytes that all operations take from the patch.
uint64_t check_table(const patch::Table& table) {
  uint64_t payload = 0;
  for (const patch::NewFile& made : table.new_files) {
    uint64_t bytes = 0;
    for (const patch::Op& op : made.ops) {
      bytes += op.bytes;
      payload += op.stored;
      if (op.kind == patch::OpKind::kData) continue;
      require(op.old_file < table.old_files.size());
      require(range_inside(op.old_offset, op.bytes, table.old_files[op.old_file].bytes));
    }
    require(bytes == made.file.bytes);
  }
  return payload;
}

void check_table_bytes(std::span<const std::byte> bytes) {
  for (const uint64_t payload : {uint64_t{0}, uint64_t{100}, uint64_t{1} << 40}) {
    const auto table = patch::read_table(bytes, payload, "p");
    if (!table) {
      require_good_message(table.error());
      continue;
    }
    require(check_table(*table) == payload);
    const Bytes written = patch::write_table(*table);
    require(std::ranges::equal(written, bytes));
  }
}

void check_patch(const std::string& path) {
  const auto patch = patch::PatchFile::open(path, {});
  if (!patch) return require_good_message(patch.error());
  (void)check_table(patch->table());
  uint64_t offset = 0;
  for (const patch::NewFile& made : patch->table().new_files) {
    for (const patch::Op& op : made.ops) {
      Bytes stored(std::min(op.stored, kMaxPayload));
      require(patch->read_payload(offset, stored).has_value());
      if (op.kind != patch::OpKind::kCopy) decode(op, stored);
      offset += op.stored;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int descriptor = ::memfd_create("p", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  const Bytes bytes = with_digest(data, size);
  require(::ftruncate(descriptor, 0) == 0);
  require(::pwrite(descriptor, bytes.data(), size, 0) == static_cast<ssize_t>(size));
  check_patch(path);
  // Then the bytes count as a table, and as the payload of operations.
  check_table_bytes(bytes);
  for (const uint8_t width : {uint8_t{1}, uint8_t{2}, uint8_t{4}, uint8_t{8}}) {
    for (const auto kind : {patch::OpKind::kData, patch::OpKind::kDense, patch::OpKind::kSparse}) {
      decode({kind, width, 0, 64, 0, size}, bytes);
    }
  }
  return 0;
}

}  // namespace ferry::patch_fuzz
