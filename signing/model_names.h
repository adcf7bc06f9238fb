// Names of files in statements, and which of them a signature leaves out. Private to signing/.
#pragma once

#include <array>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::signing {

// Left out of every signature, with all that is below them; only in the root of a model.
inline constexpr std::array<std::string_view, 4> kAlwaysIgnored = {".git", ".gitattributes",
                                                                   ".github", ".gitignore"};

// Relative, valid UTF-8, components separated by single slashes, none of them "." or "..".
bool is_canonical_name(std::string_view name);

// The paths that a statement leaves out, each with all that is below it.
class IgnoredPaths {
 public:
  // Of `paths` those count that are canonical names without characters of patterns. What is listed
  // is not ignored; `listed` is kept by reference and is in ascending order.
  IgnoredPaths(const std::vector<std::string>& paths, const std::vector<std::string>& listed);
  bool operator()(const std::string& name) const;

 private:
  bool is_or_holds_listed(const std::string& name) const;

  std::set<std::string, std::less<>> paths_;
  const std::vector<std::string>& listed_;
};

// Characters of patterns, which such paths cannot have.
bool has_pattern(std::string_view path);

}  // namespace ferry::signing
