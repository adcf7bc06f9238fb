#include "cli/other_tools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "batch/shell.h"
#include "cli/other_draft.h"
#include "cli/other_names.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

using Words = std::vector<std::string>;

bool is_option(const std::string& word) { return word.size() > 1 && word.starts_with('-'); }

// Whether the word is a setting of export_llm, such as "base.checkpoint=model.pth".
bool is_setting(const std::string& word) {
  const size_t equals = word.find('='), dot = word.find('.');
  return dot != std::string::npos && equals != std::string::npos && dot < equals &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::islower(c) != 0 || c == '_' || c == '.'; });
}

// Removes what starts another program: "python3 -m", "./" and ".py".
void strip_start(Words& words) {
  const auto is_python = [](const std::string& word) {
    return word == "python" || word == "python3" || word == "uvx" || word == "uv";
  };
  const size_t typed = words.size();
  while (!words.empty() && is_python(words.front())) words.erase(words.begin());
  const bool by_python = words.size() < typed;
  if (words.empty()) return;
  if (by_python && words.size() > 1 && words.front() == "-m") {
    words.erase(words.begin());
  }
  std::string& first = words.front();
  if (is_option(first)) return;
  if (first.find('/') != std::string::npos) first = base_name(first);
  if (first.ends_with(".py")) first.resize(first.size() - 3);
}

class ForeignLineReader {
 public:
  ForeignLineReader(Words words, const LineSpec& spec) : words_(std::move(words)), spec_(spec) {}

  std::optional<MeantLine> read() {
    if (!find_verb_of_line()) return std::nullopt;
    narrow();
    while (at_ < words_.size()) {
      if (!read_word()) return std::nullopt;
    }
    for (const std::string& word : global_) draft_.options.push_back(word);
    add_commands(draft_);
    return std::move(draft_.meant);
  }

 private:
  bool find_verb_of_line();
  void take_global_flags();
  void narrow();
  bool read_word();
  bool read_option(const std::string& word);
  bool keep(const OptionSpec& own, const std::string& name, const std::string* value);
  bool take(const OtherOption& other, const std::string& name, const std::string* value);
  void set(const OtherOption& other, const std::string& name, const std::string& value);
  void leave_out(const std::string& name, const std::string* value);
  const OptionSpec* own_option(std::string_view name) const;
  const OtherOption* other_option(std::string_view name) const;

  Words words_, global_;
  const LineSpec& spec_;
  const VerbSpec* verb_ = nullptr;
  OtherDraft draft_;
  size_t at_ = 0;
  bool is_narrowed_ = false;
};

// Flags of every verb may stand before the verb.
void ForeignLineReader::take_global_flags() {
  const auto is_global = [this](const std::string& word) {
    return std::ranges::any_of(spec_.options, [&](const OptionSpec& option) {
      return option.is_flag() && std::ranges::count(option.names, word) > 0;
    });
  };
  while (!words_.empty() && is_global(words_.front())) {
    global_.push_back(words_.front());
    words_.erase(words_.begin());
  }
}

bool ForeignLineReader::find_verb_of_line() {
  take_global_flags();
  strip_start(words_);
  if (words_.empty()) return false;
  const OtherProgram* best = nullptr;
  size_t length = 0;
  for (const OtherProgram& program : other_programs()) {
    const auto count = static_cast<size_t>(std::ranges::count(program.words, ' ')) + 1;
    if (count <= length || count > words_.size()) continue;
    std::string start;
    for (size_t i = 0; i < count; ++i) start += (i == 0 ? "" : " ") + words_[i];
    if (start != program.words) continue;
    best = &program;
    length = count;
  }
  if (const VerbSpec* own = find_verb(spec_, {words_.front()}); own != nullptr) {
    draft_.is_own = true;
    draft_.verb = own->name;
    for (unsigned bit = 1; bit < kEveryTool; bit <<= 1U) {
      const auto tool = static_cast<Tool>(bit);
      if (verb_of(tool) == own->name && tool != kLlamaBench) draft_.tools |= bit;
    }
    length = 1;
    if (draft_.tools == 0) return false;
  } else if (best != nullptr) {
    draft_.tools = best->tools;
    if (!best->note.empty()) draft_.meant.notes.emplace_back(best->note);
  } else if (is_option(words_.front())) {
    draft_.tools = kLlamaCli | kMlxGenerate;
  } else {
    return false;
  }
  at_ = length;
  if (draft_.verb.empty()) {
    draft_.verb = verb_of(static_cast<Tool>(draft_.tools & (~draft_.tools + 1)));
  }
  verb_ = find_verb(spec_, {draft_.verb});
  return verb_ != nullptr;
}

