// KeyPattern: patterns of checkpoint keys and weight names. A pattern has literal text, "{i}" for a
// layer number, "{e}" for an expert number, and may end with "*" for any text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::converters {

// Numbers of a key: decimal digits without leading zeros, as in the key; empty if the pattern has
// no such number.
struct KeyNumbers {
  std::string layer, expert;
};

class KeyPattern {
 public:
  explicit KeyPattern(std::string_view pattern);
  // Returns the numbers in `key`, with any number of digits; nullopt if the key does not match.
  std::optional<KeyNumbers> match(std::string_view key) const;

 private:
  struct Part {
    std::string text;  // literal text before the number
    char number;       // 'i', 'e', or 0 in the last part, which has none
  };
  std::vector<Part> parts_;
  bool open_end_ = false;
};

// Returns the pattern with numbers in place of "{i}" and "{e}"; an empty number becomes 0.
std::string fill_in(std::string pattern, const KeyNumbers& numbers);

// Returns the decimal digits without leading zeros at the start of `text`.
std::string_view leading_number(std::string_view text);

// Returns the number after the first `word` of `key`, empty if there is none.
std::string number_after(std::string_view key, std::string_view word);

}  // namespace ferry::converters
