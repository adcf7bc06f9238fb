// Makes a document of `ferry audit --json` (docs/auditing.md) with any number of tensors.
#pragma once

#include <string>
#include <string_view>

namespace ferry::pages {

struct AuditDocument {
  int layers = 4;
  int experts = 0;  // experts per layer, with three tensors each; 0: a plain feed-forward layer
  std::string_view name = "tiny";  // name of the target and of a finding
  bool diff = false;
};
std::string audit_document(const AuditDocument& options);

// Returns the number of items of such a document.
int items_of(const AuditDocument& options);

// This text would do harm if a page treated it as markup or as the end of its script.
inline constexpr std::string_view kHostileName =
    "</script><img src=x onerror=\"document.title='taken'\">-->\xe2\x80\xa8\xe2\x80\xae'\"\\&lt;";

}  // namespace ferry::pages
