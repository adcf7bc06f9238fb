#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "core/text.h"

namespace ferry::text {
namespace {

// -- translation

struct Escape {
  char letter;
  // `inside` is for character classes; an empty text means that the place is not supported
  std::string_view outside, inside;
};

// Where Oniguruma and PCRE2 differ, the rewritten pattern lists the characters: \s of PCRE2 has
// U+180E, \w lacks marks and connectors, \h has another meaning. The \w of Oniguruma has the
// numbers of Latin-1 (such as one half) outside of classes only.
#define FERRY_WORD R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})"
#define FERRY_NUMBERS R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})"
constexpr Escape kEscapes[] = {
    {'s', R"(\p{White_Space})", R"(\p{White_Space})"},
    {'S', R"(\P{White_Space})", R"(\P{White_Space})"},
    {'d', R"(\p{Nd})", R"(\p{Nd})"},
    {'D', R"(\P{Nd})", R"(\P{Nd})"},
    {'w', "[" FERRY_WORD FERRY_NUMBERS "]", FERRY_WORD},
    {'W', "[^" FERRY_WORD FERRY_NUMBERS "]", ""},
    {'r', R"(\r)", R"(\r)"},
    {'n', R"(\n)", R"(\n)"},
    {'t', R"(\t)", R"(\t)"},
    {'f', R"(\f)", R"(\f)"},
    {'A', R"(\A)", ""},
    {'z', R"(\z)", ""},
};

constexpr std::array<std::string_view, 35> kProperties = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N", "Nd",
    "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm",
    "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co"};
// Oniguruma matches the script. PCRE2 would match script extensions by default.
constexpr std::array<std::string_view, 8> kScripts = {"Han",   "Hiragana", "Katakana", "Hangul",
                                                      "Latin", "Greek",    "Cyrillic", "Arabic"};
constexpr std::array<std::string_view, 7> kGroups = {"?:", "?i:", "?=", "?!", "?<=", "?<!", "?>"};

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) FERRY_RETURN_IF_ERROR(in_class_ ? class_item() : item());
    return std::move(out_);
  }

 private:
  bool starts_with(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }
  Failure unsupported(std::string_view what) const {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: the regex construct {} is not supported",
                                                     where_, quoted(what, 40)));
  }

  Status item() {
    const char c = pattern_[at_];
    if (c == '\\') return escape();
    if (c == '[') return open_class();
    if (c == '(') return group();
    if (c == '{' || c == '*' || c == '+' || c == '?') return quantifier();
    if (c == '^' || c == '$' || c == '#') return unsupported(std::string_view(&c, 1));
    copy(1);
    return {};
  }

  // A quantifier {n}, {n,} or {n,m} means the same in both libraries only if no other quantifier
  // follows, and a possessive + only after * + ?.
  Status quantifier() {
    const char kind = pattern_[at_];
    if (kind == '{') {
      const size_t end = pattern_.find_first_not_of("0123456789,", at_ + 1);
      const std::string_view body = pattern_.substr(at_, end - at_);
      if (end == std::string_view::npos || pattern_[end] != '}' || body.size() < 2 ||
          body[1] == ',') {
        return unsupported("{");
      }
      copy(end + 1 - at_);
      if (starts_with("+")) return unsupported("{}+");
    } else {
      copy(1);
      if (starts_with("+")) copy(1);
    }
    if (starts_with("?") && pattern_[at_ - 1] != '+')
      copy(1);
    else if (starts_with("?") && kind == '+')
      copy(1);
    return {};
  }

  Status group() {
    const auto kind = std::ranges::find_if(
        kGroups, [&](std::string_view g) { return pattern_.substr(at_ + 1).starts_with(g); });
    if (kind != kGroups.end()) {
      copy(1 + kind->size());
    } else if (pattern_.substr(at_ + 1).starts_with("?")) {
      return unsupported(pattern_.substr(at_, 4));
    } else {
      ++at_;
      out_ += "(?:";  // captures are not needed
    }
    return {};
  }

  Status open_class() {
    copy(1);
    if (starts_with("^")) copy(1);
    if (starts_with("]") || starts_with("-]")) return unsupported("[]");
    in_class_ = true;
    return {};
  }

  Status class_item() {
    if (starts_with("[")) return open_nested();
    if (starts_with("&&")) return unsupported("&&");
    if (starts_with("]") && nested_ > 0) return close_nested();
    if (starts_with("]")) in_class_ = false;
    if (starts_with("\\")) return escape();
    copy(1);
    return {};
  }

  // A class inside a class adds its characters, which PCRE2 writes without the inner brackets.
  Status open_nested() {
    // characters that have another meaning in PCRE2 here
    constexpr std::string_view kOther = ":^-]";
    const std::string_view rest = pattern_.substr(at_ + 1);
    if (rest.empty() || kOther.find(rest[0]) != std::string_view::npos || out_.ends_with('-')) {
      return unsupported("[[");
    }
    ++at_;
    ++nested_;
    return {};
  }
  Status close_nested() {
    if (out_.ends_with('-') || pattern_.substr(at_ + 1).starts_with("-")) return unsupported("]-");
    ++at_;
    --nested_;
    return {};
  }

  Status escape() {
    if (at_ + 1 == pattern_.size()) return bad_input(where_ + ": the regex ends in a backslash");
    const char letter = pattern_[at_ + 1];
    if (letter == 'p' || letter == 'P') return property();
    const bool word = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                      (letter >= 'A' && letter <= 'Z');
    if (!word) {
      copy(2);
      return {};
    }
    for (const Escape& known : kEscapes) {
      const std::string_view text = in_class_ ? known.inside : known.outside;
      if (known.letter != letter || text.empty()) continue;
      out_ += text;
      at_ += 2;
      return {};
    }
    return unsupported(pattern_.substr(at_, 2));
  }

  Status property() {
    const size_t end = pattern_.find('}', at_);
    const bool braced = end != std::string_view::npos && pattern_.substr(at_ + 2).starts_with("{");
    if (!braced) return unsupported(pattern_.substr(at_, 3));
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    bool negated = pattern_[at_ + 1] == 'P';
    if (name.starts_with("^")) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool script = std::ranges::find(kScripts, name) != kScripts.end();
    if (!script && std::ranges::find(kProperties, name) == kProperties.end()) {
      return unsupported(pattern_.substr(at_, end + 1 - at_));
    }
    out_ += fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', script ? "sc:" : "", name);
    at_ = end + 1;
    return {};
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t at_ = 0;
  bool in_class_ = false;
  int nested_ = 0;  // the number of open classes inside the class
  std::string out_;
};

