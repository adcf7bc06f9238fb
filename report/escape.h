// Escapes text from untrusted files for HTML pages.
#pragma once

#include <string>
#include <string_view>

namespace ferry::report {

// Returns the JSON document without any byte that HTML could read as markup. `<`, `>`, `&`, U+2028
// and U+2029 become JSON escapes; only strings can contain these characters.
std::string json_in_script(std::string_view json);

// Escapes text for the content of an element or of an attribute in double quotes. Control
// characters become U+FFFD.
std::string html_text(std::string_view text);

}  // namespace ferry::report
