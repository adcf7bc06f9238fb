#include "cli/present_time.h"

#include <array>
#include <ctime>

namespace ferry::cli {

text::chat::TimeText present_time() {
  return [](const std::string& format) -> Result<std::string> {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    if (localtime_r(&now, &local) == nullptr) return fail(ErrorCode::kIo, "the time is not known");
    std::array<char, 256> text{};
    // Nothing written: too long, or empty.
    const size_t size = std::strftime(text.data(), text.size(), format.c_str(), &local);
    if (size == 0 && !format.empty()) return bad_input("strftime_now: this format is too long");
    return std::string(text.data(), size);
  };
}

}  // namespace ferry::cli
