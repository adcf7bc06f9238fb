// InputFile, and the decision which InputFiles have a descriptor.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <utility>

#include "core/file.h"
#include "core/result.h"
#include "core/text.h"

namespace ferry {
namespace {

// Linux transfers at most 2 GiB - 4 KiB per call anyway.
constexpr size_t kMaxRead = size_t{1} << 30;
constexpr size_t kLeastOpen = 4;

Status require_regular(const std::string& path, const struct stat& info) {
  if (S_ISREG(info.st_mode)) return {};
  const char* kind = S_ISDIR(info.st_mode)    ? "a directory"
                     : S_ISFIFO(info.st_mode) ? "a FIFO"
                     : S_ISSOCK(info.st_mode) ? "a socket"
                     : S_ISLNK(info.st_mode)  ? "a symbolic link"
                                              : "a device";
  return bad_input(fmt::format("{}: not a regular file but {}", printable(path), kind));
}

// Identifies a file and the state that it is in.
struct Identity {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t mtime_ns = 0, ctime_ns = 0;
  Identity() = default;
  explicit Identity(const struct stat& info)
      : device(info.st_dev),
        inode(info.st_ino),
        size(static_cast<uint64_t>(info.st_size)),
        mtime_ns(nanoseconds(info.st_mtim)),
        ctime_ns(nanoseconds(info.st_ctim)) {}
  bool operator==(const Identity&) const = default;

 private:
  static int64_t nanoseconds(const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
};

Failure changed(const std::string& path) {
  return fail(ErrorCode::kIo, fmt::format("{}: changed while it was being read", printable(path)));
}

struct OpenFile {
  UniqueFd fd;
  struct stat info {};
};

// A file to open: `file` is relative to the open directory `directory`. Messages name it `path`.
struct Place {
  int directory;
  const std::string& file;
  const std::string& path;
  InputFile::Links links;
};

// fstatat comes first, so that a device is never opened. O_NONBLOCK and fstat follow, because the
// path may name another file by the time of openat.
Result<OpenFile> open_regular(const Place& place) {
  const bool follow = place.links == InputFile::Links::kFollow;
  const std::string& path = place.path;
  OpenFile file;
  if (place.file.find('\0') != std::string::npos) {
    return bad_input(fmt::format("{}: a path cannot contain a NUL byte", printable(path)));
  }
  if (::fstatat(place.directory, place.file.c_str(), &file.info,
                follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0) {
    return os_error(path, "cannot open", errno);
  }
  FERRY_RETURN_IF_ERROR(require_regular(path, file.info));
  const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW);
  do {
    file.fd = UniqueFd(::openat(place.directory, place.file.c_str(), flags));
  } while (!file.fd.is_open() && errno == EINTR);
  if (!file.fd.is_open()) return os_error(path, "cannot open", errno);
  if (::fstat(file.fd.get(), &file.info) != 0) return os_error(path, "cannot examine", errno);
  FERRY_RETURN_IF_ERROR(require_regular(path, file.info));
  return file;
}

}  // namespace

struct InputFile::State {
  std::string path;
  Identity identity;
  UniqueFd fd;
  std::shared_ptr<const HugeMemory> memory;  // in place of a descriptor
  // The number of readers that use the descriptor now; -1 while there is no descriptor.
  std::atomic<int> users{0};
};

// The descriptors of all InputFiles, in the order in which they were opened. Descriptors that
// nobody uses can be closed to make room for others.
class OpenFiles {
 public:
  using State = InputFile::State;

  static OpenFiles& get() {
    static OpenFiles* files = new OpenFiles;  // outlives every InputFile
    return *files;
  }

  Result<std::unique_ptr<State>> open(const Place& place) {
    const std::lock_guard lock(mutex_);
    OpenFile opened = FERRY_TRY(open_with_room(place));
    std::unique_ptr<State> state(
        new State{place.path, Identity(opened.info), std::move(opened.fd), nullptr});
    open_.push_back(state.get());
    return state;
  }

  // Opens the descriptor if necessary. It stays open until release().
  Status acquire(State& state) {
    if (try_acquire(state)) return {};
    const std::lock_guard lock(mutex_);
    if (try_acquire(state)) return {};  // another thread has opened it meanwhile
    OpenFile opened =
        FERRY_TRY(open_with_room({AT_FDCWD, state.path, state.path, InputFile::Links::kFollow}));
    if (Identity(opened.info) != state.identity) return changed(state.path);
    state.fd = std::move(opened.fd);
    open_.push_back(&state);
    state.users.store(1, std::memory_order_release);
    return {};
  }

