// html_page() writes one self-contained HTML file around a JSON document. The page uses no network
// and works from a disk. Its script builds the visible page from the document alone.
// docs/reports.md describes the pages.
#pragma once

#include <string>
#include <string_view>

namespace ferry::report {

enum class PageKind { kAudit, kParity, kBatch };

// `json` is the `result` that the verb prints with --json. It holds names from untrusted files, so
// it is embedded in a way that no text in it can end the script element or become markup. The
// content security policy of the page allows nothing but its own script and style. Equal input
// gives equal bytes.
std::string html_page(PageKind kind, std::string_view title, std::string_view json);

// Whether `text` is a page of this kind.
bool is_page(PageKind kind, std::string_view text);

// Returns the JSON document without any byte that HTML could read as markup. `<`, `>`, `&`, U+2028
// and U+2029 become JSON escapes; only strings can contain these characters.
std::string json_in_script(std::string_view json);

// Escapes text for the content of an element or of an attribute in double quotes. Control
// characters become U+FFFD.
std::string html_text(std::string_view text);

}  // namespace ferry::report
