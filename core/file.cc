#include "core/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/huge_memory.h"
#include "core/result.h"
#include "core/text.h"

namespace ferry {
namespace {

// Linux transfers at most 2 GiB - 4 KiB per call anyway.
constexpr size_t kMaxWrite = size_t{1} << 30;
constexpr int kMaxTreeDepth = 32;
// For smaller files no space is reserved.
constexpr uint64_t kLeastReserved = uint64_t{1} << 16;

// On tmpfs, reserving space allocates all pages on one thread, which takes as long as writing them.
bool is_in_memory(int fd) {
  struct statfs info {};
  return ::fstatfs(fd, &info) == 0 && info.f_type == TMPFS_MAGIC;
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, uint64_t limit) {
  return read_text(FERRY_TRY(InputFile::open(path)), limit);
}

Result<std::string> read_text(const InputFile& file, uint64_t limit) {
  if (file.size() > limit) {
    return bad_input(fmt::format("{}: {} bytes, more than the {} that such a file may have",
                                 printable(file.path()), file.size(), limit));
  }
  std::string text(file.size(), '\0');
  FERRY_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span<char>(text))));
  return text;
}

MappedFile::~MappedFile() {
  if (data_ && !memory_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      memory_(std::move(other.memory_)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(memory_, other.memory_);
  std::swap(path_, other.path_);
  return *this;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  return map(FERRY_TRY(InputFile::open(path)));
}

Result<MappedFile> MappedFile::map(const InputFile& file) {
  MappedFile mapped;
  mapped.path_ = file.path();
  if (file.size() == 0) return mapped;  // an empty file cannot be mapped
  if (const auto& memory = file.memory()) {
    mapped.memory_ = memory;
    mapped.data_ = memory->bytes().data();
    mapped.size_ = memory->bytes().size();
    return mapped;
  }
  const InputFile::Descriptor descriptor = FERRY_TRY(file.descriptor());
  void* data = map_file(descriptor.fd(), file.size());
  if (data == MAP_FAILED) return os_error(file.path(), "cannot map", errno);
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.size_ = file.size();
  return mapped;
}

Result<OutputFile> OutputFile::create(const std::string& path, uint64_t size) {
  OutputFile file;
  file.path_ = path;
  do {
    file.fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  } while (!file.fd_.is_open() && errno == EINTR);
  if (!file.fd_.is_open()) return os_error(path, "cannot create", errno);
  Status extended = file.extend(size);
  if (extended) return file;
  ::unlink(path.c_str());
  return extended.pass();
}

Result<OutputFile> OutputFile::open_existing(const std::string& path) {
  OutputFile file;
  file.path_ = path;
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  do {
    file.fd_ = UniqueFd(::open(path.c_str(), kFlags));
  } while (!file.fd_.is_open() && errno == EINTR);
  if (!file.fd_.is_open()) return os_error(path, "cannot open", errno);
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) return os_error(path, "cannot examine", errno);
  if (S_ISREG(info.st_mode) && info.st_nlink == 1) return file;
  return fail(ErrorCode::kIo,
              fmt::format("{}: not a regular file of this name alone", printable(path)));
}

OutputFile OutputFile::adopt(UniqueFd fd, std::string path) {
  OutputFile file;
  file.fd_ = std::move(fd);
  file.path_ = std::move(path);
  return file;
}

OutputFile OutputFile::in_memory(std::shared_ptr<HugeMemory> memory, std::string path) {
  OutputFile file;
  file.memory_ = std::move(memory);
  file.path_ = std::move(path);
  return file;
}

Status OutputFile::extend(uint64_t size) const {
  if (memory_) {
    if (size == memory_->bytes().size()) return {};
    return os_error(path_, fmt::format("cannot extend to {} bytes", size), EFBIG);
  }
  int result;
  do {
    result = ::ftruncate(fd(), static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return os_error(path_, fmt::format("cannot extend to {} bytes", size), errno);
  if (size < kLeastReserved || is_in_memory(fd())) return {};
  do {
    result = ::fallocate(fd(), 0, 0, static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  // posix_fallocate is not used, because it writes zeros if the file system cannot reserve space.
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return os_error(path_, fmt::format("cannot reserve {} bytes", size), errno);
}

Result<uint64_t> OutputFile::size() const {
  if (memory_) return memory_->bytes().size();
  struct stat info {};
  if (::fstat(fd(), &info) != 0) return os_error(path_, "cannot examine", errno);
  return static_cast<uint64_t>(info.st_size);
}

Status OutputFile::write_at(uint64_t offset, std::span<const std::byte> data) const {
  if (memory_) {
    const std::span<std::byte> all = memory_->bytes();
    if (offset > all.size() || data.size() > all.size() - offset) {
      return os_error(path_, fmt::format("cannot write at offset {}", offset), EFBIG);
    }
    if (!data.empty()) std::memcpy(all.data() + offset, data.data(), data.size());
    return {};
  }
  while (!data.empty()) {
    const size_t want = std::min(data.size(), kMaxWrite);
    const ssize_t put = ::pwrite(fd(), data.data(), want, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return os_error(path_, fmt::format("cannot write at offset {}", offset), errno);
    if (put == 0) return os_error(path_, fmt::format("cannot write at offset {}", offset), ENOSPC);
    data = data.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return {};
}

Status OutputFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  if (memory_) {
    return InputFile::in_memory(memory_, path_).read_at(offset, out);
  }
  while (!out.empty()) {
    const size_t want = std::min(out.size(), kMaxWrite);
    const ssize_t got = ::pread(fd(), out.data(), want, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_error(path_, fmt::format("cannot read at offset {}", offset), errno);
    if (got == 0) {
      return fail(ErrorCode::kIo, fmt::format("{}: ends at offset {}", printable(path_), offset));
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

void OutputFile::start_writeback(uint64_t offset, uint64_t size) const {
  if (!synced_ || memory_) return;
  // An error is ignored: fsync writes what is still dirty, and reports errors.
  (void)::sync_file_range(fd(), static_cast<off_t>(offset), static_cast<off_t>(size),
                          SYNC_FILE_RANGE_WRITE);
}

Status OutputFile::sync() const {
  if (!synced_ || memory_) return {};
  int result;
  do {
    result = ::fsync(fd());
  } while (result != 0 && errno == EINTR);
  if (result != 0) return os_error(path_, "cannot sync", errno);
  return {};
}

Status OutputFile::sync_data() const {
  if (!synced_ || memory_) return {};
  int result;
  do {
    result = ::fdatasync(fd());
  } while (result != 0 && errno == EINTR);
  if (result != 0) return os_error(path_, "cannot sync", errno);
  return {};
}

Status OutputFile::sync_and_close() {
  Status synced = sync();
  if (memory_) return synced;
  const int closed = fd_.close();
  if (!synced) return synced;
  if (closed != 0 && errno != EINTR) return os_error(path_, "cannot close", errno);
  return {};
}

Status sync_directory(const std::string& path) {
  const std::string name = path.empty() ? "." : path;
  const UniqueFd fd(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) return os_error(name, "cannot open", errno);
  int result;
  do {
    result = ::fsync(fd.get());
  } while (result != 0 && errno == EINTR);
  // EINVAL says that the file system cannot sync directories.
  if (result != 0 && errno != EINVAL) return os_error(name, "cannot sync", errno);
  return {};
}

namespace {

Status remove_below(int parent, const std::string& name, const std::string& path, int depth);

Status remove_entries(UniqueFd fd, const std::string& path, int depth) {
  DIR* directory = ::fdopendir(fd.get());
  if (!directory) return os_error(path, "cannot list", errno);
  (void)fd.release();  // closedir() closes it
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
    status = remove_below(::dirfd(directory), name, fmt::format("{}/{}", path, name), depth);
  }
  ::closedir(directory);
  return status;
}

// Entries are removed by way of descriptors, so that a symbolic link that is put in place meanwhile
// is removed and not followed.
Status remove_below(int parent, const std::string& name, const std::string& path, int depth) {
  if (::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return os_error(path, "cannot remove", errno);
  if (depth == 0) return os_error(path, "cannot remove", ELOOP);
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd fd(::openat(parent, name.c_str(), kFlags));
  if (!fd.is_open()) return os_error(path, "cannot remove", errno);
  FERRY_RETURN_IF_ERROR(remove_entries(std::move(fd), path, depth - 1));
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return os_error(path, "cannot remove", errno);
  }
  return {};
}

}  // namespace

Status remove_tree(const std::string& path) {
  return remove_below(AT_FDCWD, path, path, kMaxTreeDepth);
}

namespace {

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Result<std::string> state_of(const InputFile& file) {
  FERRY_RETURN_IF_ERROR(file.check_unchanged());
  const InputFile::Descriptor descriptor = FERRY_TRY(file.descriptor());
  struct stat info {};
  if (::fstat(descriptor.fd(), &info) != 0) return os_error(file.path(), "cannot examine", errno);
  return fmt::format("inode {}, {} bytes, modified {}, changed {}", info.st_ino, info.st_size,
                     nanoseconds(info.st_mtim), nanoseconds(info.st_ctim));
}

}  // namespace ferry
