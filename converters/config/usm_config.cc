#include <fmt/format.h>

#include "converters/config/config_parts.h"

namespace ferry::converters {
namespace {

// The most values of a table that a program holds.
constexpr int64_t kMostValues = int64_t{1} << 24;

}  // namespace

Status read_usm_widths(const JsonFields& fields, std::string_view heads_key, AudioConfig& audio) {
  const int64_t width = FERRY_TRY(fields.required("hidden_size", kSizeRange));
  audio.to_rows->width = width;
  audio.num_heads = FERRY_TRY(fields.required(heads_key, kHeadRange));
  audio.intermediate_size = 4 * width;
  if (width % audio.num_heads != 0) {
    return fields.bad(heads_key,
                      fmt::format("is {}, which does not divide {}", audio.num_heads, width));
  }
  audio.head_dim = width / audio.num_heads;
  if (width % 2 == 0) return {};
  return fields.error(ErrorCode::kUnsupported, "hidden_size",
                      fmt::format("is {}, an odd number", width));
}

Status check_usm_tables(const JsonFields& fields, const AudioConfig& audio) {
  const UsmAudioConfig& usm = *audio.usm;
  if (usm.context() * audio.to_rows->width > kMostValues) {
    return fields.bad("hidden_size",
                      fmt::format("is {}: too wide for chunks that attend to {} rows",
                                  audio.to_rows->width, usm.context()));
  }
  if (!usm.gemma3n) return {};
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t channels = i == 0 ? 1 : usm.channels[i - 1];
    const int64_t zeros = channels * (usm.gemma3n->kernels[i][0] - 1);
    if (zeros * usm.gemma3n->bins_behind(i, audio.mel_bins) <= kMostValues) continue;
    return fields.bad("sscp_conv_kernel_size",
                      fmt::format("begins a pair with {}: too many for {} channels",
                                  usm.gemma3n->kernels[i][0], channels));
  }
  return {};
}

}  // namespace ferry::converters