// Keeps the tools that have the options which Ferry has not.
void ForeignLineReader::narrow() {
  const unsigned before = draft_.tools;
  for (size_t i = at_; i < words_.size(); ++i) {
    if (!is_option(words_[i]) && !is_setting(words_[i])) continue;
    const std::string name = words_[i].substr(0, words_[i].find('='));
    if (own_option(name) != nullptr) continue;
    unsigned tools = 0;
    for (const OtherOption& other : other_options()) {
      if (other.name == name) tools |= other.tools;
    }
    if ((tools & draft_.tools) != 0) draft_.tools &= tools;
  }
  is_narrowed_ = draft_.tools != before && std::popcount(draft_.tools) == 1;
}

const OptionSpec* ForeignLineReader::own_option(std::string_view name) const {
  for (const std::vector<OptionSpec>* options : {&verb_->options, &spec_.options}) {
    for (const OptionSpec& option : *options) {
      if (std::ranges::count(option.names, name) > 0) return &option;
    }
  }
  return nullptr;
}

const OtherOption* ForeignLineReader::other_option(std::string_view name) const {
  for (const OtherOption& other : other_options()) {
    if (other.name == name && (other.tools & draft_.tools) != 0) return &other;
  }
  return nullptr;
}

bool ForeignLineReader::read_word() {
  const std::string word = words_[at_++];
  if (is_option(word) || is_setting(word)) return read_option(word);
  draft_.positionals.push_back(word);
  return true;
}

bool ForeignLineReader::read_option(const std::string& word) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const std::string inline_value = equals == std::string::npos ? "" : word.substr(equals + 1);
  const std::string* value = equals == std::string::npos ? nullptr : &inline_value;
  const OptionSpec* own = own_option(name);
  const OtherOption* other = other_option(name);
  if (own == nullptr && other == nullptr) return false;
  // Words such as float16 are translated wherever they stand.
  const bool translates = other != nullptr && (other->becomes == Becomes::kDType ||
                                               other->becomes == Becomes::kOutType);
  const bool prefers_other = !draft_.is_own || is_narrowed_ || translates;
  if (own != nullptr && (other == nullptr || !prefers_other)) return keep(*own, name, value);
  return take(*other, name, value);
}

bool ForeignLineReader::keep(const OptionSpec& own, const std::string& name,
                             const std::string* value) {
  draft_.options.push_back(name);
  if (own.is_flag()) return value == nullptr;
  if (value == nullptr && at_ == words_.size()) return false;
  draft_.options.push_back(value != nullptr ? *value : words_[at_++]);
  return true;
}

void ForeignLineReader::leave_out(const std::string& name, const std::string* value) {
  draft_.meant.left_out.push_back(name);
  if (value != nullptr) draft_.meant.left_out.push_back(*value);
}

bool ForeignLineReader::take(const OtherOption& other, const std::string& name,
                             const std::string* value) {
  switch (other.becomes) {
    case Becomes::kNothing:
      leave_out(name, value);
      return true;
    case Becomes::kFlag:
      draft_.options.emplace_back(other.ours);
      return true;
    case Becomes::kQuantize:
      draft_.quantizes = true;
      return true;
    case Becomes::kNothingMaybe: {
      const bool takes = value == nullptr && at_ < words_.size() && !is_option(words_[at_]) &&
                         (words_[at_] == "on" || words_[at_] == "off" || words_[at_] == "auto" ||
                          words_[at_] == "true" || words_[at_] == "false");
      leave_out(name, takes ? &words_[at_++] : value);
      return true;
    }
    default:
      break;
  }
  if (value == nullptr && at_ == words_.size()) return false;
  const std::string text = value != nullptr ? *value : words_[at_++];
  set(other, name, text);
  return true;
}

