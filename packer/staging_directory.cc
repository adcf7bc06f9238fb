// Writes all or nothing on a POSIX file system: makes a sibling of the target, fills, syncs and
// renames it, and syncs the parent.
#include "packer/staging_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>  // renameat2
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "core/text.h"
#include "packer/manifest.h"

namespace ferry::packer {
namespace {

using DirectoryStream = std::unique_ptr<DIR, int (*)(DIR*)>;

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Failure usage(const std::string& path, std::string_view what) {
  return fail(ErrorCode::kUsage, fmt::format("{}: {}", printable(path), what));
}

Failure taken(const std::string& path, std::string_view what) {
  return fail(ErrorCode::kExists, fmt::format("{}: {}", printable(path), what));
}

Failure being_written(const std::string& target, const std::string& where) {
  return taken(target, fmt::format("another process is writing it (in {})", quoted(where, 200)));
}

// The siblings of the target NAME that this file makes:
//
//   .NAME.ferry-tmp-PID      a directory that a run is writing; PID is the id of its process
//   .NAME.ferry-stage-ID     a stage, which runs go on with
//   .NAME.ferry-new-NUMBER   an empty directory that a run has just made. Once the run has locked
//                            it, it gets one of the names above. NUMBER is random.
std::string staging_prefix(const std::string& name) { return "." + name + ".ferry-tmp-"; }
std::string stage_prefix(const std::string& name) { return "." + name + ".ferry-stage-"; }
std::string new_prefix(const std::string& name) { return "." + name + ".ferry-new-"; }

constexpr size_t kIdDigits = 16;
constexpr std::string_view kJournalName = "journal";
constexpr std::string_view kContentsName = "bundle";

// Serialises runs that look for each other in one parent directory, so that if two begin at once,
// one sees the other. The function does not wait for a process that holds the lock for longer.
// Without the lock, the worst result is that both runs stop.
DirectoryLock lock_parent(const std::string& parent) {
  constexpr int kTries = 20;  // together 0.2 s
  return DirectoryLock::take(parent, InputFile::Links::kRefuse, kTries);
}

DirectoryLock try_lock(const std::string& path) {
  return DirectoryLock::take(path, InputFile::Links::kRefuse);
}

// The owner of a directory that was found beside the target.
enum class Owner {
  kNobody,   // the directory was not made by Ferry
  kGone,     // the run has ended
  kWriting,  // a run holds the lock of the directory
  kUnknown,  // it is unknown whether the run has ended
};
struct Ownership {
  Owner owner = Owner::kNobody;
  DirectoryLock lock = {};  // lock of a directory whose run has ended
};

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Returns the process id in the name of a directory that is being written.
std::optional<pid_t> process_in(std::string_view digits) {
  pid_t pid = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  return pid > 0 ? std::optional(pid) : std::nullopt;
}

// Finds the owner of the directory `path` by its process and its lock. Process ids are not
// sufficient if containers share a directory, and locks are not sufficient on every file system. So
// an owner counts as gone only if both say so.
Ownership owner_of(const std::string& path, pid_t pid) {
  DirectoryLock lock = try_lock(path);
  if (!lock.is_taken()) return {Owner::kWriting};
  // A directory with our own process id was left by an earlier process of this id.
  const bool alive = pid != ::getpid() && (::kill(pid, 0) == 0 || errno != ESRCH);
  if (alive) return {Owner::kUnknown};
  return {Owner::kGone, std::move(lock)};
}

// Finds the owner of a stage. The name has no process id, so only the lock tells.
Ownership owner_of_stage(const std::string& path) {
  DirectoryLock lock = try_lock(path);
  if (!lock.is_taken()) return {Owner::kWriting};
  if (!lock.is_held()) return {Owner::kUnknown};
  return {Owner::kGone, std::move(lock)};
}

bool is_stage_id(std::string_view text) {
  return text.size() == kIdDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Directories beside the target that earlier runs have left.
class Remainders {
 public:
  Remainders(const std::string& parent, const std::string& name) : parent_(parent), name_(name) {}

  // Finds directories that no run holds. kExists if another process is writing the target.
  Status find(const std::string& target) {
    const DirectoryStream directory(::opendir(parent_.c_str()), &::closedir);
    if (!directory) return os_error(parent_, "cannot list", errno);
    while (const dirent* entry = ::readdir(directory.get())) {
      const std::string found = entry->d_name;
      if (found.starts_with(new_prefix(name_))) unused_.push_back(found);
      Ownership ownership = owner_of_entry(found);
      if (ownership.owner == Owner::kWriting) return being_written(target, found);
      if (ownership.owner == Owner::kGone) abandoned_.emplace(found, std::move(ownership.lock));
    }
    return {};
  }

  // Hands over the lock of an entry that find() has found; remove() then keeps the entry. Returns
  // an empty lock if there is no such entry.
  DirectoryLock take(const std::string& entry) {
    const auto found = abandoned_.find(entry);
    if (found == abandoned_.end()) return {};
    DirectoryLock lock = std::move(found->second);
    abandoned_.erase(found);
    return lock;
  }

  // Removes what find() has found. Without `stages`, stages that later runs could use are kept.
  Status remove(bool stages) {
    // Directories without a lock are empty. If a run has just made one, it makes another.
    for (const std::string& entry : unused_) (void)::rmdir((parent_ + "/" + entry).c_str());
    for (const auto& [entry, lock] : abandoned_) {
      const std::string path = parent_ + "/" + entry;
      const bool is_stage = entry.starts_with(stage_prefix(name_));
      if (is_stage && !stages && is_useful(path)) continue;
      FERRY_RETURN_IF_ERROR(remove_tree(path));
    }
    return {};
  }

 private:
  Ownership owner_of_entry(const std::string& entry) const {
    const std::string path = parent_ + "/" + entry;
    const std::string_view text = entry;
    if (text.starts_with(staging_prefix(name_))) {
      const auto pid = process_in(text.substr(staging_prefix(name_).size()));
      if (pid && is_directory(path)) return owner_of(path, *pid);
    }
    if (text.starts_with(stage_prefix(name_)) &&
        is_stage_id(text.substr(stage_prefix(name_).size())) && is_directory(path)) {
      return owner_of_stage(path);
    }
    return {};
  }

  static bool is_useful(const std::string& stage) {
    const std::string journal = fmt::format("{}/{}", stage, kJournalName);
    return ::access(journal.c_str(), F_OK) == 0 &&
           is_directory(fmt::format("{}/{}", stage, kContentsName));
  }

  const std::string& parent_;
  const std::string& name_;
  std::vector<std::string> unused_;                 // names that begin with new_prefix()
  std::map<std::string, DirectoryLock> abandoned_;  // by name
};

// Makes the directory `path`. It is locked before it gets this name, because other runs could take
// an unlocked directory for abandoned.
Result<DirectoryLock> make_locked(const std::string& parent, const std::string& name,
                                  const std::string& path) {
  constexpr int kTries = 5;
  std::random_device random;
  int number = 0;
  for (int tries = 0; tries < kTries; ++tries) {
    const std::string made =
        fmt::format("{}/{}{:08x}{:08x}", parent, new_prefix(name), random(), random());
    if (::mkdir(made.c_str(), 0777) != 0) return os_error(path, "cannot create", errno);
    DirectoryLock lock = try_lock(made);
    if (lock.is_taken() &&
        ::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) {
      return lock;
    }
    number = errno;
    // Some file systems do not support the flag. A plain rename replaces at most an empty
    // directory.
    if (lock.is_taken() && number == EINVAL && ::rename(made.c_str(), path.c_str()) == 0)
      return lock;
    (void)::rmdir(made.c_str());
    if (number != ENOENT) break;  // ENOENT: another run has removed it as a remainder
  }
  return os_error(path, "cannot create", number);
}

bool is_empty_directory(const std::string& path) {
  const DirectoryStream directory(::opendir(path.c_str()), &::closedir);
  if (!directory) return false;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (std::string_view(entry->d_name) != "." && std::string_view(entry->d_name) != "..") {
      return false;
    }
  }
  return true;
}

// Whether `path` is a directory that a conversion to another format has made, and not a home
// directory: it holds only regular files, with a config.json and weights, or an index of weights.
bool is_checkpoint(const std::string& path) {
  const DirectoryStream directory(::opendir(path.c_str()), &::closedir);
  if (!directory) return false;
  bool weights = false, config = false;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat info {};
    if (::lstat(fmt::format("{}/{}", path, name).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      return false;
    }
    config = config || name == "config.json";
    weights = weights || name.ends_with(".safetensors") || name.ends_with(".pth") ||
              name.ends_with(".gguf");
  }
  return weights && config;
}

Failure stays(const std::string& target, StagingDirectory::Kind kind) {
  return taken(target, kind == StagingDirectory::Kind::kBundle
                           ? "is neither a bundle nor empty, and is left alone"
                           : "is neither empty nor a checkpoint of files alone, and is left alone");
}

// Replaces only output of Ferry and empty directories, because a mistyped path must not cost a home
// directory.
Status check_replaceable(const std::string& target, const struct stat& info, bool overwrite,
                         StagingDirectory::Kind kind) {
  using Kind = StagingDirectory::Kind;
  struct stat behind {};
  if (S_ISLNK(info.st_mode) && ::stat(target.c_str(), &behind) == 0 && S_ISDIR(behind.st_mode)) {
    return taken(target, "is a symbolic link to a directory: name the directory itself");
  }
  if (!overwrite) {
    Failure exists =
        taken(target, kind == Kind::kBundle ? "exists already (overwrite replaces a bundle)"
                                            : "exists already (overwrite replaces it)");
    exists.error().field = "overwrite";
    return exists;
  }
  if (kind == Kind::kFile) {
    if (S_ISREG(info.st_mode)) return {};
    return taken(target, "exists and is not a regular file");
  }
  if (!S_ISDIR(info.st_mode)) return taken(target, "exists and is not a directory");
  if (is_empty_directory(target)) return {};
  if (kind == Kind::kCheckpoint && is_checkpoint(target)) return {};
  struct stat ignored {};
  for (const std::string_view name : {kManifestName, kPartName}) {
    const std::string path = fmt::format("{}/{}", target, name);
    if (kind == Kind::kBundle && ::lstat(path.c_str(), &ignored) == 0) return {};
  }
  return stays(target, kind);
}

Result<NewFolders> make_parent(const std::string& parent) {
  struct stat info {};
  if (::stat(parent.c_str(), &info) != 0) return NewFolders::make(parent);
  if (S_ISDIR(info.st_mode)) return NewFolders();
  return os_error(parent, "cannot hold the bundle", ENOTDIR);
}

// Returns the error for a finished output that cannot get its final name.
Failure no_name(const std::string& target, int number) {
  if (number == EEXIST || number == ENOTEMPTY) {
    return taken(target, "another process has made it meanwhile");
  }
  return os_error(target, "cannot be given its name", number);
}

// Returns lstat of `path`; nullopt if it does not exist.
Result<std::optional<struct stat>> look_at(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return std::optional(info);
  if (errno == ENOENT) return std::optional<struct stat>();
  return os_error(path, "cannot examine", errno);
}

}  // namespace

// The lock is a member, so it is held until the directory is removed.
StagingDirectory::~StagingDirectory() {
  if (!root_.empty() && !keep_) (void)remove_tree(root_);
}

StagingDirectory::StagingDirectory(StagingDirectory&& other) noexcept { *this = std::move(other); }

StagingDirectory& StagingDirectory::operator=(StagingDirectory&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(parent_, other.parent_);
  std::swap(root_, other.root_);
  std::swap(path_, other.path_);
  std::swap(kind_, other.kind_);
  std::swap(overwrite_, other.overwrite_);
  std::swap(keep_, other.keep_);
  std::swap(lock_, other.lock_);
  std::swap(made_parents_, other.made_parents_);
  return *this;
}

std::string StagingDirectory::parent_of(const std::string& target) {
  const std::string path = without_slashes(target);
  return parent_folder(path);
}

Result<StagingDirectory> StagingDirectory::create(const std::string& target, bool overwrite,
                                                  Kind kind) {
  return begin(target, overwrite, {}, kind);
}

Result<StagingDirectory> StagingDirectory::create_stage(const std::string& target, bool overwrite,
                                                        std::string_view id, Kind kind) {
  return begin(target, overwrite, id, kind);
}

Status StagingDirectory::check_target(const std::string& target, bool overwrite, Kind kind) {
  struct stat info {};
  const std::string path = without_slashes(target);
  if (::lstat(path.c_str(), &info) != 0) return {};
  return check_replaceable(path, info, overwrite, kind);
}

// `stage` is the id of a stage, or empty.
Result<StagingDirectory> StagingDirectory::begin(const std::string& target, bool overwrite,
                                                 std::string_view stage, Kind kind) {
  StagingDirectory staging;
  staging.kind_ = kind;
  staging.overwrite_ = overwrite;
  staging.target_ = without_slashes(target);
  staging.parent_ = parent_of(target);
  const std::string name = base_name(staging.target_);
  if (name.empty() || name == "." || name == ".." || name.find('\0') != std::string::npos) {
    return usage(target, kind == Kind::kFile ? "is not a name for a file"
                                             : "is not a name for a new directory");
  }
  staging.made_parents_ = FERRY_TRY(make_parent(staging.parent_));
  const DirectoryLock parent_lock = lock_parent(staging.parent_);
  Remainders remainders(staging.parent_, name);
  if (const auto existing = FERRY_TRY(look_at(staging.target_))) {
    Status replaceable = check_replaceable(staging.target_, *existing, overwrite, kind);
    if (!replaceable) {
      if (remainders.find(target)) (void)remainders.remove(/*stages=*/false);
      return replaceable.pass();
    }
  }
  FERRY_RETURN_IF_ERROR(remainders.find(target));
  DirectoryLock found = remainders.take(stage_prefix(name) + std::string(stage));
  FERRY_RETURN_IF_ERROR(remainders.remove(/*stages=*/true));
  FERRY_RETURN_IF_ERROR(stage.empty() ? staging.make_private(name)
                                      : staging.take_stage(name, stage, std::move(found)));
  return staging;
}

Status StagingDirectory::make_private(const std::string& name) {
  const std::string path = fmt::format("{}/{}{}", parent_, staging_prefix(name), ::getpid());
  lock_ = FERRY_TRY(make_locked(parent_, name, path));
  root_ = path_ = path;
  return {};
}

// `held` is the lock of a stage that an earlier run has left; otherwise empty.
Status StagingDirectory::take_stage(const std::string& name, std::string_view id,
                                    DirectoryLock held) {
  const std::string path = fmt::format("{}/{}{}", parent_, stage_prefix(name), id);
  if (!held.is_taken()) {
    held = is_directory(path) ? try_lock(path) : FERRY_TRY(make_locked(parent_, name, path));
  }
  struct stat named {
  }, locked{};
  if (!held.is_taken() || ::fstat(held.fd(), &locked) != 0 || ::lstat(path.c_str(), &named) != 0 ||
      named.st_ino != locked.st_ino) {
    return being_written(target_, path);
  }
  if (!held.is_held()) {
    return Failure(Error{
        .code = ErrorCode::kUnsupported,
        .message = fmt::format("{}: resume needs a file system with locks", printable(target_)),
        .field = "resume"});
  }
  if (locked.st_uid != ::geteuid()) {
    return fail(ErrorCode::kIo, fmt::format("{}: belongs to another user", printable(path)));
  }
  const std::string contents = fmt::format("{}/{}", path, kContentsName);
  if (::mkdir(contents.c_str(), 0777) != 0 && !is_directory(contents)) {
    return os_error(contents, "cannot create", errno);
  }
  root_ = path;
  path_ = contents;
  keep_ = ::access(journal_path().c_str(), F_OK) == 0;
  lock_ = std::move(held);
  return {};
}

std::string StagingDirectory::journal_path() const {
  return fmt::format("{}/{}", root_, kJournalName);
}

Status StagingDirectory::publish(bool synced) {
  FERRY_RETURN_IF_ERROR(synced ? sync_directory(path_) : Status());
  const auto existing = FERRY_TRY(look_at(target_));
  if (existing) {
    FERRY_RETURN_IF_ERROR(check_replaceable(target_, *existing, overwrite_, kind_));
  }
  if (kind_ == Kind::kFile) {
    FERRY_RETURN_IF_ERROR(publish_file(/*replace=*/existing.has_value()));
  } else if (existing) {
    FERRY_RETURN_IF_ERROR(exchange());
  } else {
    FERRY_RETURN_IF_ERROR(give_name());
  }
  FERRY_RETURN_IF_ERROR(synced ? sync_directory(parent_) : Status());
  FERRY_RETURN_IF_ERROR(synced ? made_parents_.sync() : Status());
  made_parents_.keep();
  keep_ = false;
  // Removes the old target and the journal. The journal goes first, so that a stage without one is
  // known to be useless. If removing fails, the next run tries again.
  if (root_.empty()) return {};
  if (path_ != root_) (void)::unlink(journal_path().c_str());
  FERRY_RETURN_IF_ERROR(remove_tree(root_));
  root_.clear();
  return {};
}

Status StagingDirectory::give_name() {
  int result = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE);
  // Some file systems do not support the flag. A plain rename never replaces a directory that holds
  // files.
  if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {
    result = ::rename(path_.c_str(), target_.c_str());
  }
  if (result != 0) return no_name(target_, errno);
  if (path_ == root_) root_.clear();
  return {};
}

// The directory that the file was written in is removed with this object.
Status StagingDirectory::publish_file(bool replace) {
  const std::string made = fmt::format("{}/{}", path_, base_name(target_));
  int result = ::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, target_.c_str(),
                           replace ? 0 : RENAME_NOREPLACE);
  // If the flag is not supported, a hard link refuses to replace a file.
  if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {
    result =
        replace ? ::rename(made.c_str(), target_.c_str()) : ::link(made.c_str(), target_.c_str());
  }
  return result == 0 ? Status() : no_name(target_, errno);
}

Status StagingDirectory::exchange() {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    return os_error(target_, "cannot be replaced in one step", errno);
  }
  return {};
}

}  // namespace ferry::packer
