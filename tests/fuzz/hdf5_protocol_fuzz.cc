// Input: the message of the confined HDF5 reader about a file of 64 KiB. The reader is assumed to
// be controlled by an attacker: accepted tensors must be readable within the file.

#include <algorithm>
#include <set>

#include "core/checked.h"
#include "formats/hdf5/check.h"
#include "formats/hdf5/description.h"
#include "tests/fuzz/require.h"

namespace ferry::hdf5::hdf5_protocol_fuzz {
namespace {

constexpr uint64_t kFileBytes = 65536;

void check_chunks(const CheckedTensor& tensor) {
  uint64_t chunk_bytes = static_cast<uint64_t>(dtype_bytes(tensor.entry.dtype));
  for (const uint64_t size : tensor.chunk_dims) chunk_bytes *= size;
  uint64_t elements = 0;  // of the tensor that the chunks hold
  for (const Chunk& chunk : tensor.chunks) {
    require(range_inside(chunk.address, chunk.bytes, kFileBytes));
    uint64_t held = 1;
    for (size_t i = 0; i < tensor.chunk_dims.size(); ++i) {
      const auto size = static_cast<uint64_t>(tensor.entry.shape[i]);
      require(chunk.coordinates[i] < size);
      held *= std::min(tensor.chunk_dims[i], size - chunk.coordinates[i]);
    }
    elements += held;
  }
  require(chunk_bytes <= uint64_t{64} << 20);
  const int64_t wanted = checked_numel(tensor.entry.shape).value_or(-1);
  const auto held_in_all = static_cast<int64_t>(elements);
  require(tensor.fill.empty() ? held_in_all == wanted : held_in_all < wanted);
}

void check_tensor(const CheckedTensor& tensor) {
  const TensorEntry& entry = tensor.entry;
  const auto count = checked_numel(entry.shape);
  require(count && entry.bytes == static_cast<uint64_t>(*count * dtype_bytes(entry.dtype)));
  const auto element = static_cast<size_t>(dtype_bytes(entry.dtype));
  require(tensor.fill.empty() || tensor.fill.size() == element);
  require(tensor.fill.empty() || entry.bytes <= uint64_t{64} * kFileBytes + (64 << 20));
  switch (tensor.layout) {
    case Layout::kContiguous:
      if (!tensor.fill.empty()) return;
      require(range_inside(entry.offset, entry.bytes, kFileBytes));
      return;
    case Layout::kCompact:
      require(tensor.inline_bytes.size() == entry.bytes);
      return;
    case Layout::kChunked:
      return check_chunks(tensor);
    default:
      require(false);
  }
}

void run(std::span<const std::byte> message) {
  auto description = decode(message, "f");
  if (!description) return require_good_message(description.error());
  const std::string again = encode(*description);
  require(decode(std::as_bytes(std::span(again)), "f").has_value());
  const auto file = check(*std::move(description), 0, kFileBytes, "f");
  if (!file) return require_good_message(file.error());
  std::set<std::string_view> names;
  for (const CheckedTensor& tensor : file->tensors) {
    require(names.insert(tensor.entry.name).second);
    check_tensor(tensor);
  }
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run(std::as_bytes(std::span(data, size)));
  return 0;
}

}  // namespace ferry::hdf5::hdf5_protocol_fuzz
