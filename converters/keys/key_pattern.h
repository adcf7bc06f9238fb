// Patterns of checkpoint keys and weight names: literal text, "{i}" a layer number, "{e}" an expert
// number, a trailing "*" any rest.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::converters {

// Decimal digits as they stand in a key, without leading zeros; empty where a pattern has none.
struct KeyNumbers {
  std::string layer, expert;
};

class KeyPattern {
 public:
  explicit KeyPattern(std::string_view pattern);
  // The numbers in `key`, of any size; nullopt if it does not match.
  std::optional<KeyNumbers> match(std::string_view key) const;

 private:
  struct Part {
    std::string text;  // literal, followed by
    char number;       // 'i', 'e', or 0 for none: the last part
  };
  std::vector<Part> parts_;
  bool open_end_ = false;
};

// The pattern with numbers in place of "{i}" and "{e}"; 0 where a number is empty.
std::string fill_in(std::string pattern, const KeyNumbers& numbers);

// Decimal digits without leading zeros at the start of `text`.
std::string_view leading_number(std::string_view text);

// The number after the first `word` of `key`, empty if there is none.
std::string number_after(std::string_view key, std::string_view word);

}  // namespace ferry::converters
