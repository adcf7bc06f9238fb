// Names of files in statements, and the names that a signature leaves out. Private to signing/.
#pragma once

#include <array>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::signing {

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
