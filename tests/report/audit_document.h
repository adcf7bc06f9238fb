// A document as `ferry audit --json` makes it (docs/auditing.md), of any number of tensors.
#pragma once

#include <string>
#include <string_view>

namespace ferry::pages {

struct AuditDocument {
  int layers = 4;
  int experts = 0;                 // per layer, three tensors each; 0: a plain feed-forward
  std::string_view name = "tiny";  // of the target, and of a finding
  bool diff = false;
};
std::string audit_document(const AuditDocument& options);

// How many items such a document has.
int items_of(const AuditDocument& options);

// Text that would do harm if a page took it for markup or for the end of its script.
inline constexpr std::string_view kHostileName =
    "</script><img src=x onerror=\"document.title='taken'\">-->\xe2\x80\xa8\xe2\x80\xae'\"\\&lt;";

}  // namespace ferry::pages
