#include "formats/pte/flat_file.h"

#include <fmt/format.h>

#include <numeric>

#include "core/checked.h"

namespace ferry::wire {

AlignedBytes::AlignedBytes(std::span<const std::byte> bytes) : bytes_(bytes) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(std::max_align_t) == 0) return;
  copy_.resize(bytes.size() / sizeof(std::max_align_t) + 1);
  std::memcpy(copy_.data(), bytes.data(), bytes.size());
  bytes_ = {reinterpret_cast<const std::byte*>(copy_.data()), bytes.size()};
}

std::optional<SegmentProblem> find_segment_problem(const std::vector<Range>& segments,
                                                   uint64_t data_bytes) {
  std::vector<size_t> order(segments.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(segments[a].offset, a) < std::pair(segments[b].offset, b);
  });
  uint64_t end = 0;
  for (size_t i : order) {
    const uint64_t offset = segments[i].offset, size = segments[i].size;
    const auto problem = [&](const std::string& what) {
      return SegmentProblem{
          i, fmt::format("segment {} (offset {}, {} bytes) {}", i, offset, size, what)};
    };
    if (!range_inside(offset, size, data_bytes)) {
      return problem(fmt::format("exceeds the {} bytes of data", data_bytes));
    }
    if (size == 0) continue;
    if (offset < end) return problem("overlaps another");
    end = offset + size;
  }
  return std::nullopt;
}

std::vector<std::byte> insert_header(std::span<const uint8_t> flat, size_t header_bytes) {
  std::vector<std::byte> out(flat.size() + header_bytes);
  std::memcpy(out.data(), flat.data(), kPreambleBytes);
  std::memcpy(out.data() + kPreambleBytes + header_bytes, flat.data() + kPreambleBytes,
              flat.size() - kPreambleBytes);
  // The root offset is the only one that changes, because all other offsets are relative to their
  // own position.
  store(std::span(out), 0, static_cast<uint32_t>(load<uint32_t>(out, 0) + header_bytes));
  return out;
}

}  // namespace ferry::wire
