#include "text/tokenizer/bert_normalizer.h"

#include "core/base64.h"
#include "core/utf8.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/normal_form.h"
#include "text/tokenizer/reference_classes.h"
#include "text/unicode.h"

namespace ferry::text {
namespace {

using StepPtr = std::unique_ptr<NormalizerStep>;

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
      FERRY_RETURN_IF_ERROR(normalize(text, NormalForm::kNfd));
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

struct BertKind {
  std::string_view type;
  ReadNormalizer read;
};
constexpr BertKind kBertKinds[] = {
    {"BertNormalizer", read_bert_normalizer},
    {"StripAccents", read_plain<StripAccents>},
    {"Nmt", read_plain<Nmt>},
    {"Precompiled", read_precompiled},
    {"ByteLevel", read_plain<ByteLevelNormalizer>},
};

}  // namespace

ReadNormalizer find_character_normalizer(std::string_view type) {
  for (const BertKind& kind : kBertKinds) {
    if (kind.type == type) return kind.read;
  }
  return nullptr;
}

void lower_case(std::string& text) {
  map_characters(text, [](std::string& out, char32_t c) {
    if (c == 0x130) {  // the only character that becomes two: i and a dot above
      out += "i\xCC\x87";
    } else {
      utf8::append(out, reference::lower(c));
    }
  });
}

}  // namespace ferry::text
