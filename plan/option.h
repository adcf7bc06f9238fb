// Option describes one option of a conversion. Visitors receive the descriptions that options.h
// lists.
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

// Bits of sets of program kinds.
inline constexpr unsigned kStatefulPrograms = 1, kStaticPrograms = 2, kEncoderPrograms = 4;
inline constexpr unsigned kAllPrograms = kStatefulPrograms | kStaticPrograms | kEncoderPrograms;
unsigned program_bit(converters::ProgramStyle kind);

// Bits of sets of outputs.
inline constexpr unsigned kBundles = 1, kBundledPrograms = 2, kWeightFiles = 4, kGgufFiles = 8;
inline constexpr unsigned kAllOutputs = kBundles | kBundledPrograms | kWeightFiles | kGgufFiles;

// One of the words that an option accepts, and its meaning.
struct OptionWord {
  std::string_view text;  // "u8"
  unsigned programs = kAllPrograms, outputs = kAllOutputs;
};

struct Option {
  std::string_view name;  // without dashes, such as "kv-dtype"
  char letter = 0;        // 'o' for -o; 0 where there is none
  // The name of the value in help, such as "FILE"; empty: the default name.
  std::string_view value = {};
  bool is_model = false;  // a model, which may be named as in the Hugging Face cache
  std::string_view help = {};
  std::string_view otherwise = {};  // the default value, if help shows one
  unsigned programs = kAllPrograms, outputs = kAllOutputs;
  // Program kinds that refuse the option for a reason that the message should give, and the reason.
  std::vector<std::pair<unsigned, std::string_view>> refusals = {};
  std::string_view instead = {};  // the option to use instead, for outputs that refuse this one
  int64_t least = INT64_MIN, most = INT64_MAX;
  // The accepted values in words, such as "from 1 to the number of layers".
  std::string_view range = {};
  // The position of the option in manifests. 0 if manifests do not record it, because it decides no
  // byte of a bundle or is a path. A manifest leaves out options that its program kind does not
  // accept.
  int place = 0;
  unsigned recorded_for = kAllPrograms;
  std::vector<OptionWord> words = {};  // the accepted words, as given to OptionVisitor::words()
};

// Access to the field of an option as text.
struct OptionField {
  enum class Type : uint8_t { kFlag, kInteger, kText, kList };
  Type type = Type::kText;
  using Read = std::function<Status(const std::string& text)>;
  using Texts = std::function<std::vector<std::string>()>;
  // Sets the field or adds to it; the message of an error continues the name of the option.
  Read read;
  Texts texts;  // the values that the field holds; empty if it holds none
};

template <class T>
struct WordOf {
  OptionWord word;
  T value;
};

class OptionVisitor {
 public:
  virtual ~OptionVisitor() = default;

  // Announces the heading of the options that follow.
  virtual void group(std::string_view /*title*/) {}

  void value(const Option& option, bool& field);
  void value(const Option& option, int32_t& field);
  void value(const Option& option, int64_t& field);
  void value(const Option& option, std::optional<int64_t>& field);
  void value(const Option& option, std::string& field);
  void value(const Option& option, std::vector<std::string>& field);
  // Describes an option that accepts a few words, each of which stands for a value.
  template <class T>
  void words(Option option, T& field, const std::vector<WordOf<T>>& words);
  void words(const Option& option, std::string& field, const std::vector<std::string_view>& words);
  // Describes options of other types, with one value or with several.
  void text(const Option& option, OptionField::Read read, OptionField::Texts texts);
  void list(const Option& option, OptionField::Read read, OptionField::Texts texts);

 protected:
  virtual void visit(const Option& option, const OptionField& field) = 0;
};

// Options that were given or recorded, each with one value and a name without dashes.
using OptionTexts = std::vector<packer::ManifestOption>;

// Sets the field of each option that is in `texts`.
class OptionReader : public OptionVisitor {
 public:
  // kManifest accepts only the options that manifests record, because a manifest must not name
  // files.
  enum class From : uint8_t { kCaller, kManifest };
  OptionReader(const OptionTexts& texts, From from) : texts_(texts), from_(from) {}
  Status take() { return std::move(status_); }

 private:
  void visit(const Option& option, const OptionField& field) override;
  const OptionTexts& texts_;
  From from_;
  Status status_ = {};
};

// Refuses options in `texts` that programs of `kind`, or the output, do not accept.
class OptionChecker : public OptionVisitor {
 public:
  // `output` is one bit of the sets of outputs; `to` is its name in messages. `dashes` is put
  // before the names of other options in messages.
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

// Whether the program kind accepts the option with this value.
bool takes(const Option& option, const std::string& text, unsigned program);
// Parses a whole number, such as "-12"; nullopt if `text` is anything else.
std::optional<int64_t> whole_number(std::string_view text);
// The name of a program kind on the command line and in manifests, such as "stateful".
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
