#include "runner/padded_sounds.h"

#include <fmt/format.h>

#include <algorithm>

namespace ferry::runner {

Result<std::vector<float>> rows_of_sounds(const SoundSizes& sizes, std::span<const float> frames,
                                          std::span<const int64_t> shown,
                                          const EncodeFrames& encode) {
  const size_t size = shown.empty() ? 0 : frames.size() / shown.size();
  const int64_t all = sizes.mels > 0 ? static_cast<int64_t>(size) / sizes.mels : 0;
  const auto is_part = [&](int64_t count) { return count >= 1 && count <= all; };
  if (size * shown.size() != frames.size() || !std::ranges::all_of(shown, is_part)) {
    return fail(ErrorCode::kUsage, fmt::format("{} values are not the frames of {} sounds",
                                               frames.size(), shown.size()));
  }
  const bool heard =
      sizes.padded_rows > 0 && std::ranges::any_of(shown, [&](int64_t n) { return n < all; });
  if (heard && !sizes.is_causal) {
    return fail(ErrorCode::kUnsupported,
                "sounds of one prompt that are padded to the longest, which the model hears, and "
                "of whose rows the encoder hides some by a mask: not supported");
  }
  std::vector<float> rows, padding;
  if (heard) {  // behind the first row of this sound there is no other of its own
    const auto least = static_cast<size_t>(std::min(all, sizes.row_frames) * sizes.mels);
    padding = FERRY_TRY(encode(frames.first(least), /*aside=*/true));
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    const auto sound = frames.subspan(i * size, size);
    const auto own = static_cast<size_t>(shown[i] * sizes.mels);
    std::vector<float> made =
        FERRY_TRY(encode(sizes.padded_rows > 0 ? sound : sound.first(own), /*aside=*/false));
    if (heard && shown[i] < all) {
      const int64_t width = std::ssize(made) / sizes.padded_rows;
      const int64_t kept = (shown[i] + sizes.row_frames - 1) / sizes.row_frames * width;
      if (padding.size() != made.size()) {
        return fail(ErrorCode::kInternal, "sounds of one encoder have different numbers of rows");
      }
      for (int64_t at = kept; at < std::ssize(made); ++at) {
        made[static_cast<size_t>(at)] = padding[static_cast<size_t>(at)];
      }
    }
    rows.insert(rows.end(), made.begin(), made.end());
  }
  return rows;
}

}  // namespace ferry::runner
