#include "text/tokenizer/normalizer.h"

#include <fmt/format.h>
#include <algorithm>

#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/bert_normalizer.h"
#include "text/tokenizer/normal_form.h"
#include "text/tokenizer/replace.h"
#include "text/unicode.h"

namespace ferry::text {
namespace {

using nlohmann::json;
using StepPtr = std::unique_ptr<NormalizerStep>;
using Steps = std::vector<StepPtr>;

class NormalFormStep final : public NormalizerStep {
 public:
  explicit NormalFormStep(NormalForm form) : form_(form) {}
  Status apply(std::string& text, size_t) const override { return normalize(text, form_); }

 private:
  NormalForm form_;
};

class Lowercase final : public NormalizerStep {
 public:
  Status apply(std::string& text, size_t) const override {
    lower_case(text);
    return {};
  }
};

class StripNormalizer final : public NormalizerStep {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  Status apply(std::string& text, size_t) const override {
    size_t begin = 0, end = text.size();
    while (left_ && begin < end) {
      const utf8::Char c = utf8::decode_valid(text, begin);
      if (!unicode::is_space(c.value)) break;
      begin += c.size;
    }
    while (right_ && end > begin) {
      const utf8::Char c = utf8::decode_before(text, end);
      if (!unicode::is_space(c.value)) break;
      end -= c.size;
    }
    text = text.substr(begin, end - begin);
    return {};
  }
  bool drops_start() const override { return left_; }

 private:
  bool left_, right_;
};

class Prepend final : public NormalizerStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  Status apply(std::string& text, size_t) const override {
    if (!text.empty()) text.insert(0, prefix_);
    return {};
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer final : public NormalizerStep {
 public:
  explicit ReplaceNormalizer(Replace replace) : replace_(std::move(replace)) {}
  Status apply(std::string& text, size_t most) const override { return replace_.apply(text, most); }
  bool drops_start() const override { return replace_.removes(); }

 private:
  Replace replace_;
};

// -- reading

template <NormalForm form>
Result<StepPtr> read_form(StepFields&) {
  return std::make_unique<NormalFormStep>(form);
}
Result<StepPtr> read_lowercase(StepFields&) { return std::make_unique<Lowercase>(); }
Result<StepPtr> read_strip_normalizer(StepFields& fields) {
  const bool left = FERRY_TRY(fields.flag("strip_left", true));
  return std::make_unique<StripNormalizer>(left, FERRY_TRY(fields.flag("strip_right", true)));
}
Result<StepPtr> read_prepend(StepFields& fields) {
  std::string prefix = FERRY_TRY(fields.text("prepend"));
  if (prefix.size() > kMaxStepText) return fields.bad("'prepend' is too long");
  return std::make_unique<Prepend>(std::move(prefix));
}
Result<StepPtr> read_replace_normalizer(StepFields& fields) {
  return std::make_unique<ReplaceNormalizer>(FERRY_TRY(Replace::read(fields)));
}

struct NormalizerKind {
  std::string_view type;
  Result<StepPtr> (*read)(StepFields&);
};
constexpr NormalizerKind kNormalizerKinds[] = {
    {"NFC", read_form<NormalForm::kNfc>},
    {"NFD", read_form<NormalForm::kNfd>},
    {"NFKC", read_form<NormalForm::kNfkc>},
    {"NFKD", read_form<NormalForm::kNfkd>},
    {"Lowercase", read_lowercase},
    {"Strip", read_strip_normalizer},
    {"Prepend", read_prepend},
    {"Replace", read_replace_normalizer},
};

Result<StepPtr> read_normalizer_step(StepFields& fields, const std::string& type) {
  for (const NormalizerKind& kind : kNormalizerKinds) {
    if (kind.type == type) return kind.read(fields);
  }
  const ReadNormalizer read = find_character_normalizer(type);
  return read != nullptr ? read(fields) : fields.unknown_type(type);
}

}  // namespace

Result<Normalizer> Normalizer::make(const json& value, const std::string& where) {
  Normalizer normalizer;
  FERRY_RETURN_IF_ERROR(for_each_step(
      value, where, "normalizers", [&](StepFields& fields, const std::string& type) -> Status {
        normalizer.steps_.push_back(FERRY_TRY(read_normalizer_step(fields, type)));
        return {};
      }));
  return normalizer;
}

bool Normalizer::drops_start() const {
  return std::ranges::any_of(steps_, [](const auto& step) { return step->drops_start(); });
}

Status Normalizer::apply(std::string& text) const {
  const size_t most = growth_limit(text.size());
  for (const auto& step : steps_) FERRY_RETURN_IF_ERROR(step->apply(text, most));
  return {};
}

}  // namespace ferry::text