  static void release(State& state) { state.users.fetch_sub(1, std::memory_order_release); }

  void close(State& state) {
    const std::lock_guard lock(mutex_);
    if (state.users.load(std::memory_order_relaxed) < 0) return;
    open_.remove(&state);
    state.fd.reset();
  }

 private:
  static bool try_acquire(State& state) {
    int users = state.users.load(std::memory_order_relaxed);
    while (users >= 0) {
      if (state.users.compare_exchange_weak(users, users + 1, std::memory_order_acquire)) {
        return true;
      }
    }
    return false;
  }

  // InputFiles take at most half of the descriptors that the process may have.
  Result<OpenFile> open_with_room(const Place& place) {
    const size_t most = std::max(kLeastOpen, most_open_files() / 2);
    while (open_.size() >= most && close_one()) {
    }
    while (true) {
      errno = 0;
      auto opened = open_regular(place);
      if (opened || (errno != EMFILE && errno != ENFILE) || !close_one()) return opened;
    }
  }

  bool close_one() {
    for (auto it = open_.begin(); it != open_.end(); ++it) {
      int unused = 0;
      if (!(*it)->users.compare_exchange_strong(unused, -1, std::memory_order_acquire)) continue;
      (*it)->fd.reset();
      open_.erase(it);
      return true;
    }
    return false;
  }

  std::mutex mutex_;
  std::list<State*> open_;
};

InputFile::InputFile() = default;
InputFile::~InputFile() {
  if (state_) OpenFiles::get().close(*state_);
}
InputFile::InputFile(InputFile&& other) noexcept = default;
InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Result<InputFile> InputFile::open(const std::string& path, Links links) {
  return open_at(AT_FDCWD, path, path, links);
}

Result<InputFile> InputFile::open_at(int directory, const std::string& file,
                                     const std::string& path, Links links) {
  InputFile opened;
  opened.state_ = FERRY_TRY(OpenFiles::get().open({directory, file, path, links}));
  return opened;
}

InputFile InputFile::in_memory(std::shared_ptr<const HugeMemory> memory, std::string path) {
  InputFile file;
  Identity identity;
  identity.size = memory->bytes().size();
  file.state_.reset(new State{std::move(path), identity, UniqueFd(), std::move(memory)});
  return file;
}

uint64_t InputFile::size() const { return state_ ? state_->identity.size : 0; }

const std::string& InputFile::path() const {
  static const std::string none;
  return state_ ? state_->path : none;
}

const std::shared_ptr<const HugeMemory>& InputFile::memory() const {
  static const std::shared_ptr<const HugeMemory> none;
  return state_ ? state_->memory : none;
}

Result<InputFile::Descriptor> InputFile::descriptor() const {
  if (memory()) return os_error(path(), "cannot open", EBADF);
  FERRY_RETURN_IF_ERROR(OpenFiles::get().acquire(*state_));
  return Descriptor(state_.get());
}

InputFile::Descriptor::Descriptor(Descriptor&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)) {}
InputFile::Descriptor::~Descriptor() {
  if (state_ != nullptr) OpenFiles::release(*state_);
}
int InputFile::Descriptor::fd() const { return state_->fd.get(); }

Status InputFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size() || out.size() > size() - offset) {
    return fail(ErrorCode::kIo, fmt::format("{}: ends before offset {} + {}", printable(path()),
                                            offset, out.size()));
  }
  if (out.empty()) return {};
  if (const auto& memory = this->memory()) {
    std::memcpy(out.data(), memory->bytes().data() + offset, out.size());
    return {};
  }
  const Descriptor descriptor = FERRY_TRY(this->descriptor());
  while (!out.empty()) {
    const size_t want = std::min(out.size(), kMaxRead);
    const ssize_t got = ::pread(descriptor.fd(), out.data(), want, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_error(path(), fmt::format("cannot read at offset {}", offset), errno);
    if (got == 0) {
      return fail(ErrorCode::kIo, fmt::format("{}: ended early at offset {}, it was {} bytes long "
                                              "when it was opened",
                                              printable(path()), offset, size()));
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

Status InputFile::check_unchanged() const {
  if (memory()) return {};
  const Descriptor descriptor = FERRY_TRY(this->descriptor());
  struct stat info {};
  if (::fstat(descriptor.fd(), &info) != 0) return os_error(path(), "cannot examine", errno);
  if (Identity(info) == state_->identity) return {};
  return changed(path());
}

size_t most_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 2 * kLeastOpen;
  return static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

void raise_most_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace ferry
