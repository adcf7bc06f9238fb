#include "text/blank_token.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/text.h"
#include "text/chat_template/chat_template.h"
#include "text/chat_template/value.h"

namespace ferry::text {
namespace {

using chat::Value;

constexpr const char* kProcessorFile = "processor_config.json";
constexpr const char* kUsualBlank = "<blank>";
constexpr uint64_t kMostBytes = kMaxTokenizerFile;

// The members of a file; none if it is absent.
class ConfigFile {
 public:
  static Result<ConfigFile> open(const std::string& directory, const char* name,
                                 const ReadFile& read) {
    ConfigFile out;
    out.path_ = printable(directory) + "/" + name;
    const std::string text = FERRY_TRY(read(name, kMostBytes));
    if (text.empty()) return out;
    out.root_ = FERRY_TRY(chat::parse_json_value(text, out.path_));
    if (!out.root_->is<Value::DictPtr>()) return bad_input(out.path_ + ": is no JSON object");
    return out;
  }

  // Returns nullptr if there is no such member, or if it is null.
  const Value* find(const char* name) const {
    if (!root_) return nullptr;
    const Value* found = std::get<Value::DictPtr>(root_->data())->find(name);
    return found == nullptr || found->is<chat::None>() ? nullptr : found;
  }

  // Returns a text, or the content of a token; nullopt if there is no such member.
  Result<std::optional<std::string>> text(const char* name) const {
    const Value* found = find(name);
    if (found == nullptr) return std::optional<std::string>();
    if (found->is<Value::DictPtr>()) {
      found = std::get<Value::DictPtr>(found->data())->find("content");
    }
    if (found != nullptr && found->is_text()) return std::optional(found->str());
    return bad_input(fmt::format("{}: '{}' is no text", path_, name));
  }

  // Whether the file is a tokenizer.json whose model has merges.
  bool is_bpe() const {
    const Value* model = find("model");
    if (model == nullptr || !model->is<Value::DictPtr>()) return false;
    const Value* type = std::get<Value::DictPtr>(model->data())->find("type");
    return type != nullptr && type->is_text() && type->str() == "BPE";
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::optional<Value> root_;
};

// Without a statement the reference groups unless the vocabulary has the blank of a transducer.
Status check_groups(const Tokenizer& tokenizer, const ConfigFile& processor) {
  const auto type = FERRY_TRY(processor.text("decoder_type"));
  const std::string blank =
      FERRY_TRY(processor.text("blank_token")).value_or(std::string(kUsualBlank));
  if (type ? *type == "ctc" : !tokenizer.find(blank)) return {};
  return fail(ErrorCode::kUnsupported,
              type ? fmt::format("{}: 'decoder_type' is {}, not ctc: not supported",
                                 processor.path(), quoted(*type))
                   : fmt::format("{}: 'decoder_type' is missing, and the vocabulary has {}, with "
                                 "which equal labels are not one: not supported",
                                 processor.path(), quoted(blank)));
}

// The reference changes the spaces around punctuation where the file asks for it, unless the
// vocabulary is of merges.
Status check_spaces(const ConfigFile& config, const ConfigFile& tokenizer) {
  constexpr const char* kPlain = "clean_up_tokenization_spaces";
  constexpr const char* kForced =
      "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
  for (const char* name : {kPlain, kForced}) {
    const Value* stated = config.find(name);
    if (stated == nullptr || !stated->truth()) continue;
    if (name == kPlain && tokenizer.is_bpe()) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: '{}' is not false: not supported", config.path(), name));
  }
  return {};
}

}  // namespace

Result<int64_t> blank_token(const Tokenizer& tokenizer, const std::string& directory,
                            const ReadFile& read) {
  const auto processor = FERRY_TRY(ConfigFile::open(directory, kProcessorFile, read));
  const auto config = FERRY_TRY(ConfigFile::open(directory, kTokenizerConfigFile, read));
  const auto map = FERRY_TRY(ConfigFile::open(directory, kSpecialTokensMapFile, read));
  FERRY_RETURN_IF_ERROR(check_groups(tokenizer, processor));
  const auto model = FERRY_TRY(ConfigFile::open(directory, kTokenizerFile, read));
  FERRY_RETURN_IF_ERROR(check_spaces(config, model));
  const bool is_mapped =
      config.find("added_tokens_decoder") == nullptr && map.find("pad_token") != nullptr;
  const ConfigFile& file = is_mapped ? map : config;
  const auto token = FERRY_TRY(file.text("pad_token"));
  if (!token) return bad_input(file.path() + ": 'pad_token', the blank, is missing");
  const std::optional<int64_t> id = tokenizer.find(*token);
  if (id) return *id;
  return bad_input(
      fmt::format("{}: pad_token {} is not a token of the tokenizer", file.path(), quoted(*token)));
}

Result<int64_t> blank_token(const Tokenizer& tokenizer, const std::string& directory) {
  return blank_token(tokenizer, directory, files_in(directory));
}

std::vector<int64_t> collapsed(std::span<const int64_t> labels, int64_t blank) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (i > 0 && labels[i] == labels[i - 1]) continue;
    if (labels[i] != blank) out.push_back(labels[i]);
  }
  return out;
}

}  // namespace ferry::text
