#include "batch/state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/directory.h"
#include "core/file.h"
#include "core/result.h"
#include "core/text.h"

namespace ferry::batch {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

// Returns 0 or an errno.
int write_and_close(UniqueFd fd, std::string_view text, Durable durable) {
  int problem = 0;
  while (!text.empty() && problem == 0) {
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      problem = errno;
    }
  }
  if (problem == 0 && durable == Durable::kContents && ::fsync(fd.get()) != 0) problem = errno;
  if (fd.close() != 0 && problem == 0) problem = errno;
  return problem;
}

double file_seconds(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Status write_small_file(const std::string& path, const std::string& temporary,
                        std::string_view text, Durable durable) {
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.is_open()) return os_error(temporary, "cannot create", errno);
  if (const int problem = write_and_close(std::move(fd), text, durable); problem != 0) {
    ::unlink(temporary.c_str());
    return os_error(temporary, "cannot write", problem);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return os_error(path, "cannot rename to it", errno);
  }
  return {};
}

Result<std::optional<std::string>> read_small_file(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 && errno == ENOENT) return std::optional<std::string>();
  std::string text = FERRY_TRY(read_text_file(path, kMaxBytes));
  // A file that was written with Durable::kNo can be empty after a power failure.
  return text.empty() ? std::optional<std::string>() : std::optional<std::string>(std::move(text));
}

Status make_directories(const std::string& path) {
  std::error_code problem;
  std::filesystem::create_directories(path, problem);
  if (problem) return os_error(path, "cannot create", problem.value());
  return {};
}

bool touch(const std::string& path) {
  // A null pointer makes the file server set its own time. Explicit times would be of this host's
  // clock.
  return ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0;
}

std::optional<double> seconds_since_touch(const std::string& path, const std::string& beside) {
  struct stat then = {}, now = {};
  if (::stat(path.c_str(), &then) != 0) return std::nullopt;
  if (!touch(beside) || ::stat(beside.c_str(), &now) != 0) return std::nullopt;
  return file_seconds(now.st_mtim) - file_seconds(then.st_mtim);
}

namespace {

constexpr const char* kStartedFile = "started.json";
constexpr const char* kResultFile = "result.json";
constexpr const char* kConvertedFile = "converted";
constexpr const char* kTemporaryFile = "new";
constexpr const char* kDoneTemporaryFile = "done.new";

std::optional<uint64_t> number_of(const std::string& name) {
  uint64_t number = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, number);
  if (error != std::errc() || rest != end || name.starts_with('0')) return std::nullopt;
  return number;
}

std::string_view trimmed(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace

std::string State::attempt_path(const std::string& id, uint64_t number,
                                const std::string& file) const {
  return fmt::format("{}/attempts/{}/{}/{}", directory_, id, number, file);
}

std::string State::done_path(const std::string& id) const {
  return fmt::format("{}/done/{}.json", directory_, id);
}

Status State::prepare() const {
  for (const char* folder : {"done", "attempts", "claims"}) {
    FERRY_RETURN_IF_ERROR(make_directories(fmt::format("{}/{}", directory_, folder)));
  }
  return {};
}

Result<std::optional<AttemptResult>> State::done(const std::string& id) const {
  const std::string path = done_path(id);
  const std::optional<std::string> text = FERRY_TRY(read_small_file(path));
  if (!text) return std::optional<AttemptResult>();
  return std::optional<AttemptResult>(FERRY_TRY(parse_result(*text, printable(path))));
}

Result<std::vector<uint64_t>> State::attempts(const std::string& id) const {
  std::vector<uint64_t> numbers;
  const std::string path = fmt::format("{}/attempts/{}", directory_, id);
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 && errno == ENOENT) return numbers;
  const Directory directory = FERRY_TRY(Directory::open(path));
  for (const std::string& name : FERRY_TRY(directory.names())) {
    if (const std::optional<uint64_t> number = number_of(name)) numbers.push_back(*number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

Result<LastAttempt> State::attempt(const std::string& id, uint64_t number) const {
  LastAttempt last{.number = number};
  const std::string started = attempt_path(id, number, kStartedFile);
  if (const auto text = FERRY_TRY(read_small_file(started))) {
    last.started = FERRY_TRY(parse_started(*text, printable(started)));
  }
  const std::string result = attempt_path(id, number, kResultFile);
  if (const auto text = FERRY_TRY(read_small_file(result))) {
    last.result = FERRY_TRY(parse_result(*text, printable(result)));
  }
  if (const auto text = FERRY_TRY(read_small_file(attempt_path(id, number, kConvertedFile)))) {
    last.converted = trimmed(*text);
  }
  return last;
}

Result<std::optional<LastAttempt>> State::last_attempt(const std::string& id) const {
  const std::vector<uint64_t> numbers = FERRY_TRY(attempts(id));
  if (numbers.empty()) return std::optional<LastAttempt>();
  return std::optional<LastAttempt>(FERRY_TRY(attempt(id, numbers.back())));
}

Result<uint64_t> State::begin_attempt(const std::string& id) const {
  const std::vector<uint64_t> numbers = FERRY_TRY(attempts(id));
  uint64_t number = 1;
  if (numbers.empty()) {
    FERRY_RETURN_IF_ERROR(make_directories(fmt::format("{}/attempts/{}", directory_, id)));
  } else {
    number = numbers.back() + 1;
    // The previous attempt may have been killed while it wrote these files.
    for (const char* file : {kTemporaryFile, kDoneTemporaryFile}) {
      ::unlink(attempt_path(id, numbers.back(), file).c_str());
    }
  }
  while (true) {
    const std::string path = attempt_path(id, number, "");
    if (::mkdir(path.c_str(), 0777) == 0) return number;
    if (errno != EEXIST) return os_error(path, "cannot create", errno);
    ++number;  // another process has taken this number
  }
}

Status State::write(const std::string& id, uint64_t number, const Started& started) const {
  return write_small_file(attempt_path(id, number, kStartedFile),
                          attempt_path(id, number, kTemporaryFile), to_json(started), Durable::kNo);
}

Status State::write_converted(const std::string& id, uint64_t number,
                              const std::string& sha256) const {
  return write_small_file(attempt_path(id, number, kConvertedFile),
                          attempt_path(id, number, kTemporaryFile), sha256 + "\n", Durable::kNo);
}

Status State::write(const AttemptResult& result) const {
  const std::string text = to_json(result);
  const bool done = result.outcome == Outcome::kDone;
  const std::string path = attempt_path(result.id, result.attempt, kResultFile);
  // Only successes are synced. A success that a power failure loses would leave a bundle that later
  // runs do not touch, because no record tells that the plan made it.
  FERRY_RETURN_IF_ERROR(write_small_file(path,
                                         attempt_path(result.id, result.attempt, kTemporaryFile),
                                         text, done ? Durable::kContents : Durable::kNo));
  if (!done) return {};
  // The record in done/ is a hard link, or a copy if the file system has no hard links.
  const std::string index = done_path(result.id);
  const std::string temporary = attempt_path(result.id, result.attempt, kDoneTemporaryFile);
  if (::link(path.c_str(), temporary.c_str()) != 0) {
    return write_small_file(index, temporary, text, Durable::kContents);
  }
  if (std::rename(temporary.c_str(), index.c_str()) == 0) return {};
  return os_error(index, "cannot rename to it", errno);
}

}  // namespace ferry::batch