void ForeignLineReader::set(const OtherOption& other, const std::string& name,
                            const std::string& value) {
  OtherDraft& d = draft_;
  const bool is_number = !value.empty() && std::ranges::all_of(value, [](unsigned char c) {
    return std::isdigit(c) != 0;
  });
  switch (other.becomes) {
    case Becomes::kModelOrTokens:
      if (!is_number) {
        d.source = value;
        break;
      }
      [[fallthrough]];
    case Becomes::kOption:
      // -1 means "no limit" or "some seed" elsewhere, which Ferry says by leaving the option out.
      if (own_option(other.ours) == nullptr || value == "-1") return leave_out(name, &value);
      d.options.emplace_back(other.ours);
      d.options.push_back(value);
      break;
    case Becomes::kSource: {
      const std::string_view known = hub_name_of_class(value);
      if (d.source.empty() || known.empty()) d.source = known.empty() ? value : std::string(known);
      break;
    }
    case Becomes::kFile:
      d.file = value;
      break;
    case Becomes::kRevision:
      d.revision = value;
      break;
    case Becomes::kOut:
      d.out = value;
      break;
    case Becomes::kDType:
      d.dtype = value;
      break;
    case Becomes::kOutType:
      d.out_type = value;
      break;
    case Becomes::kScheme:
      d.scheme = value;
      break;
    case Becomes::kEmbedding:
      d.embedding = value;
      break;
    case Becomes::kBits:
      d.bits = value;
      break;
    case Becomes::kGroup:
      d.group = value;
      break;
    case Becomes::kKvBits: {
      const char* bits = value.starts_with("q8") ? "8" : value.starts_with("q4") ? "4" : nullptr;
      if (bits == nullptr || own_option(other.ours) == nullptr) return leave_out(name, &value);
      // The type of keys comes before that of values, which follows a comma where it differs.
      const auto keys = std::ranges::find(d.options, other.ours);
      if (keys == d.options.end()) {
        d.options.insert(d.options.end(), {std::string(other.ours), bits});
      } else if (keys[1] != bits) {
        keys[1] += fmt::format(",{}", bits);
      }
      break;
    }
    case Becomes::kTokenizer:
      d.tokenizer = value;
      break;
    case Becomes::kPrompt:
      d.prompt = value;
      break;
    case Becomes::kText:
      d.text = value;
      break;
    default:
      leave_out(name, &value);
  }
}

// Reads a line of another tool by the tables of other_names.h, and says the same as lines of Ferry.
// Returns nullopt if a word of the line is unknown. The commands may still be none of Ferry's.
std::optional<MeantLine> translate_line(const std::vector<std::string>& words,
                                        const LineSpec& spec) {
  return ForeignLineReader(words, spec).read();
}

// Whether a text can be shown as it is, so that what is copied is what was meant.
bool is_showable(const std::string& word) {
  constexpr size_t kMost = 1000;
  std::string rest = word;
  std::erase_if(rest, [](char c) { return c == '\'' || c == '"' || c == '\\'; });
  return word.size() <= kMost && printable(rest) == rest;
}

}  // namespace

std::vector<std::string> meant_lines(const std::vector<std::string>& words, const LineSpec& spec,
                                     const std::function<bool(const Words&)>& accepts) {
  const std::optional<MeantLine> meant = translate_line(words, spec);
  if (!meant) return {};
  std::vector<std::string> lines;
  for (const Words& command : meant->commands) {
    if (!std::ranges::all_of(command, is_showable) || !accepts(command)) return {};
    lines.push_back(fmt::format("{}: ferry {}", lines.empty() ? "did you mean" : "and then",
                                batch::shell_line(command)));
  }
  if (!meant->left_out.empty() && std::ranges::all_of(meant->left_out, is_showable)) {
    lines.push_back(fmt::format("without an equivalent: {}", batch::shell_line(meant->left_out)));
  }
  for (const std::string& note : meant->notes) {
    if (is_showable(note)) lines.push_back(note);
  }
  return lines;
}

}  // namespace ferry::cli
