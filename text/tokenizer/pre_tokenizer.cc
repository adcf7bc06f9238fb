#include "text/tokenizer/tokenizer_steps.h"

#include <fmt/format.h>

#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/matcher.h"
#include "text/tokenizer/reference_unicode.h"
#include "text/tokenizer/word_rules.h"
#include "text/unicode.h"

namespace ferry::text {
namespace {

using nlohmann::json;
using PreTokenizerStepPtr = std::unique_ptr<PreTokenizerStep>;

// Matches every character for which `Is` holds.
template <bool (*Is)(char32_t)>
class CharacterMatcher final : public Matcher {
 public:
  Status find_all(std::string_view text, std::vector<TextRange>& matches) const override {
    for (size_t at = 0; at < text.size();) {
      const utf8::Char c = utf8::decode_valid(text, at);
      const size_t end = at + c.size;
      if (Is(c.value)) {
        matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
      }
      at = end;
    }
    return {};
  }
};

// Matches runs of word characters, and runs of characters that are neither word characters nor
// white space.
class WordMatcher final : public Matcher {
 public:
  Status find_all(std::string_view text, std::vector<TextRange>& matches) const override {
    Kind last = Kind::kSpace;
    for (size_t at = 0; at < text.size();) {
      const utf8::Char c = utf8::decode_valid(text, at);
      const auto begin = static_cast<uint32_t>(at);
      at += c.size;
      const Kind kind = kind_of(c.value);
      if (kind != Kind::kSpace && kind == last) {
        matches.back().end = static_cast<uint32_t>(at);
      } else if (kind != Kind::kSpace) {
        matches.push_back({begin, static_cast<uint32_t>(at)});
      }
      last = kind;
    }
    return {};
  }

 private:
  enum class Kind { kSpace, kWord, kOther };
  static Kind kind_of(char32_t c) {
    if (reference::is_word(c)) return Kind::kWord;
    return unicode::is_space(c) ? Kind::kSpace : Kind::kOther;
  }
};

// Adds a space before every piece that does not begin with one. With `mark`, all spaces become
// `mark`, including the added one.
class Prefix final : public PreTokenizerStep {
 public:
  enum class Where { kNever, kFirst, kAlways };
  Prefix(std::string blank, Where where) : blank_(std::move(blank)), where_(where) {}

  Status apply(Pieces& pieces) override {
    const size_t most = growth_limit(pieces.text.size());
    Pieces out;
    out.starts_input = pieces.starts_input;
    out.text.reserve(pieces.text.size() + 16);
    for (size_t i = 0; i < pieces.ranges.size(); ++i) {
      const auto begin = static_cast<uint32_t>(out.text.size());
      const bool first = pieces.starts_input && pieces.ranges[i].begin == 0;
      const bool wanted = where_ == Where::kAlways || (where_ == Where::kFirst && first);
      append_piece(pieces.at(i), wanted, out.text);
      if (!pieces.origins.empty()) {
        add_origins(pieces, pieces.ranges[i], out.text.size() - begin, out.origins);
      }
      if (out.text.size() > most) return bad_input("a text becomes too long");
      out.ranges.push_back({begin, static_cast<uint32_t>(out.text.size())});
    }
    pieces = std::move(out);
    return {};
  }
  bool minds_start() const override { return where_ == Where::kFirst; }

 private:
  // Adds the origins of `size` bytes that were made of a piece. A blank that was added has that of
  // the character behind it.
  void add_origins(const Pieces& pieces, TextRange range, size_t size,
                   std::vector<TextRange>& out) const {
    const std::string_view piece(pieces.text.data() + range.begin, range.end - range.begin);
    size_t plain = 0;
    for (const char c : piece) plain += c == ' ' ? blank_.size() : 1;
    if (piece.empty()) return;
    out.resize(out.size() + size - plain, pieces.origins[range.begin]);
    for (size_t i = 0; i < piece.size(); ++i) {
      const TextRange origin = pieces.origins[range.begin + i];
      out.insert(out.end(), piece[i] == ' ' ? blank_.size() : 1, origin);
    }
  }
  void append_piece(std::string_view piece, bool wanted, std::string& out) const {
    if (wanted && !piece.starts_with(' ') && !piece.starts_with(blank_)) out += blank_;
    if (blank_ == " ") {
      out += piece;
      return;
    }
    for (size_t at = 0; at < piece.size();) {
      const size_t blank = std::min(piece.find(' ', at), piece.size());
      out += piece.substr(at, blank - at);
      if (blank < piece.size()) out += blank_;
      at = blank + 1;
    }
  }

