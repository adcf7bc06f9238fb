#include "core/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/text.h"

namespace ferry {
namespace {

// Linux transfers at most 2 GiB - 4 KiB per call anyway.
constexpr size_t kMaxTransfer = size_t{1} << 30;
constexpr int kMaxTreeDepth = 32;

tl::unexpected<Error> os_error(const std::string& path, std::string_view what, int number) {
  const std::string reason = std::strerror(number);
  return fail(ErrorCode::kIo, fmt::format("{}: {}: {}", printable(path), what, reason));
}

Status require_regular(const std::string& path, const struct stat& info) {
  if (S_ISREG(info.st_mode)) return {};
  const char* kind = S_ISDIR(info.st_mode)    ? "a directory"
                     : S_ISFIFO(info.st_mode) ? "a FIFO"
                     : S_ISSOCK(info.st_mode) ? "a socket"
                                              : "a device";
  return bad_input(fmt::format("{}: not a regular file but {}", printable(path), kind));
}

int64_t mtime_of(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

struct OpenFile {
  int fd;
  struct stat info;
};

// stat first, so that a device is never opened at all; O_NONBLOCK and fstat after it, because the
// name may mean something else by then.
Result<OpenFile> open_regular(const std::string& path) {
  OpenFile file{};
  if (path.find('\0') != std::string::npos) {
    return bad_input(fmt::format("{}: a path cannot contain a NUL byte", printable(path)));
  }
  if (::stat(path.c_str(), &file.info) != 0) return os_error(path, "cannot open", errno);
  FERRY_CHECK(require_regular(path, file.info));
  do {
    file.fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  } while (file.fd < 0 && errno == EINTR);
  if (file.fd < 0) return os_error(path, "cannot open", errno);
  Status regular = {};
  if (::fstat(file.fd, &file.info) != 0) {
    regular = os_error(path, "cannot examine", errno);
  } else {
    regular = require_regular(path, file.info);
  }
  if (regular) return file;
  ::close(file.fd);
  return tl::unexpected<Error>(std::move(regular).error());
}

void close_quietly(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

}  // namespace

InputFile::~InputFile() { close_quietly(fd_); }

InputFile::InputFile(InputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      mtime_ns_(other.mtime_ns_),
      path_(std::move(other.path_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  if (this == &other) return *this;
  close_quietly(fd_);
  fd_ = std::exchange(other.fd_, -1);
  size_ = other.size_;
  mtime_ns_ = other.mtime_ns_;
  path_ = std::move(other.path_);
  return *this;
}

Result<InputFile> InputFile::open(const std::string& path) {
  const OpenFile opened = FERRY_TRY(open_regular(path));
  InputFile file;
  file.fd_ = opened.fd;
  file.size_ = static_cast<uint64_t>(opened.info.st_size);
  file.mtime_ns_ = mtime_of(opened.info);
  file.path_ = path;
  return file;
}

Status InputFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) {
    return fail(ErrorCode::kIo, fmt::format("{}: ends before offset {} + {}", printable(path_),
                                            offset, out.size()));
  }
  while (!out.empty()) {
    const size_t want = std::min(out.size(), kMaxTransfer);
    const ssize_t got = ::pread(fd_, out.data(), want, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_error(path_, fmt::format("cannot read at offset {}", offset), errno);
    if (got == 0) {
      return fail(ErrorCode::kIo, fmt::format("{}: ended early at offset {}, it was {} bytes long "
                                              "when it was opened",
                                              printable(path_), offset, size_));
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

Status InputFile::check_unchanged() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return os_error(path_, "cannot examine", errno);
  if (static_cast<uint64_t>(info.st_size) == size_ && mtime_of(info) == mtime_ns_) return {};
  return fail(ErrorCode::kIo, fmt::format("{}: changed while it was being read", printable(path_)));
}

Result<std::string> read_text_file(const std::string& path, uint64_t limit) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  if (file.size() > limit) {
    return bad_input(fmt::format("{}: {} bytes, more than the {} that such a file may have",
                                 printable(path), file.size(), limit));
  }
  std::string text(file.size(), '\0');
  FERRY_CHECK(file.read_at(0, std::as_writable_bytes(std::span<char>(text))));
  return text;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  MappedFile mapped;
  mapped.path_ = path;
  if (file.size() == 0) return mapped;  // an empty file cannot be mapped
  void* data = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (data == MAP_FAILED) return os_error(path, "cannot map", errno);
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.size_ = file.size();
  return mapped;
}

OutputFile::~OutputFile() { close_quietly(fd_); }

OutputFile::OutputFile(OutputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

Result<OutputFile> OutputFile::create(const std::string& path, uint64_t size) {
  OutputFile file;
  file.path_ = path;
  do {
    file.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file.fd_ < 0 && errno == EINTR);
  if (file.fd_ < 0) return os_error(path, "cannot create", errno);
  int result;
  do {
    result = ::ftruncate(file.fd_, static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    const int number = errno;
    ::unlink(path.c_str());
    return os_error(path, fmt::format("cannot extend to {} bytes", size), number);
  }
  return file;
}

Status OutputFile::write_at(uint64_t offset, std::span<const std::byte> data) const {
  while (!data.empty()) {
    const size_t want = std::min(data.size(), kMaxTransfer);
    const ssize_t put = ::pwrite(fd_, data.data(), want, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return os_error(path_, fmt::format("cannot write at offset {}", offset), errno);
    if (put == 0) return os_error(path_, fmt::format("cannot write at offset {}", offset), ENOSPC);
    data = data.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return {};
}

void OutputFile::start_writeback(uint64_t offset, uint64_t size) const {
  // Its failure changes nothing: fsync writes what is still dirty, and reports errors.
  (void)::sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(size),
                          SYNC_FILE_RANGE_WRITE);
}

Status OutputFile::sync_and_close() {
  int result;
  do {
    result = ::fsync(fd_);
  } while (result != 0 && errno == EINTR);
  const int sync_errno = result == 0 ? 0 : errno;
  // On Linux the descriptor is gone even when close() reports EINTR.
  const int closed = ::close(std::exchange(fd_, -1));
  if (sync_errno != 0) return os_error(path_, "cannot sync", sync_errno);
  if (closed != 0 && errno != EINTR) return os_error(path_, "cannot close", errno);
  return {};
}

Status sync_directory(const std::string& path) {
  const std::string name = path.empty() ? "." : path;
  int fd = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return os_error(name, "cannot open", errno);
  int result;
  do {
    result = ::fsync(fd);
  } while (result != 0 && errno == EINTR);
  const int sync_errno = errno;
  close_quietly(fd);
  if (result != 0) return os_error(name, "cannot sync", sync_errno);
  return {};
}

namespace {

Status remove_below(int parent, const std::string& name, const std::string& path, int depth);

Status remove_entries(int fd, const std::string& path, int depth) {
  DIR* directory = ::fdopendir(fd);
  if (!directory) {
    const int number = errno;
    ::close(fd);
    return os_error(path, "cannot list", number);
  }
  Status status = {};
  while (status) {
    errno = 0;
    const dirent* entry = ::readdir(directory);
    if (!entry) {
      if (errno != 0) status = os_error(path, "cannot list", errno);
      break;
    }
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    status = remove_below(::dirfd(directory), name, path + "/" + name, depth);
  }
  ::closedir(directory);
  return status;
}

// Works on descriptors, so that a symlink put in place meanwhile is removed and never followed.
Status remove_below(int parent, const std::string& name, const std::string& path, int depth) {
  if (::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return os_error(path, "cannot remove", errno);
  if (depth == 0) return os_error(path, "cannot remove", ELOOP);
  const int fd = ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return os_error(path, "cannot remove", errno);
  FERRY_CHECK(remove_entries(fd, path, depth - 1));
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return os_error(path, "cannot remove", errno);
  }
  return {};
}

}  // namespace

Status remove_tree(const std::string& path) {
  return remove_below(AT_FDCWD, path, path, kMaxTreeDepth);
}

}  // namespace ferry
