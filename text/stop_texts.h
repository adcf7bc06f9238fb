// StopTexts cuts a text that arrives in parts before the first stop text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::text {

class StopTexts {
 public:
  // Stop texts must not be empty.
  explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes the next part, and returns the text that is certainly before every stop text. The rest is
  // kept, because it may begin a stop text. After a stop text has been found, push() returns
  // nothing.
  std::string push(std::string_view part);
  // Returns the kept text, because no more parts follow.
  std::string finish();

  // Returns the stop text that was found. Among several, the one that ends first is found, and of
  // those the longest, so the result does not depend on how the text is cut into parts.
  const std::optional<std::string>& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string kept_;
  std::optional<std::string> found_;
};

}  // namespace ferry::text
