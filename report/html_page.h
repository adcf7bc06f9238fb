// One self-contained HTML file around a JSON document: no network, works from disk. The script of
// the page builds what is seen from the document alone. docs/reports.md describes the pages.
#pragma once

#include <string>
#include <string_view>

namespace ferry::report {

enum class PageKind { kAudit, kParity, kBatch };

// `json` is what the verb prints as `result` with --json. It holds names from untrusted files: it
// is embedded so that no text of it can end the script element or become markup, and the page's
// content security policy allows nothing but its own script and style. The same input gives the
// same bytes.
std::string html_page(PageKind kind, std::string_view title, std::string_view json);

// Whether `text` is such a page.
bool is_page(PageKind kind, std::string_view text);

}  // namespace ferry::report