// Translates a regex from Oniguruma (Ruby syntax, Unicode) to PCRE2 with UTF and UCP. kUnsupported,
// by name, for constructs that the two libraries do not share or that no known tokenizer uses.
// `where` begins error messages.
Result<std::string> to_pcre2(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

// -- PCRE2

// in bytes after compilation, because {1000} of {1000} is a short text
constexpr size_t kMaxCode = 1 << 20;
constexpr uint32_t kMaxNesting = 50;
constexpr uint32_t kMatchLimit = 20'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackMin = 64 << 10, kJitStackMax = 8 << 20;

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>>;

std::string error_text(int code) {
  PCRE2_UCHAR buffer[160];
  const int size = pcre2_get_error_message(code, buffer, sizeof buffer);
  return size < 0 ? fmt::format("error {}", code) : std::string(reinterpret_cast<char*>(buffer));
}

template <class T>
T info(const pcre2_code* code, uint32_t what) {
  T value{};
  pcre2_pattern_info(code, what, &value);
  return value;
}

}  // namespace

struct Regex::Impl {
  Code code;
  MatchData data;
  MatchContext context;
  JitStack stack;
  std::string where;
};

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Result<Regex> Regex::compile(std::string_view pattern, const std::string& where) {
  const std::string translated = FERRY_TRY(to_pcre2(pattern, where));
  const CompileContext limits(pcre2_compile_context_create(nullptr));
  pcre2_set_parens_nest_limit(limits.get(), kMaxNesting);
  int error = 0;
  size_t offset = 0;
  auto impl = std::make_unique<Impl>();
  impl->where = where;
  impl->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, limits.get()));
  if (!impl->code) return bad_input(fmt::format("{}: regex: {}", where, error_text(error)));
  if (info<size_t>(impl->code.get(), PCRE2_INFO_SIZE) > kMaxCode) {
    return bad_input(where + ": the regex is too large");
  }
  if (info<uint32_t>(impl->code.get(), PCRE2_INFO_MATCHEMPTY) != 0) {
    return fail(ErrorCode::kUnsupported, where + ": a regex that may match nothing");
  }
  // Without a JIT compiler for the processor, the interpreter of PCRE2 gives the same matches more
  // slowly.
  pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE);
  impl->data.reset(pcre2_match_data_create(1, nullptr));
  impl->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(impl->context.get(), kMatchLimit);
  pcre2_set_heap_limit(impl->context.get(), kHeapLimitKib);
  impl->stack.reset(pcre2_jit_stack_create(kJitStackMin, kJitStackMax, nullptr));
  pcre2_jit_stack_assign(impl->context.get(), nullptr, impl->stack.get());
  return Regex(std::move(impl));
}

Status Regex::find_all(std::string_view text, std::vector<TextRange>& matches) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at < text.size();) {
    const int count = pcre2_match(impl_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                                  impl_->data.get(), impl_->context.get());
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return bad_input(fmt::format("{}: regex: {}", impl_->where, error_text(count)));
    }
    const size_t* range = pcre2_get_ovector_pointer(impl_->data.get());
    if (range[1] <= at) return bad_input(impl_->where + ": regex: an empty match");
    matches.push_back({static_cast<uint32_t>(range[0]), static_cast<uint32_t>(range[1])});
    at = range[1];
  }
  return {};
}

}  // namespace ferry::text
