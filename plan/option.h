// Option: the description of an option, and what visits descriptions. options.h describes those of
// a conversion.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "converters/build_options.h"
#include "core/result.h"
#include "packer/manifest.h"

namespace ferry::plan {

// Sets of program kinds.
inline constexpr unsigned kStatefulPrograms = 1, kStaticPrograms = 2, kEncoderPrograms = 4;
inline constexpr unsigned kAllPrograms = kStatefulPrograms | kStaticPrograms | kEncoderPrograms;
unsigned program_bit(converters::ProgramStyle kind);

// Sets of outputs.
inline constexpr unsigned kBundles = 1, kBundledPrograms = 2, kWeightFiles = 4, kGgufFiles = 8;
inline constexpr unsigned kAllOutputs = kBundles | kBundledPrograms | kWeightFiles | kGgufFiles;

// A value of an option that takes one of a few words.
struct OptionWord {
  std::string_view text;  // "u8"
  unsigned programs = kAllPrograms, outputs = kAllOutputs;
};

struct Option {
  std::string_view name;        // "kv-dtype"
  char letter = 0;              // 'o' for -o; 0 where there is none
  std::string_view value = {};  // what help calls the value: "FILE"; empty for the usual name
  std::string_view help = {};
  std::string_view otherwise = {};  // the default, where help shows it
  unsigned programs = kAllPrograms, outputs = kAllOutputs;
  // Why a kind of program does not take it, where there is more to say than that.
  std::vector<std::pair<unsigned, std::string_view>> refusals = {};
  std::string_view instead = {};  // the option that is meant where an output does not take this one
  int64_t least = INT64_MIN, most = INT64_MAX;
  std::string_view range = {};  // "from 1 to the number of layers"
  // Its place among the options that a manifest records; 0 where it decides no byte of a bundle, or
  // is a path. Manifests of other kinds of programs leave it out.
  int place = 0;
  unsigned recorded_for = kAllPrograms;
  std::vector<OptionWord> words = {};  // as OptionVisitor::words() is given them
};

// The field of an option, as texts.
struct OptionField {
  enum class Type : uint8_t { kFlag, kInteger, kText, kList };
  Type type = Type::kText;
  using Read = std::function<Status(const std::string& text)>;
  using Texts = std::function<std::vector<std::string>()>;
  Read read;    // sets the field, or adds to it; the message of a failure follows the option's name
  Texts texts;  // what the field holds; none where it holds no value
};

template <class T>
struct WordOf {
  OptionWord word;
  T value;
};

class OptionVisitor {
 public:
  virtual ~OptionVisitor() = default;

  // The heading of the options that follow.
  virtual void group(std::string_view /*title*/) {}

  void value(const Option& option, bool& field);
  void value(const Option& option, int32_t& field);
  void value(const Option& option, int64_t& field);
  void value(const Option& option, std::optional<int64_t>& field);
  void value(const Option& option, std::string& field);
  void value(const Option& option, std::vector<std::string>& field);
  // One of a few words, each of which stands for a value.
  template <class T>
  void words(Option option, T& field, const std::vector<WordOf<T>>& words);
  void words(const Option& option, std::string& field, const std::vector<std::string_view>& words);
  // A value of another type, and several of them.
  void text(const Option& option, OptionField::Read read, OptionField::Texts texts);
  void list(const Option& option, OptionField::Read read, OptionField::Texts texts);

 protected:
  virtual void visit(const Option& option, const OptionField& field) = 0;
};

// Options that were given, or recorded: each with one value, under its name without dashes.
using OptionTexts = std::vector<packer::ManifestOption>;

// Sets the field of each option that is among `texts`.
class OptionReader : public OptionVisitor {
 public:
  // A manifest may state the options that manifests record, and no others: it must not name files.
  enum class From : uint8_t { kCaller, kManifest };
  OptionReader(const OptionTexts& texts, From from) : texts_(texts), from_(from) {}
  Status take() { return std::move(status_); }

 private:
  void visit(const Option& option, const OptionField& field) override;
  const OptionTexts& texts_;
  From from_;
  Status status_ = {};
};

// Refuses options among `texts` that programs of `kind`, or the output, do not take.
class OptionChecker : public OptionVisitor {
 public:
  // `output` is one of the sets of outputs, and `to` its name for messages. `dashes` precede the
  // names of further options in messages.
  OptionChecker(const OptionTexts& texts, converters::ProgramStyle kind, unsigned output,
                std::string_view to, std::string_view dashes = "")
      : texts_(texts), kind_(kind), output_(output), to_(to), dashes_(dashes) {}
  Status take() { return std::move(status_); }

 private:
  void visit(const Option& option, const OptionField& field) override;
  Status check(const Option& option, const std::string& text) const;
  const OptionTexts& texts_;
  converters::ProgramStyle kind_;
  unsigned output_;
  std::string_view to_, dashes_;
  Status status_ = {};
};

// Whether a kind of program takes the option with this value.
bool takes(const Option& option, const std::string& text, unsigned program);
// The number that all of `text` is, such as "-12"; nullopt for anything else.
std::optional<int64_t> whole_number(std::string_view text);
// "stateful", as on the command line and in manifests.
std::string_view style_name(converters::ProgramStyle style);

template <class T>
void OptionVisitor::words(Option option, T& field, const std::vector<WordOf<T>>& words) {
  for (const WordOf<T>& word : words) option.words.push_back(word.word);
  const auto read = [&](const std::string& text) -> Status {
    for (const WordOf<T>& word : words) {
      if (word.word.text != text) continue;
      field = word.value;
      return {};
    }
    return fail(ErrorCode::kUsage, "no such value");
  };
  const auto texts = [&]() -> std::vector<std::string> {
    for (const WordOf<T>& word : words) {
      if (word.value == field) return {std::string(word.word.text)};
    }
    return {};
  };
  text(option, read, texts);
}

}  // namespace ferry::plan
