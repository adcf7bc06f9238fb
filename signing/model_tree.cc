#include "signing/model_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/directory.h"
#include "core/file.h"
#include "core/interrupt.h"
#include "core/result.h"
#include "core/text.h"
#include "core/utf8.h"

namespace ferry::signing {
namespace {

// Each level of a walk keeps a descriptor open.
constexpr int kMaxDepth = 128;

FileIdentity identity_of(const struct stat& info) { return {info.st_dev, info.st_ino}; }

// Opens `name` in `parent`. It must be a directory and not a link to one.
Result<UniqueFd> open_directory(int parent, const std::string& name, const std::string& path,
                                int flags) {
  UniqueFd opened(::openat(parent, name.c_str(), flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (opened.get() < 0) return os_error(path, "cannot open", errno);
  return opened;
}

std::string last_component(const std::string& path) {
  std::error_code error;
  const auto resolved = std::filesystem::canonical(path, error);
  const std::string name = error ? base_name(path) : resolved.filename().string();
  return name.empty() ? "model" : name;
}

}  // namespace

std::optional<FileIdentity> identity_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return identity_of(info);
}

struct ModelTree::State {
  std::string path, name;
  UniqueFd root;  // not open if the model is one file
  InputFile file = {};
  uint64_t bytes = 0;

  std::string path_of(const std::string& entry) const {
    return path + (path.ends_with('/') ? "" : "/") + entry;
  }
};

namespace {

// One walk through a folder.
class Walk {
 public:
  using Ignored = std::function<bool(const std::string&)>;
  using PathOf = std::function<std::string(const std::string&)>;
  Walk(const PathOf& path_of, const Ignored& ignored, std::optional<FileIdentity> signature)
      : path_of_(path_of), ignored_(ignored), signature_(signature) {}

  // `prefix` is empty or ends with '/'.
  Status run(const UniqueFd& directory, const std::string& prefix, int depth) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    for (const std::string& name : FERRY_TRY(names_in(directory.get(), path_of_(prefix)))) {
      FERRY_RETURN_IF_ERROR(visit(directory, name, prefix + name, depth));
    }
    return {};
  }

  std::vector<ModelEntry> take() {
    std::ranges::sort(entries_, {}, &ModelEntry::name);
    return std::move(entries_);
  }

 private:
  Status visit(const UniqueFd& directory, const std::string& name, const std::string& entry,
               int depth) {
    struct stat info {};
    if (::fstatat(directory.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return os_error(path_of_(entry), "cannot examine", errno);
    }
    if (S_ISREG(info.st_mode) && signature_ == identity_of(info)) {
      signature_.reset();
      return {};
    }
    if (ignored_(entry)) {
      entries_.push_back({entry, EntryKind::kIgnored});
    } else if (S_ISDIR(info.st_mode)) {
      return descend(directory, name, entry, depth);
    } else if (S_ISREG(info.st_mode)) {
      entries_.push_back({entry, EntryKind::kFile, static_cast<uint64_t>(info.st_size)});
    } else {
      entries_.push_back({entry, S_ISLNK(info.st_mode) ? EntryKind::kLink : EntryKind::kSpecial});
    }
    return {};
  }

  Status descend(const UniqueFd& directory, const std::string& name, const std::string& entry,
                 int depth) {
    const std::string path = path_of_(entry);
    if (depth == kMaxDepth) {
      return bad_input(
          fmt::format("{}: more than {} directories deep", printable(path), kMaxDepth));
    }
    const UniqueFd below = FERRY_TRY(open_directory(directory.get(), name, path, O_PATH));
    return run(below, entry + "/", depth + 1);
  }

  const PathOf& path_of_;
  const Ignored& ignored_;
  std::optional<FileIdentity> signature_;
  std::vector<ModelEntry> entries_;
};

}  // namespace

ModelTree::ModelTree() = default;
ModelTree::~ModelTree() = default;
ModelTree::ModelTree(ModelTree&& other) noexcept = default;
ModelTree& ModelTree::operator=(ModelTree&& other) noexcept = default;

Result<ModelTree> ModelTree::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) return os_error(path, "cannot open", EINVAL);
  ModelTree tree;
  tree.state_ = std::make_unique<State>();
  tree.state_->path = path;
  tree.state_->name = last_component(path);
  UniqueFd root(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (root.get() >= 0) {
    tree.state_->root = std::move(root);
  } else if (errno == ENOTDIR) {
    tree.state_->file = FERRY_TRY(InputFile::open(path));
    tree.state_->bytes = tree.state_->file.size();
  } else {
    return os_error(path, "cannot open", errno);
  }
  return tree;
}

bool ModelTree::is_file() const { return state_->root.get() < 0; }
const std::string& ModelTree::path() const { return state_->path; }
const std::string& ModelTree::name() const { return state_->name; }

std::string ModelTree::path_of(const std::string& name) const {
  return is_file() ? path() : state_->path_of(name);
}

Result<std::vector<ModelEntry>> ModelTree::list(
    const std::function<bool(const std::string& name)>& ignored,
    std::optional<FileIdentity> signature) const {
  if (is_file()) {
    return std::vector<ModelEntry>{{name(), EntryKind::kFile, state_->bytes}};
  }
  const Walk::PathOf path_of = [this](const std::string& entry) { return state_->path_of(entry); };
  Walk walk(path_of, ignored, signature);
  FERRY_RETURN_IF_ERROR(walk.run(state_->root, "", 0));
  return walk.take();
}

Result<InputFile> ModelTree::open_file(const std::string& name) const {
  const std::string path = path_of(name);
  if (is_file()) return InputFile::open(path);
  UniqueFd directory;
  int parent = state_->root.get();
  size_t begin = 0;
  for (size_t end; (end = name.find('/', begin)) != std::string::npos; begin = end + 1) {
    directory = FERRY_TRY(open_directory(parent, name.substr(begin, end - begin), path, O_PATH));
    parent = directory.get();
  }
  return InputFile::open_at(parent, name.substr(begin), path, InputFile::Links::kRefuse);
}

bool is_canonical_name(std::string_view name) {
  if (name.empty() || name.find('\0') != name.npos || !utf8::is_valid(name)) return false;
  size_t begin = 0;
  while (true) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view component = name.substr(begin, end - begin);
    if (component.empty() || component == "." || component == "..") return false;
    if (end == name.size()) return true;
    begin = end + 1;
  }
}

bool has_pattern(std::string_view path) { return path.find_first_of("*?[") != path.npos; }

IgnoredPaths::IgnoredPaths(const std::vector<std::string>& paths,
                           const std::vector<std::string>& listed)
    : paths_(kAlwaysIgnored.begin(), kAlwaysIgnored.end()), listed_(listed) {
  for (const std::string& path : paths) {
    if (is_canonical_name(path) && !has_pattern(path)) paths_.insert(path);
  }
}

bool IgnoredPaths::operator()(const std::string& name) const {
  const std::string_view whole = name;
  for (size_t end = 0; end != whole.npos;) {
    end = whole.find('/', end + 1);
    if (paths_.contains(whole.substr(0, end))) return !is_or_holds_listed(name);
  }
  return false;
}

bool IgnoredPaths::is_or_holds_listed(const std::string& name) const {
  if (std::ranges::binary_search(listed_, name)) return true;
  const std::string below = name + "/";
  const auto next = std::ranges::lower_bound(listed_, below);
  return next != listed_.end() && next->starts_with(below);
}

}  // namespace ferry::signing
