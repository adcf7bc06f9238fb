#include "card/facts.h"

#include <fmt/format.h>
#include <yaml.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/text.h"

namespace ferry::card {
namespace {

// Reads the YAML at the head of a model card (README.md), as Hugging Face's tools find it: between
// two lines `---`, the first of which begins the text. The text is untrusted. This wraps libyaml.

// Longer front matter is refused without being parsed.
constexpr uint64_t kMaxFrontMatterBytes = uint64_t{1} << 20;
// Deeper nesting is refused.
constexpr int kMaxFrontMatterDepth = 32;

// The value of a key of the outermost mapping.
struct FrontMatterValue {
  enum class Kind {
    kScalar,  // one text
    kList,    // a list of texts
    kOther,   // a mapping, a nested list, or a value with an alias
  };
  Kind kind = Kind::kScalar;
  // Texts as they are written: `no` stays "no". A plain null (empty, "~", "null") is left out.
  std::vector<std::string> texts = {};
  uint64_t line = 0;  // line of the key in the file, from 1
};
using FrontMatter = std::map<std::string, FrontMatterValue, std::less<>>;

// The text between the two lines, and the line of the file in which it begins.
struct Head {
  std::string_view yaml;
  uint64_t line = 0;
};

bool is_fence(std::string_view line) { return line == "---" || line == "---\r"; }

std::optional<Head> head_of(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Head head;
  std::string_view line;
  // Hugging Face's tools skip white space before the first fence.
  do {
    if (text.empty()) return std::nullopt;
    line = take_line(text);
    ++head.line;
  } while (line.find_first_not_of(" \t\r") == std::string_view::npos);
  if (!is_fence(line)) return std::nullopt;
  head.yaml = text;
  ++head.line;
  while (!text.empty()) {
    const auto size = static_cast<size_t>(text.data() - head.yaml.data());
    if (!is_fence(take_line(text))) continue;
    head.yaml = head.yaml.substr(0, size);
    return head;
  }
  return std::nullopt;
}

// Owns a parser, and the event that it read last.
class Events {
 public:
  explicit Events(std::string_view yaml) : ok_(yaml_parser_initialize(&parser_) == 1) {
    if (!ok_) return;
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(yaml.data()),
                                 yaml.size());
  }
  ~Events() {
    yaml_event_delete(&event_);
    if (ok_) yaml_parser_delete(&parser_);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  bool next() {
    yaml_event_delete(&event_);
    return ok_ && yaml_parser_parse(&parser_, &event_) == 1;
  }
  const yaml_event_t& event() const { return event_; }
  uint64_t line() const { return event_.start_mark.line; }
  uint64_t problem_line() const { return parser_.problem_mark.line; }
  std::string problem() const {
    return ok_ && parser_.problem != nullptr ? parser_.problem : "not enough memory";
  }

 private:
  yaml_parser_t parser_ = {};
  yaml_event_t event_ = {};
  bool ok_;
};

std::string text_of(const yaml_event_t& event) {
  const auto& scalar = event.data.scalar;
  return {reinterpret_cast<const char*>(scalar.value), scalar.length};
}

// Whether a scalar is one of YAML's ways to write that there is no value.
bool is_null(const yaml_event_t& event) {
  if (event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
  const std::string text = text_of(event);
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

class FrontMatterReader {
 public:
  FrontMatterReader(const Head& head, const std::string& name)
      : events_(head.yaml), name_(name), first_line_(head.line) {}

  Result<FrontMatter> read() {
    FERRY_RETURN_IF_ERROR(advance());  // the stream begins
    FERRY_RETURN_IF_ERROR(advance());
    if (type() == YAML_STREAM_END_EVENT) return std::move(out_);
    FERRY_RETURN_IF_ERROR(advance());  // the document has begun
    if (type() == YAML_SCALAR_EVENT && is_null(events_.event())) return std::move(out_);
    if (type() != YAML_MAPPING_START_EVENT) return wrong("it is not a mapping of keys to values");
    FERRY_RETURN_IF_ERROR(advance());
    while (type() != YAML_MAPPING_END_EVENT) {
      FERRY_RETURN_IF_ERROR(read_member());
      FERRY_RETURN_IF_ERROR(advance());
    }
    FERRY_RETURN_IF_ERROR(advance());  // the document ends
    FERRY_RETURN_IF_ERROR(advance());
    if (type() != YAML_STREAM_END_EVENT) return wrong("there is a second document");
    return std::move(out_);
  }

 private:
  yaml_event_type_t type() const { return events_.event().type; }

  Failure at(uint64_t line, const std::string& what) const {
    return bad_input(fmt::format("{}: front matter, line {}: {}", name_, first_line_ + line, what));
  }
  Failure wrong(const std::string& what) const { return at(events_.line(), what); }

  Status advance() {
    if (events_.next()) return {};
    return at(events_.problem_line(), fmt::format("not YAML: {}", printable(events_.problem())));
  }

  Status read_member() {
    if (type() != YAML_SCALAR_EVENT) return wrong("a key is not a text");
    const std::string key = text_of(events_.event());
    FrontMatterValue value{.line = first_line_ + events_.line()};
    if (out_.contains(key)) return wrong(fmt::format("{} is there twice", quoted(key, 60)));
    FERRY_RETURN_IF_ERROR(advance());
    FERRY_RETURN_IF_ERROR(read_value(value));
    out_.emplace(key, std::move(value));
    return {};
  }

  // The last event that this reads is the end of the value.
  Status read_value(FrontMatterValue& value) {
    using Kind = FrontMatterValue::Kind;
    if (type() == YAML_SCALAR_EVENT) {
      add_text(value);
      return {};
    }
    value.kind = type() == YAML_SEQUENCE_START_EVENT ? Kind::kList : Kind::kOther;
    int depth = 0;
    while (true) {
      if (is_start()) {
        if (++depth > 1) value.kind = Kind::kOther;
        if (depth > kMaxFrontMatterDepth) {
          return wrong(fmt::format("nested more than {} deep", kMaxFrontMatterDepth));
        }
      } else if (is_end()) {
        --depth;
      } else if (type() == YAML_SCALAR_EVENT) {
        if (value.kind == Kind::kList) add_text(value);
      } else {
        value.kind = Kind::kOther;  // an alias
      }
      if (depth == 0) break;
      FERRY_RETURN_IF_ERROR(advance());
    }
    if (value.kind == Kind::kOther) value.texts.clear();
    return {};
  }

  void add_text(FrontMatterValue& value) const {
    if (!is_null(events_.event())) value.texts.push_back(text_of(events_.event()));
  }
  bool is_start() const {
    return type() == YAML_SEQUENCE_START_EVENT || type() == YAML_MAPPING_START_EVENT;
  }
  bool is_end() const {
    return type() == YAML_SEQUENCE_END_EVENT || type() == YAML_MAPPING_END_EVENT;
  }

  Events events_;
  const std::string& name_;
  uint64_t first_line_;
  FrontMatter out_;
};

// Returns an empty map for a text without front matter. `name` begins the messages. kBadInput, with
// the line, for YAML that libyaml refuses, for anything but one mapping, for a key that is not a
// text or is there twice, and beyond the limits above.
Result<FrontMatter> read_front_matter(std::string_view text, const std::string& name) {
  const std::optional<Head> head = head_of(text);
  if (!head) return FrontMatter{};
  if (head->yaml.size() > kMaxFrontMatterBytes) {
    return bad_input(fmt::format("{}: front matter of {} bytes; at most {} are read", name,
                                 head->yaml.size(), kMaxFrontMatterBytes));
  }
  return FrontMatterReader(*head, name).read();
}

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
