#include "text/tokenizer/tokenizer_steps.h"

#include <fmt/format.h>

#include <optional>

#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/matcher.h"

namespace ferry::text {
namespace {

using nlohmann::json;
using DecoderStepPtr = std::unique_ptr<TokenDecoderStep>;
using Texts = std::vector<std::string>;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::string join(const Texts& texts, std::string_view separator) {
  return fmt::format("{}", fmt::join(texts, separator));
}

class ByteLevelDecoder final : public TokenDecoderStep {
 public:
  Status apply(Texts& texts) const override {
    std::string bytes;
    for (const std::string& text : texts) append_bytes(text, bytes);
    texts = {utf8::make_valid(bytes)};
    return {};
  }

 private:
  // A token with a character outside of the alphabet, such as an added token, is appended
  // unchanged.
  static void append_bytes(const std::string& text, std::string& bytes) {
    const size_t size = bytes.size();
    for (size_t at = 0; at < text.size();) {
      const utf8::Char c = utf8::decode_valid(text, at);
      const auto byte = byte_level::byte_of(c.value);
      if (!byte) {
        bytes.resize(size);
        bytes += text;
        return;
      }
      bytes += static_cast<char>(*byte);
      at += c.size;
    }
  }
};

class ReplaceDecoder final : public TokenDecoderStep {
 public:
  explicit ReplaceDecoder(Replace replace) : replace_(std::move(replace)) {}
  Status apply(Texts& texts) const override {
    for (std::string& text : texts) {
      FERRY_RETURN_IF_ERROR(replace_.apply(text, growth_limit(text.size())));
    }
    return {};
  }

