#include "cli/decode_mode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "core/text.h"

namespace ferry::cli {

Result<runner::DecodeMode> parse_mode(const std::string& name) {
  const auto found = std::ranges::find(runner::kDecodeModeNames, name);
  if (found != std::end(runner::kDecodeModeNames)) {
    return static_cast<runner::DecodeMode>(found - std::begin(runner::kDecodeModeNames));
  }
  const std::string modes = fmt::format("{}", fmt::join(runner::kDecodeModeNames, ", "));
  return fail(
      ErrorCode::kUsage,
      name == "shift-pointer"
          ? fmt::format("--mode shift-pointer: there is no shift-pointer mode; modes are {}", modes)
          : fmt::format("--mode {}: expected one of {}", quoted(name), modes));
}

}  // namespace ferry::cli
