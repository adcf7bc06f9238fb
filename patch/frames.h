// zstd frames whose size is known before they are decompressed. Private to patch/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ferry::patch {

// Appends one frame that states its size. The bytes depend on the version of libzstd and on nothing
// else.
void append_frame(std::span<const std::byte> bytes, std::vector<std::byte>& out);

struct Frame {
  std::span<const std::byte> stored;
  uint64_t bytes = 0;  // size that the frame states, not 0
};
// Takes the first frame from `rest`. nullopt if there is none, if it does not state its size, or if
// the size is 0.
std::optional<Frame> take_frame(std::span<const std::byte>& rest);

// Decompresses a frame to exactly `out`, which has frame.bytes bytes. False for a damaged frame.
bool decompress(const Frame& frame, std::span<std::byte> out);

}  // namespace ferry::patch
