// Which files of a model a signature is about (OpenSSF Model Signing 1.0): all regular files below
// a folder, or one file. Symbolic links are never followed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/result.h"

namespace ferry::signing {

// A file by what it is, whatever its name.
struct FileIdentity {
  uint64_t device = 0, inode = 0;
  bool operator==(const FileIdentity&) const = default;
};
// nullopt where `path` is no regular file.
std::optional<FileIdentity> identity_of(const std::string& path);

enum class EntryKind { kFile, kLink, kSpecial, kIgnored };

struct ModelEntry {
  std::string name;  // relative, components separated by '/'; bytes as the system has them
  EntryKind kind = EntryKind::kFile;
  uint64_t bytes = 0;  // of a kFile
};

// A model that is open.
class ModelTree {
 public:
  ModelTree();
  ~ModelTree();
  ModelTree(ModelTree&& other) noexcept;
  ModelTree& operator=(ModelTree&& other) noexcept;

  // A path that is no folder is that of a model of one file. kIo where it cannot be opened,
  // kBadInput where it is neither a folder nor a regular file.
  static Result<ModelTree> open(const std::string& path);

  bool is_file() const;
  const std::string& path() const;
  // The last component of the path, with links and dots resolved.
  const std::string& name() const;
  // That of a file in it, for messages.
  std::string path_of(const std::string& name) const;

  // Everything but directories, in ascending order of names. What `ignored` is true for is listed
  // as kIgnored, a directory without what is below it. The file `signature` is left out, once.
  Result<std::vector<ModelEntry>> list(const std::function<bool(const std::string& name)>& ignored,
                                       std::optional<FileIdentity> signature) const;
  // Opens a regular file. No component of `name` may be a symbolic link.
  Result<InputFile> open_file(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ferry::signing
