#include "batch/claim.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "batch/host.h"
#include "batch/result.h"
#include "batch/state.h"
#include "core/directory.h"
#include "core/text.h"

namespace ferry::batch {
namespace {

constexpr auto kLongestInterval = std::chrono::seconds(30);
constexpr int kTouchesPerLease = 4;

// `names` is the number of the file's hard links; 0 if there is no file.
struct FileState {
  nlink_t names = 0;
  ino_t inode = 0;
};

FileState state_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {.names = status.st_nlink, .inode = status.st_ino};
}

// NFS may lose a reply and then report a failure for a link that was made. So the number of hard
// links decides.
bool link_to(const std::string& own, const std::string& path) {
  [[maybe_unused]] const int reported = ::link(own.c_str(), path.c_str());
  return state_of(own).names == 2;
}

bool is_stale(const std::string& path, const std::string& own, std::chrono::seconds lease) {
  const Result<std::optional<std::string>> text = read_small_file(path);
  if (!text || !*text) return false;  // the owner has just given the claim back
  if (const Result<Started> owner = parse_started(**text, printable(path)); owner) {
    const Life life = life_of({.host = owner->host,
                               .boot = owner->boot,
                               .id = owner->process,
                               .start = owner->process_start});
    if (life == Life::kDead) return true;
  }
  // A living owner touches its claim more often than that. A time in the future, from before the
  // server's clock was put back, is as stale as one in the past.
  const std::optional<double> age = seconds_since_touch(path, own);
  return age && std::fabs(*age) > static_cast<double>(lease.count());
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

// Removes the second name of a stale claim, which its dead owner can no longer remove.
void remove_names(const std::string& path, ino_t inode) {
  const std::string folder = folder_of(path);
  const Result<Directory> directory = Directory::open(folder);
  if (!directory) return;
  const std::string prefix = path.substr(folder.size()) + "~";
  for (const std::string& name : directory->names().value_or(std::vector<std::string>())) {
    const std::string other = folder + name;
    if (name.starts_with(prefix) && state_of(other).inode == inode) ::unlink(other.c_str());
  }
}

// Removes a stale claim. Meanwhile another process may have removed the claim and made its own
// under the same name. So the claim is renamed first, and put back if the renamed file is not the
// examined one.
void take_away(const std::string& path, const std::string& own, std::chrono::seconds lease) {
  const FileState examined = state_of(path);
  if (examined.names == 0 || !is_stale(path, own, lease)) return;
  const std::string aside = fmt::format("{}~stale~{}", path, random_name());
  if (std::rename(path.c_str(), aside.c_str()) != 0) return;
  const bool same = state_of(aside).inode == examined.inode;
  if (!same) {
    [[maybe_unused]] const int restored = ::link(aside.c_str(), path.c_str());
  }
  ::unlink(aside.c_str());
  if (same) remove_names(path, examined.inode);
}

// Makes a file that identifies this process, for claims and for reading the file server's clock.
// The file is not synced, because after a power failure no process is left that the claim concerns.
// Closing the file sends it to the server.
Result<std::string> make_own(const std::string& path) {
  const Process& us = this_process();
  const std::string own = fmt::format("{}~{}~{}~{}", path, us.host, us.id, random_name());
  const Started owner{.fingerprint = "",
                      .host = us.host,
                      .boot = us.boot,
                      .start = utc_now(),
                      .process = us.id,
                      .process_start = us.start,
                      .may_replace = false};
  FERRY_RETURN_IF_ERROR(write_small_file(own, own + "~new", to_json(owner), Durable::kNo));
  return own;
}

}  // namespace

Claim::Claim(std::string path, std::string own, std::chrono::seconds lease)
    : path_(std::move(path)),
      own_(std::move(own)),
      interval_(std::clamp(lease / kTouchesPerLease, std::chrono::seconds(0), kLongestInterval)),
      next_(std::chrono::steady_clock::now() + interval_) {}

Claim::Claim(Claim&& other) noexcept
    : path_(std::move(other.path_)),
      own_(std::exchange(other.own_, {})),
      interval_(other.interval_),
      next_(other.next_),
      kept_(other.kept_) {}

Claim::~Claim() {
  if (own_.empty()) return;
  const FileState mine = state_of(own_);
  if (mine.names == 2 && state_of(path_).inode == mine.inode) ::unlink(path_.c_str());
  ::unlink(own_.c_str());
}

Result<std::optional<Claim>> Claim::take(const std::string& directory, const std::string& id,
                                         std::chrono::seconds lease) {
  const std::string path = fmt::format("{}/{}", directory, id);
  const std::string own = FERRY_TRY(make_own(path));
  Claim claim(path, own, lease);
  if (link_to(own, path)) return std::optional<Claim>(std::move(claim));
  take_away(path, own, lease);
  if (link_to(own, path)) return std::optional<Claim>(std::move(claim));
  return std::optional<Claim>();
}

bool Claim::keep() {
  const auto now = std::chrono::steady_clock::now();
  if (!kept_ || now < next_) return kept_;
  next_ = now + interval_;
  kept_ = state_of(own_).names == 2 && touch(own_);
  return kept_;
}

Status sweep_claims(const std::string& directory, std::chrono::seconds lease) {
  const std::string own = FERRY_TRY(make_own(directory + "/"));
  const Directory opened = FERRY_TRY(Directory::open(directory));
  for (const std::string& name : FERRY_TRY(opened.names())) {
    const std::string path = fmt::format("{}/{}", directory, name);
    if (name.find('~') == std::string::npos) {
      take_away(path, own, lease);
    } else if (path != own && state_of(path).names == 1 && is_stale(path, own, lease)) {
      ::unlink(path.c_str());
    }
  }
  ::unlink(own.c_str());
  return {};
}

}  // namespace ferry::batch
