#include "plan/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::plan {
namespace {

using converters::ProgramStyle;
using Type = OptionField::Type;

Result<int64_t> read_integer(const Option& option, const std::string& text) {
  const std::optional<int64_t> number = whole_number(text);
  if (!number) return fail(ErrorCode::kUsage, quoted(text) + " is not a whole number");
  if (*number >= option.least && *number <= option.most) return *number;
  return fail(ErrorCode::kUsage, fmt::format("{}: must be {}", *number, option.range));
}

std::vector<std::string> number_text(std::optional<int64_t> number) {
  return number ? std::vector{std::to_string(*number)} : std::vector<std::string>();
}

OptionField integer_field(const Option& option, std::function<void(int64_t)> set,
                          OptionField::Texts texts) {
  const auto read = [&option, set = std::move(set)](const std::string& text) -> Status {
    set(FERRY_TRY(read_integer(option, text)));
    return {};
  };
  return {.type = Type::kInteger, .read = read, .texts = std::move(texts)};
}

}  // namespace

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool takes(const Option& option, const std::string& text, unsigned program) {
  const auto word = std::ranges::find(option.words, text, &OptionWord::text);
  return (option.programs & program) != 0 &&
         (word == option.words.end() || (word->programs & program) != 0);
}

unsigned program_bit(ProgramStyle kind) {
  switch (kind) {
    case ProgramStyle::kStatic:
      return kStaticPrograms;
    case ProgramStyle::kEncoder:
      return kEncoderPrograms;
    case ProgramStyle::kStateful:
      break;
  }
  return kStatefulPrograms;
}

std::string_view style_name(ProgramStyle style) {
  switch (style) {
    case ProgramStyle::kStatic:
      return kStaticStyle;
    case ProgramStyle::kEncoder:
      return kEncoderStyle;
    case ProgramStyle::kStateful:
      break;
  }
  return kStatefulStyle;
}

void OptionVisitor::value(const Option& option, bool& field) {
  visit(option, {.type = Type::kFlag,
                 .read = [&field](const std::string& text) -> Status {
                   if (text != "true" && text != "false") {
                     return fail(ErrorCode::kUsage, quoted(text) + ": must be true or false");
                   }
                   field = text == "true";
                   return {};
                 },
                 .texts = [&field] { return std::vector<std::string>{field ? "true" : "false"}; }});
}
void OptionVisitor::value(const Option& option, std::optional<int64_t>& field) {
  visit(option, integer_field(
                    option, [&field](int64_t number) { field = number; },
                    [&field] { return number_text(field); }));
}
void OptionVisitor::value(const Option& option, int64_t& field) {
  visit(option, integer_field(
                    option, [&field](int64_t number) { field = number; },
                    [&field] { return number_text(field); }));
}
void OptionVisitor::value(const Option& option, int32_t& field) {
  Option narrow = option;
  narrow.most = std::min<int64_t>(narrow.most, INT32_MAX);
  narrow.least = std::max<int64_t>(narrow.least, INT32_MIN);
  visit(narrow, integer_field(
                    narrow, [&field](int64_t number) { field = static_cast<int32_t>(number); },
                    [&field] { return number_text(field); }));
}
void OptionVisitor::value(const Option& option, std::string& field) {
  text(
      option,
      [&field](const std::string& text) -> Status {
        field = text;
        return {};
      },
      [&field] { return field.empty() ? std::vector<std::string>() : std::vector{field}; });
}
void OptionVisitor::value(const Option& option, std::vector<std::string>& field) {
  list(
      option,
      [&field](const std::string& text) -> Status {
        field.push_back(text);
        return {};
      },
      [&field] { return field; });
}
void OptionVisitor::words(const Option& option, std::string& field,
                          const std::vector<std::string_view>& words) {
  std::vector<WordOf<std::string>> all;
  for (const std::string_view word : words) all.push_back({{word}, std::string(word)});
  this->words<std::string>(option, field, all);
}
void OptionVisitor::text(const Option& option, OptionField::Read read, OptionField::Texts texts) {
  visit(option, {.type = Type::kText, .read = std::move(read), .texts = std::move(texts)});
}
void OptionVisitor::list(const Option& option, OptionField::Read read, OptionField::Texts texts) {
  visit(option, {.type = Type::kList, .read = std::move(read), .texts = std::move(texts)});
}

void OptionReader::visit(const Option& option, const OptionField& field) {
  if (from_ == From::kManifest && option.place == 0) return;
  for (const packer::ManifestOption& given : texts_) {
    if (!status_ || given.name != option.name) continue;
    if (const Status read = field.read(given.value); !read) {
      status_ = fail_field(ErrorCode::kUsage, std::string(option.name), " " + read.error().message);
    }
  }
}

Status OptionChecker::check(const Option& option, const std::string& text) const {
  const auto refuse = [&](const std::string& rest) {
    return fail_field(ErrorCode::kUsage, std::string(option.name), rest);
  };
  const auto word = std::ranges::find(option.words, text, &OptionWord::text);
  const bool is_word = word != option.words.end();
  const unsigned outputs = option.outputs & (is_word ? word->outputs : kAllOutputs);
  if ((outputs & output_) == 0) {
    if (!option.instead.empty()) {
      return refuse(fmt::format(": with {}to {} give {}{}", dashes_, to_, dashes_, option.instead));
    }
    if (outputs == kGgufFiles) return refuse(fmt::format(": only with {}to gguf", dashes_));
    return refuse(fmt::format(": not with {}to {}", dashes_, to_));
  }
  const unsigned program = program_bit(kind_);
  if (takes(option, text, program)) return {};
  // The words of this option that programs of this kind accept.
  std::vector<std::string_view> others;
  for (const OptionWord& other : option.words) {
    if ((option.programs & other.programs & program) != 0) others.push_back(other.text);
  }
  const std::string given = others.empty() ? "" : " " + text;
  for (const auto& [refusing, why] : option.refusals) {
    if ((refusing & program) != 0) return refuse(fmt::format("{}: {}", given, why));
  }
  const unsigned programs = option.programs & (is_word ? word->programs : kAllPrograms);
  std::string but;
  if (others.size() > 1) {
    const std::string_view last = others.back();
    others.pop_back();
    but = fmt::format("; {} programs take {} or {}", style_name(kind_), fmt::join(others, ", "),
                      last);
  }
  for (const ProgramStyle only : {ProgramStyle::kStateful, ProgramStyle::kStatic}) {
    if (programs != program_bit(only)) continue;
    return refuse(
        fmt::format("{}: only with {}program {}{}", given, dashes_, style_name(only), but));
  }
  return refuse(fmt::format("{}: not with {}program {}{}", given, dashes_, style_name(kind_), but));
}

void OptionChecker::visit(const Option& option, const OptionField& /*field*/) {
  for (const packer::ManifestOption& given : texts_) {
    if (status_ && given.name == option.name) status_ = check(option, given.value);
  }
}

}  // namespace ferry::plan
