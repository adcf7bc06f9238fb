// StopTexts: ends a text that comes in parts before the first of some texts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::text {

class StopTexts {
 public:
  // None of `stops` is empty.
  explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes the next part; returns what is certainly before every stop. The rest is kept: it may be
  // the beginning of one. Nothing is returned once a stop has been found.
  std::string push(std::string_view part);
  // Returns what has been kept, because no more is coming.
  std::string finish();

  // The stop that was found: of several, the one that ends first, and of those the longest. So it
  // does not depend on how the text is cut into parts.
  const std::optional<std::string>& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string kept_;
  std::optional<std::string> found_;
};

}  // namespace ferry::text
