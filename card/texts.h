// Writes untrusted texts into Markdown and YAML, so that readers show them as they are.
#pragma once

#include <string>
#include <string_view>

namespace ferry::card {

// Returns `untrusted` as Markdown that renders as that text on one line: no markup, HTML, link or
// cell of a table comes of it.
std::string markdown(std::string_view untrusted);

// Returns a YAML scalar that every reader of YAML 1.1 and 1.2 takes for this text: plain if that is
// certain, in double quotes otherwise. Bytes that are not UTF-8 become U+FFFD.
std::string yaml_scalar(std::string_view untrusted);

// Whether a text is the name of a model or data set at Hugging Face, such as "ORG/NAME" or "NAME".
bool is_hub_name(std::string_view text);

// Whether a text is an http(s) address of plain ASCII without characters that need an escape.
bool is_web_address(std::string_view text);

}  // namespace ferry::card
