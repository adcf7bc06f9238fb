#include "card/checkpoint_card.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "card/front_matter.h"
#include "core/text.h"

namespace ferry::card {
namespace {

constexpr size_t kMostTexts = 10'000;
constexpr size_t kMostTextBytes = 4096;

class CardFields {
 public:
  CardFields(const FrontMatter& fields, const std::string& name) : fields_(fields), name_(name) {}

  // Takes a text or a list of texts.
  Status list(std::string_view key, std::vector<std::string>& out) const {
    const auto found = fields_.find(key);
    if (found == fields_.end()) return {};
    const FrontMatterValue& value = found->second;
    if (value.kind == FrontMatterValue::Kind::kOther) {
      return wrong(found->first, value, "is neither a text nor a list of texts");
    }
    if (value.texts.size() > kMostTexts) {
      return wrong(found->first, value, fmt::format("has more than {} entries", kMostTexts));
    }
    for (const std::string& text : value.texts) {
      if (text.size() > kMostTextBytes) {
        return wrong(found->first, value,
                     fmt::format("has a text of more than {} bytes", kMostTextBytes));
      }
      if (!text.empty()) out.push_back(text);
    }
    return {};
  }
  Status text(std::string_view key, std::string& out) const {
    std::vector<std::string> texts;
    FERRY_RETURN_IF_ERROR(list(key, texts));
    if (texts.size() > 1) {
      const auto found = fields_.find(key);
      return wrong(found->first, found->second, "is not one text");
    }
    if (!texts.empty()) out = std::move(texts.front());
    return {};
  }

 private:
  Failure wrong(const std::string& key, const FrontMatterValue& value,
                const std::string& what) const {
    return bad_input(
        fmt::format("{}: front matter, line {}: {} {}", name_, value.line, quoted(key, 60), what));
  }

  const FrontMatter& fields_;
  const std::string& name_;
};

}  // namespace

Result<CheckpointCard> read_checkpoint_card(std::string_view text, const std::string& name) {
  const FrontMatter matter = FERRY_TRY(read_front_matter(text, name));
  const CardFields fields(matter, name);
  CheckpointCard card;
  FERRY_RETURN_IF_ERROR(fields.list("license", card.licenses));
  FERRY_RETURN_IF_ERROR(fields.text("license_name", card.license_name));
  FERRY_RETURN_IF_ERROR(fields.text("license_link", card.license_link));
  FERRY_RETURN_IF_ERROR(fields.list("base_model", card.base_models));
  FERRY_RETURN_IF_ERROR(fields.list("datasets", card.datasets));
  FERRY_RETURN_IF_ERROR(fields.list("language", card.languages));
  FERRY_RETURN_IF_ERROR(fields.list("tags", card.tags));
  FERRY_RETURN_IF_ERROR(fields.text("pipeline_tag", card.pipeline_tag));
  return card;
}

}  // namespace ferry::card
