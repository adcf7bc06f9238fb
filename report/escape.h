// Text of untrusted files in a page: escaped so that it stays text.
#pragma once

#include <string>
#include <string_view>

namespace ferry::report {

// Returns the JSON document without any byte that HTML could take for markup: `<`, `>` and `&`
// become escapes of JSON, which strings alone can contain, and so do U+2028 and U+2029.
std::string json_in_script(std::string_view json);

// Text as the content of an element or of an attribute in double quotes. Control characters become
// U+FFFD.
std::string html_text(std::string_view text);

}  // namespace ferry::report
