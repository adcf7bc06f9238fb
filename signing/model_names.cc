#include "signing/model_names.h"

#include <algorithm>

#include "core/utf8.h"

namespace ferry::signing {

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
