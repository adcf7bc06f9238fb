// KeyPattern: patterns of checkpoint keys and weight names. Literal text; "{i}", a layer number;
// "{e}", an expert number; a trailing "*", any text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::converters {

// Decimal digits without leading zeros, as in the key; empty if the pattern has no such number.
struct KeyNumbers {
  std::string layer, expert;
};

class KeyPattern {
 public:
  explicit KeyPattern(std::string_view pattern);
  // The numbers in `key`, with any number of digits; nullopt if the key does not match.
  std::optional<KeyNumbers> match(std::string_view key) const;

 private:
  struct Part {
    std::string text;  // literal, followed by
    char number;       // 'i', 'e', or 0 for none: the last part
  };
  std::vector<Part> parts_;
  bool open_end_ = false;
};

// The pattern with numbers in place of "{i}" and "{e}"; an empty number becomes 0.
std::string fill_in(std::string pattern, const KeyNumbers& numbers);

// Decimal digits without leading zeros at the start of `text`.
std::string_view leading_number(std::string_view text);

// The number after the first `word` of `key`, empty if there is none.
std::string number_after(std::string_view key, std::string_view word);

}  // namespace ferry::converters