  std::string blank_;
  Where where_;
};

// Spells the bytes of every piece in the byte-level alphabet, for the steps after ByteLevel.
class Spell final : public PreTokenizerStep {
 public:
  Status apply(Pieces& pieces) override {
    Pieces out;
    out.starts_input = pieces.starts_input;
    for (size_t i = 0; i < pieces.ranges.size(); ++i) {
      const auto begin = static_cast<uint32_t>(out.text.size());
      for (size_t at = pieces.ranges[i].begin; at < pieces.ranges[i].end; ++at) {
        const size_t size = out.text.size();
        const auto byte = static_cast<unsigned char>(pieces.text[at]);
        utf8::append(out.text, byte_level::kCharOf[byte]);
        if (pieces.origins.empty()) continue;
        out.origins.insert(out.origins.end(), out.text.size() - size, pieces.origins[at]);
      }
      out.ranges.push_back({begin, static_cast<uint32_t>(out.text.size())});
    }
    pieces = std::move(out);
    return {};
  }
};

using PreTokenizerSteps = std::vector<PreTokenizerStepPtr>;

template <bool (*Is)(char32_t)>
PreTokenizerStepPtr split_at(SplitBehavior behavior) {
  return std::make_unique<Split>(std::make_unique<CharacterMatcher<Is>>(), behavior, false);
}

Result<SplitBehavior> read_behavior(StepFields& fields, const std::string& name) {
  const auto behavior = find_split_behavior(name);
  if (!behavior) return fields.bad(fmt::format("unknown behavior {}", quoted(name, 60)));
  return *behavior;
}

Status read_split(StepFields& fields, PreTokenizerSteps& steps) {
  const StepPattern pattern = FERRY_TRY(read_pattern(fields));
  const std::string name = FERRY_TRY(fields.text("behavior"));
  const SplitBehavior behavior = FERRY_TRY(read_behavior(fields, name));
  const bool invert = FERRY_TRY(fields.flag("invert", false));
  auto matcher = FERRY_TRY(make_matcher(pattern, fields.where()));
  steps.push_back(std::make_unique<Split>(std::move(matcher), behavior, invert));
  return {};
}

Status read_digits(StepFields& fields, PreTokenizerSteps& steps) {
  const bool individual = FERRY_TRY(fields.flag("individual_digits", false));
  steps.push_back(std::make_unique<Split>(
      std::make_unique<CharacterMatcher<reference::is_number>>(),
      individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false));
  return {};
}

Status read_byte_level_split(StepFields& fields, PreTokenizerSteps& steps) {
  FERRY_RETURN_IF_ERROR(
      fields.flag("trim_offsets", true));  // concerns offsets, which Ferry does not compute
  if (FERRY_TRY(fields.flag("add_prefix_space", true))) {
    steps.push_back(std::make_unique<Prefix>(" ", Prefix::Where::kAlways));
  }
  if (FERRY_TRY(fields.flag("use_regex", true))) {
    auto matcher = FERRY_TRY(make_matcher({true, std::string(kGpt2Regex)}, fields.where()));
    steps.push_back(std::make_unique<Split>(std::move(matcher), SplitBehavior::kIsolated, false));
  }
  return {};
}

Status read_metaspace_split(StepFields& fields, PreTokenizerSteps& steps) {
  const std::string mark = FERRY_TRY(fields.text("replacement"));
  if (mark.empty() || utf8::decode_valid(mark, 0).size != mark.size()) {
    return fields.bad("'replacement' is not one character");
  }
  fields.find("str_rep");  // old files repeat the replacement here
  const bool prefix = FERRY_TRY(fields.flag("add_prefix_space", true));
  const auto scheme =
      FERRY_TRY(fields.optional_text("prepend_scheme")).value_or(prefix ? "always" : "never");
  using Where = Prefix::Where;
  const Where where = scheme == "always"  ? Where::kAlways
                      : scheme == "first" ? Where::kFirst
                                          : Where::kNever;
  if (where == Where::kNever && scheme != "never") {
    return fields.bad(fmt::format("unknown prepend_scheme {}", quoted(scheme, 60)));
  }
  if (!prefix && where != Where::kNever) {
    return fields.bad("'add_prefix_space' does not match 'prepend_scheme'");
  }
  steps.push_back(std::make_unique<Prefix>(mark, where));
  if (FERRY_TRY(fields.flag("split", true))) {
    auto matcher = FERRY_TRY(make_matcher({false, mark}, fields.where()));
    steps.push_back(
        std::make_unique<Split>(std::move(matcher), SplitBehavior::kMergedWithNext, false));
  }
  return {};
}

Status read_bert_split(StepFields&, PreTokenizerSteps& steps) {
  steps.push_back(split_at<unicode::is_space>(SplitBehavior::kRemoved));
  steps.push_back(split_at<reference::is_punctuation>(SplitBehavior::kIsolated));
  return {};
}

Status read_white_space_split(StepFields&, PreTokenizerSteps& steps) {
  steps.push_back(split_at<unicode::is_space>(SplitBehavior::kRemoved));
  return {};
}

Status read_white_space(StepFields&, PreTokenizerSteps& steps) {
  steps.push_back(std::make_unique<Split>(std::make_unique<WordMatcher>(), SplitBehavior::kRemoved,
                                          /*invert=*/true));
  return {};
}

Status read_punctuation(StepFields& fields, PreTokenizerSteps& steps) {
  const std::string name = FERRY_TRY(fields.optional_text("behavior")).value_or("Isolated");
  const SplitBehavior behavior = FERRY_TRY(read_behavior(fields, name));
  steps.push_back(split_at<reference::is_punctuation>(behavior));
  return {};
}

Status read_delimiter(StepFields& fields, PreTokenizerSteps& steps) {
  const std::string delimiter = FERRY_TRY(fields.text("delimiter"));
  if (delimiter.empty() || utf8::decode_valid(delimiter, 0).size != delimiter.size()) {
    return fields.bad("'delimiter' is not one character");
  }
  auto matcher = FERRY_TRY(make_matcher({false, delimiter}, fields.where()));
  steps.push_back(std::make_unique<Split>(std::move(matcher), SplitBehavior::kRemoved, false));
  return {};
}

struct Kind {
  std::string_view type;
  Status (*read)(StepFields&, PreTokenizerSteps&);
};
constexpr std::string_view kByteLevel = "ByteLevel";
constexpr Kind kPreTokenizerKinds[] = {
    {"Split", read_split},
    {"Digits", read_digits},
    {kByteLevel, read_byte_level_split},
    {"Metaspace", read_metaspace_split},
    {"BertPreTokenizer", read_bert_split},
    {"Whitespace", read_white_space},
    {"WhitespaceSplit", read_white_space_split},
    {"Punctuation", read_punctuation},
    {"CharDelimiterSplit", read_delimiter},
};

Status read_pre_tokenizer_step(StepFields& fields, const std::string& type,
                               PreTokenizerSteps& steps) {
  for (const Kind& kind : kPreTokenizerKinds) {
    if (kind.type == type) return kind.read(fields, steps);
  }
  return fields.unknown_type(type);
}

}  // namespace

Result<PreTokenizer> PreTokenizer::make(const json& value, const std::string& where) {
  PreTokenizer result;
  FERRY_RETURN_IF_ERROR(for_each_step(value, where, "pretokenizers",
                                      [&](StepFields& fields, const std::string& type) -> Status {
                                        if (result.byte_level_)
                                          result.steps_.push_back(std::make_unique<Spell>());
                                        result.byte_level_ = type == kByteLevel;
                                        return read_pre_tokenizer_step(fields, type, result.steps_);
                                      }));
  for (const auto& step : result.steps_) {
    result.minds_start_ |= step->minds_start();
    result.minds_start_of_pieces_ |= step->minds_start() && step != result.steps_.front();
  }
  return result;
}

Status PreTokenizer::apply(Pieces& pieces) {
  for (const auto& step : steps_) FERRY_RETURN_IF_ERROR(step->apply(pieces));
  return {};
}

}  // namespace ferry::text
