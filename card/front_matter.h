// Reads the YAML at the head of a model card (README.md), as Hugging Face's tools find it: between
// two lines `---`, the first of which begins the text. The text is untrusted. This wraps libyaml.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::card {

// Longer front matter is refused without being parsed.
inline constexpr uint64_t kMaxFrontMatterBytes = uint64_t{1} << 20;
// Deeper nesting is refused.
inline constexpr int kMaxFrontMatterDepth = 32;

// The value of a key of the outermost mapping.
struct FrontMatterValue {
  enum class Kind {
    kScalar,  // one text
    kList,    // a list of texts
    kOther,   // a mapping, a nested list, or a value with an alias
  };
  Kind kind = Kind::kScalar;
  // Texts as they are written: `no` stays "no". A plain null (empty, "~", "null") is left out.
  std::vector<std::string> texts = {};
  uint64_t line = 0;  // line of the key in the file, from 1
};
using FrontMatter = std::map<std::string, FrontMatterValue, std::less<>>;

// Returns an empty map for a text without front matter. `name` begins the messages. kBadInput, with
// the line, for YAML that libyaml refuses, for anything but one mapping, for a key that is not a
// text or is there twice, and beyond the limits above.
Result<FrontMatter> read_front_matter(std::string_view text, const std::string& name);

}  // namespace ferry::card
