// ModelTree lists the files of a model that a signature is about (OpenSSF Model Signing 1.0): all
// regular files below a folder, or one file. Symbolic links are never followed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/result.h"

namespace ferry::signing {

// Identifies a file independently of its name.
struct FileIdentity {
  uint64_t device = 0, inode = 0;
  bool operator==(const FileIdentity&) const = default;
};
// Returns nullopt if `path` is not a regular file.
std::optional<FileIdentity> identity_of(const std::string& path);

enum class EntryKind { kFile, kLink, kSpecial, kIgnored };

struct ModelEntry {
  std::string name;  // relative, components separated by '/'; any bytes that the file system has
  EntryKind kind = EntryKind::kFile;
  uint64_t bytes = 0;  // size of a kFile
};

// An open model.
class ModelTree {
 public:
  ModelTree();
  ~ModelTree();
  ModelTree(ModelTree&& other) noexcept;
  ModelTree& operator=(ModelTree&& other) noexcept;

  // If `path` is not a folder, the model is that file. kIo if it cannot be opened, kBadInput if it
  // is neither a folder nor a regular file.
  static Result<ModelTree> open(const std::string& path);

  bool is_file() const;
  const std::string& path() const;
  // Returns the last component of the path, after links and dots are resolved.
  const std::string& name() const;
  // Returns the path of a file in the model, for messages.
  std::string path_of(const std::string& name) const;

  // Returns everything but directories, in ascending order of names. If `ignored` returns true, the
  // entry is listed as kIgnored, and a directory so without the entries below it. One file that is
  // `signature` is left out.
  Result<std::vector<ModelEntry>> list(const std::function<bool(const std::string& name)>& ignored,
                                       std::optional<FileIdentity> signature) const;
  // Opens a regular file. No component of `name` may be a symbolic link.
  Result<InputFile> open_file(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Every signature leaves these out, with all that is below them. They count only in the root of a
// model.
inline constexpr std::array<std::string_view, 4> kAlwaysIgnored = {".git", ".gitattributes",
                                                                   ".github", ".gitignore"};

// Returns whether a name is relative and valid UTF-8, has components separated by single slashes,
// and none of them is "." or "..".
bool is_canonical_name(std::string_view name);

// The paths that a statement leaves out, each with all that is below it.
class IgnoredPaths {
 public:
  // Uses those of `paths` that are canonical names without pattern characters. A listed path is
  // never ignored. `listed` is in ascending order and must outlive this object.
  IgnoredPaths(const std::vector<std::string>& paths, const std::vector<std::string>& listed);
  bool operator()(const std::string& name) const;

 private:
  bool is_or_holds_listed(const std::string& name) const;

  std::set<std::string, std::less<>> paths_;
  const std::vector<std::string>& listed_;
};

// Returns whether `path` contains a pattern character. Ignored paths cannot contain one.
bool has_pattern(std::string_view path);

}  // namespace ferry::signing
