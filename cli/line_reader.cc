#include "cli/line_reader.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "core/interrupt.h"
#include "core/result.h"

namespace ferry::cli {
namespace {

constexpr const char* kName = "standard input";
constexpr int kPollMilliseconds = 100;  // longest time until a signal before poll() is noticed

}  // namespace

// Waits with poll() first, because a signal does not end a read() (SA_RESTART).
Status LineReader::read_more(int milliseconds) {
  FERRY_RETURN_IF_ERROR(check_interrupt());
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  const int ready = ::poll(&input, 1, milliseconds);
  if (ready < 0 && errno != EINTR) return os_error(kName, "cannot read", errno);
  if (ready <= 0) return {};
  std::array<char, 65536> bytes;
  const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (count < 0 && errno != EINTR && errno != EAGAIN) {
    return os_error(kName, "cannot read", errno);
  }
  if (count == 0) at_end_ = true;
  if (count > 0) buffer_.append(bytes.data(), static_cast<size_t>(count));
  return {};
}

std::string LineReader::take(size_t length) {
  std::string line = buffer_.substr(0, length);
  buffer_.erase(0, length + 1);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

Result<bool> LineReader::ready() {
  while (buffer_.find('\n') == buffer_.npos && !at_end_ && buffer_.size() <= kMaxLineBytes) {
    const size_t before = buffer_.size();
    FERRY_RETURN_IF_ERROR(read_more(/*milliseconds=*/0));
    if (buffer_.size() == before && !at_end_) return false;
  }
  return true;
}

Result<std::optional<std::string>> LineReader::next() {
  while (true) {
    const size_t end = buffer_.find('\n');
    if (end != buffer_.npos) return take(end);
    if (buffer_.size() > kMaxLineBytes) {
      return bad_input(fmt::format("{}: a line has more than {} bytes", kName, kMaxLineBytes));
    }
    if (at_end_) break;
    FERRY_RETURN_IF_ERROR(read_more(kPollMilliseconds));
  }
  if (buffer_.empty()) return std::optional<std::string>();
  return take(buffer_.size());
}

Result<std::string> LineReader::rest(size_t limit) {
  while (!at_end_) {
    if (buffer_.size() > limit) {
      return bad_input(fmt::format("{}: more than {} bytes", kName, limit));
    }
    FERRY_RETURN_IF_ERROR(read_more(kPollMilliseconds));
  }
  return std::exchange(buffer_, {});
}

}  // namespace ferry::cli
