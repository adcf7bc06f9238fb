// Python writes infinities and NaN into JSON as bare words, which JSON does not have. Configs of
// released state-space models have such words: "time_step_limit": [0.0, Infinity].
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry::checkpoint {

// Returns the text with {"__float__": "Infinity"} in the place of the word Infinity outside of
// strings, and -Infinity and NaN likewise, as transformers 5 writes them; nullopt where the text
// has no such word. Other texts that are no JSON stay none.
std::optional<std::string> without_bare_floats(std::string_view text);

}  // namespace ferry::checkpoint
