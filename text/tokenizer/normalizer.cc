#include "text/tokenizer/tokenizer_steps.h"

#include <fmt/format.h>
#include <algorithm>

#include "core/base64.h"
#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/matcher.h"
#include "text/tokenizer/reference_unicode.h"
#include "text/unicode.h"

namespace ferry::text {
namespace {

using nlohmann::json;
using StepPtr = std::unique_ptr<NormalizerStep>;
using Steps = std::vector<StepPtr>;

// Calls `append(out, c)` for every character c of the text.
template <class Append>
void map_characters(std::string& text, Append append) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const utf8::Char c = utf8::decode_valid(text, at);
    at += c.size;
    append(out, c.value);
  }
  text = std::move(out);
}

// Converts every character of `text` to lower case.
void lower_case(std::string& text) {
  map_characters(text, [](std::string& out, char32_t c) {
    if (c == 0x130) {  // the only character that becomes two: i and a dot above
      out += "i\xCC\x87";
    } else {
      utf8::append(out, reference::lower(c));
    }
  });
}

class NormalFormStep final : public NormalizerStep {
 public:
  explicit NormalFormStep(reference::NormalForm form) : form_(form) {}
  Status apply(std::string& text, size_t) const override {
    return reference::normalize(text, form_);
  }

 private:
  reference::NormalForm form_;
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
  bool prepends() const override { return true; }

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

// Control characters are removed, including U+0085. Other white space becomes a blank.
void append_clean(std::string& out, char32_t c) {
  const bool line = c == '\t' || c == '\n' || c == '\r';
  if (!line && (c == 0xFFFD || reference::is_control(c))) return;
  if (line || unicode::is_space(c)) {
    out += ' ';
  } else {
    utf8::append(out, c);
  }
}

// Returns true for the blocks that BERT's tokenizer calls Chinese.
bool is_ideograph(char32_t c) {
  if (c < 0x3400) return false;
  return (c >= 0x4E00 && c <= 0x9FFF) || c <= 0x4DBF || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
         (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void append_separated(std::string& out, char32_t c) {
  if (!is_ideograph(c)) return utf8::append(out, c);
  out += ' ';
  utf8::append(out, c);
  out += ' ';
}

class BertNormalizer final : public NormalizerStep {
 public:
  BertNormalizer(bool clean, bool separate, bool strip_accents, bool lower)
      : clean_(clean), separate_(separate), strip_accents_(strip_accents), lower_(lower) {}
  Status apply(std::string& text, size_t) const override {
    if (clean_) map_characters(text, append_clean);
    if (separate_) map_characters(text, append_separated);
    if (strip_accents_) {
      FERRY_RETURN_IF_ERROR(reference::normalize(text, reference::NormalForm::kNfd));
      map_characters(text, [](std::string& out, char32_t c) {
        if (!reference::is_nonspacing_mark(c)) utf8::append(out, c);
      });
    }
    if (lower_) lower_case(text);
    return {};
  }
  bool drops_start() const override { return clean_ || strip_accents_; }

 private:
  bool clean_, separate_, strip_accents_, lower_;
};

class StripAccents final : public NormalizerStep {
 public:
  Status apply(std::string& text, size_t) const override {
    map_characters(text, [](std::string& out, char32_t c) {
      if (!reference::is_mark(c)) utf8::append(out, c);
    });
    return {};
  }
  bool drops_start() const override { return true; }
};

class Nmt final : public NormalizerStep {
 public:
  Status apply(std::string& text, size_t) const override {
    map_characters(text, [](std::string& out, char32_t c) {
      if (is_blank(c)) {
        out += ' ';
      } else if (!is_dropped(c)) {
        utf8::append(out, c);
      }
    });
    return {};
  }
  bool drops_start() const override { return true; }

 private:
  static bool is_dropped(char32_t c) {
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
  }
  static bool is_blank(char32_t c) {
    return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  }
};

class Precompiled final : public NormalizerStep {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}
  Status apply(std::string& text, size_t most) const override { return map_.apply(text, most); }
  bool drops_start() const override { return true; }

 private:
  Charsmap map_;
};

// Spells the bytes of the text in the byte-level alphabet.
class ByteLevelNormalizer final : public NormalizerStep {
 public:
  Status apply(std::string& text, size_t) const override {
    std::string out;
    out.reserve(text.size() * 2);
    for (const char c : text) {
      utf8::append(out, byte_level::kCharOf[static_cast<unsigned char>(c)]);
    }
    text = std::move(out);
    return {};
  }
};

// -- reading

template <reference::NormalForm form>
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

Result<StepPtr> read_bert_normalizer(StepFields& fields) {
  const bool clean = FERRY_TRY(fields.flag("clean_text", true));
  const bool separate = FERRY_TRY(fields.flag("handle_chinese_chars", true));
  const bool lower = FERRY_TRY(fields.flag("lowercase", true));
  const bool strip_accents = FERRY_TRY(fields.flag("strip_accents", lower));
  return std::make_unique<BertNormalizer>(clean, separate, strip_accents, lower);
}
template <class Step>
Result<StepPtr> read_plain(StepFields&) {
  return std::make_unique<Step>();
}
Result<StepPtr> read_precompiled(StepFields& fields) {
  const std::string text = FERRY_TRY(fields.text("precompiled_charsmap"));
  const auto bytes = from_base64(text);
  if (!bytes) return fields.bad("'precompiled_charsmap' is not base64");
  return std::make_unique<Precompiled>(
      FERRY_TRY(Charsmap::parse(*bytes, fields.where() + ": precompiled_charsmap")));
}

struct NormalizerKind {
  std::string_view type;
  Result<StepPtr> (*read)(StepFields&);
};
constexpr NormalizerKind kNormalizerKinds[] = {
    {"NFC", read_form<reference::NormalForm::kNfc>},
    {"NFD", read_form<reference::NormalForm::kNfd>},
    {"NFKC", read_form<reference::NormalForm::kNfkc>},
    {"NFKD", read_form<reference::NormalForm::kNfkd>},
    {"Lowercase", read_lowercase},
    {"Strip", read_strip_normalizer},
    {"Prepend", read_prepend},
    {"Replace", read_replace_normalizer},
    {"BertNormalizer", read_bert_normalizer},
    {"StripAccents", read_plain<StripAccents>},
    {"Nmt", read_plain<Nmt>},
    {"Precompiled", read_precompiled},
    {"ByteLevel", read_plain<ByteLevelNormalizer>},
};

Result<StepPtr> read_normalizer_step(StepFields& fields, const std::string& type) {
  for (const NormalizerKind& kind : kNormalizerKinds) {
    if (kind.type == type) return kind.read(fields);
  }
  return fields.unknown_type(type);
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

Status Normalizer::apply(std::string& text, bool within) const {
  const size_t most = growth_limit(text.size());
  for (const auto& step : steps_) {
    if (within && step->prepends()) continue;
    FERRY_RETURN_IF_ERROR(step->apply(text, most));
  }
  return {};
}

}  // namespace ferry::text