 private:
  Replace replace_;
};

// Consecutive tokens <0xNN> are the bytes of a text. If the bytes are not valid UTF-8, each becomes
// U+FFFD.
class ByteFallback final : public TokenDecoderStep {
 public:
  Status apply(Texts& texts) const override {
    Texts out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (utf8::is_valid(bytes)) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), std::string(kReplacement));
      }
      bytes.clear();
    };
    for (std::string& text : texts) {
      if (const auto byte = byte_of(text)) {
        bytes += static_cast<char>(*byte);
      } else {
        flush();
        out.push_back(std::move(text));
      }
    }
    flush();
    texts = std::move(out);
    return {};
  }

 private:
  static std::optional<unsigned> byte_of(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
    const auto digit = [](char c) -> int {
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    };
    const int high = text[3] == '+' ? 0 : digit(text[3]);  // the reference accepts a sign
    const int low = digit(text[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<unsigned>(high * 16 + low);
  }
};

class Fuse final : public TokenDecoderStep {
 public:
  Status apply(Texts& texts) const override {
    texts = {join(texts, "")};
    return {};
  }
};

// Removes up to `start` characters `content` from the beginning of every text, and up to `stop`
// from its end.
class StripDecoder final : public TokenDecoderStep {
 public:
  StripDecoder(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  Status apply(Texts& texts) const override {
    for (std::string& text : texts) {
      std::string_view rest = text;
      for (int64_t i = 0; i < start_ && rest.starts_with(content_); ++i) {
        rest.remove_prefix(content_.size());
      }
      for (int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) {
        rest.remove_suffix(content_.size());
      }
      text = std::string(rest);
    }
    return {};
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

// Replaces marks by spaces. In the first token it removes the marks, because encoding has added
// them.
class MetaspaceStep final : public TokenDecoderStep {
 public:
  MetaspaceStep(std::string mark, bool prepended) : mark_(std::move(mark)), prepended_(prepended) {}
  Status apply(Texts& texts) const override {
    for (size_t i = 0; i < texts.size(); ++i) {
      std::string out;
      const std::string& text = texts[i];
      for (size_t at = 0; at < text.size();) {
        const size_t mark = std::min(text.find(mark_, at), text.size());
        out.append(text, at, mark - at);
        if (mark < text.size() && !(i == 0 && prepended_)) out += ' ';
        at = mark + mark_.size();
      }
      texts[i] = std::move(out);
    }
    return {};
  }

 private:
  std::string mark_;
  bool prepended_;
};

// Tokens are words. A token with the prefix continues the word before it.
class WordPieceStep final : public TokenDecoderStep {
 public:
  WordPieceStep(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  Status apply(Texts& texts) const override {
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i > 0 && texts[i].starts_with(prefix_)) {
        texts[i].erase(0, prefix_.size());
      } else if (i > 0) {
        texts[i].insert(0, 1, ' ');
      }
      if (cleanup_) clean(texts[i]);
    }
    return {};
  }

 private:
  // These are the reference's rules for English, in its order.
  static void clean(std::string& text) {
    constexpr std::pair<std::string_view, std::string_view> kRules[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (const auto& [from, to] : kRules) replace_all(text, from, to);
  }
  static void replace_all(std::string& text, std::string_view from, std::string_view to) {
    std::string out;
    size_t copied = 0;
    for (size_t at = 0; (at = text.find(from, copied)) != std::string::npos;) {
      out.append(text, copied, at - copied).append(to);
      copied = at + from.size();
    }
    if (copied > 0) text = out.append(text, copied);
  }

  std::string prefix_;
  bool cleanup_;
};

// A token with the suffix ends a word.
class WordEnds final : public TokenDecoderStep {
 public:
  explicit WordEnds(std::string suffix) : suffix_(std::move(suffix)) {}
  Status apply(Texts& texts) const override {
    for (size_t i = 0; i < texts.size(); ++i) {
      std::string out;
      size_t copied = 0;
      for (size_t at = 0; (at = texts[i].find(suffix_, copied)) != std::string::npos;) {
        out.append(texts[i], copied, at - copied);
        if (i + 1 < texts.size()) out += ' ';
        copied = at + suffix_.size();
      }
      texts[i] = out.append(texts[i], copied);
    }
    return {};
  }

 private:
  std::string suffix_;
};

// -- reading

Result<std::string> character(StepFields& fields, const char* key) {
  std::string text = FERRY_TRY(fields.text(key));
  if (text.empty() || utf8::decode_valid(text, 0).size != text.size()) {
    return fields.bad(fmt::format("'{}' is not one character", key));
  }
  return text;
}

Result<DecoderStepPtr> read_byte_level_decoder(StepFields& fields) {
  for (const char* flag : {"add_prefix_space", "trim_offsets", "use_regex"}) {
    FERRY_RETURN_IF_ERROR(fields.flag(flag, true));  // a flag that only encoding uses
  }
  return std::make_unique<ByteLevelDecoder>();
}
Result<DecoderStepPtr> read_replace_decoder(StepFields& fields) {
  return std::make_unique<ReplaceDecoder>(FERRY_TRY(Replace::read(fields)));
}
Result<DecoderStepPtr> read_byte_fallback(StepFields&) { return std::make_unique<ByteFallback>(); }
Result<DecoderStepPtr> read_fuse(StepFields&) { return std::make_unique<Fuse>(); }
Result<DecoderStepPtr> read_strip_decoder(StepFields& fields) {
  std::string content = FERRY_TRY(character(fields, "content"));
  const int64_t start = FERRY_TRY(fields.integer("start", 0, 1 << 20));
  const int64_t stop = FERRY_TRY(fields.integer("stop", 0, 1 << 20));
  return std::make_unique<StripDecoder>(std::move(content), start, stop);
}
Result<DecoderStepPtr> read_metaspace_decoder(StepFields& fields) {
  std::string mark = FERRY_TRY(character(fields, "replacement"));
  fields.find("str_rep");
  FERRY_RETURN_IF_ERROR(fields.flag("split", true));
  const bool prefix = FERRY_TRY(fields.flag("add_prefix_space", true));
  const auto scheme = FERRY_TRY(fields.optional_text("prepend_scheme"));
  const bool prepended = scheme ? *scheme != "never" : prefix;
  return std::make_unique<MetaspaceStep>(std::move(mark), prepended);
}

Result<DecoderStepPtr> read_word_piece(StepFields& fields) {
  std::string prefix = FERRY_TRY(fields.text("prefix"));
  return std::make_unique<WordPieceStep>(std::move(prefix),
                                         FERRY_TRY(fields.flag("cleanup", true)));
}
Result<DecoderStepPtr> read_word_ends(StepFields& fields) {
  std::string suffix = FERRY_TRY(fields.text("suffix"));
  if (suffix.empty()) return fields.unsupported("an empty 'suffix' is not supported");
  return std::make_unique<WordEnds>(std::move(suffix));
}

struct DecoderKind {
  std::string_view type;
  Result<DecoderStepPtr> (*read)(StepFields&);
};
constexpr DecoderKind kDecoderKinds[] = {
    {"ByteLevel", read_byte_level_decoder}, {"Replace", read_replace_decoder},
    {"ByteFallback", read_byte_fallback},   {"Fuse", read_fuse},
    {"Strip", read_strip_decoder},          {"Metaspace", read_metaspace_decoder},
    {"WordPiece", read_word_piece},         {"BPEDecoder", read_word_ends},
};

Result<DecoderStepPtr> read_decoder_step(StepFields& fields, const std::string& type) {
  for (const DecoderKind& kind : kDecoderKinds) {
    if (kind.type == type) return kind.read(fields);
  }
  return fields.unknown_type(type);
}

}  // namespace

Result<TokenDecoder> TokenDecoder::make(const json& value, const std::string& where) {
  TokenDecoder decoder;
  FERRY_RETURN_IF_ERROR(for_each_step(
      value, where, "decoders", [&](StepFields& fields, const std::string& type) -> Status {
        decoder.steps_.push_back(FERRY_TRY(read_decoder_step(fields, type)));
        return {};
      }));
  return decoder;
}

Result<std::string> TokenDecoder::apply(std::vector<std::string> texts) const {
  if (steps_.empty()) return join(texts, " ");
  for (const auto& step : steps_) FERRY_RETURN_IF_ERROR(step->apply(texts));
  return join(texts, "");
}

}  // namespace ferry::text
