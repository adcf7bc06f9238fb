#include "prompt/embedding_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "core/utf8.h"
#include "prompt/image_input.h"
#include "text/chat_template/text_methods.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::prompt {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;
constexpr const char* kPrompts = "config_sentence_transformers.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

Result<std::string> prompt_of(const packer::Bundle& bundle, const EmbeddingTextOptions& options) {
  if (options.prompt) return *options.prompt;
  const nlohmann::json config = FERRY_TRY(object_of_bundle(bundle, kPrompts));
  std::string name = options.prompt_name;
  const std::string where = printable(bundle.path_of(kPrompts));
  const auto chosen = config.find("default_prompt_name");
  if (chosen != config.end() && !chosen->is_null() && !chosen->is_string()) {
    return bad_input(where + ": 'default_prompt_name' is not a string");
  }
  const auto prompts = config.find("prompts");
  if (prompts != config.end() && !prompts->is_null() && !prompts->is_object()) {
    return bad_input(where + ": 'prompts' is not an object");
  }
  if (name.empty() && chosen != config.end() && chosen->is_string()) {
    name = chosen->get<std::string>();
  }
  if (name.empty()) return std::string();
  if (prompts == config.end() || !prompts->is_object() || !prompts->contains(name)) {
    return fail(options.prompt_name.empty() ? ErrorCode::kBadInput : ErrorCode::kUsage,
                fmt::format("{}: has no prompt {}", where, quoted(name)));
  }
  const nlohmann::json& prompt = (*prompts)[name];
  if (prompt.is_string()) return prompt.get<std::string>();
  return bad_input(fmt::format("{}: prompt {} is no string", where, quoted(name)));
}

}  // namespace

Result<nlohmann::json> object_of_bundle(const packer::Bundle& bundle, const char* file) {
  if (!bundle.has_text(file)) return nlohmann::json::object();
  const std::string where = printable(bundle.path_of(file));
  const std::string text = FERRY_TRY(bundle.text(file, kMaxFileBytes));
  nlohmann::json document = FERRY_TRY(parse_json(text, where));
  return document.is_object() ? Result<nlohmann::json>(std::move(document))
                              : bad_input(where + ": not a JSON object");
}

Result<text::Tokenizer::Cut> cut_of_bundle(const packer::Bundle& bundle,
                                           std::optional<text::Tokenizer::Cut> otherwise) {
  const nlohmann::json config = FERRY_TRY(object_of_bundle(bundle, kTokenizerConfig));
  const auto side = config.find("truncation_side");
  if (side == config.end()) return otherwise.value_or(text::Tokenizer::Cut::kEnd);
  if (*side == "right") return text::Tokenizer::Cut::kEnd;
  if (*side == "left") return text::Tokenizer::Cut::kBegin;
  return bad_input(fmt::format("{}: 'truncation_side' is neither left nor right",
                               printable(bundle.path_of(kTokenizerConfig))));
}

Result<EmbeddingText> EmbeddingText::open(const packer::Bundle& bundle, int64_t most,
                                          bool is_stripped) {
  return EmbeddingText(FERRY_TRY(text::load_tokenizer(bundle.text_directory(), reader_of(bundle))),
                       static_cast<size_t>(most), is_stripped);
}

Status EmbeddingText::set(const packer::Bundle& bundle, const EmbeddingTextOptions& options) {
  prompt_ = FERRY_TRY(prompt_of(bundle, options));
  cut_.reset();
  if (options.truncate) cut_ = FERRY_TRY(cut_of_bundle(bundle, tokenizer_.cut()));
  return {};
}

Result<std::vector<int64_t>> EmbeddingText::tokens_of(const std::string& text) {
  const std::string whole = prompt_ + text;
  if (!utf8::is_valid(whole)) return bad_input("a text that is not valid UTF-8");
  std::string_view used = whole;
  if (is_stripped_) used = text::chat::strip(used, text::chat::Side::kBoth);
  if (cut_) return tokenizer_.encode_cut(used, most_, *cut_);
  std::vector<int64_t> tokens = FERRY_TRY(tokenizer_.encode(used, /*add_special=*/true));
  if (tokens.size() <= most_) return tokens;
  return Failure(Error{
      .code = ErrorCode::kUsage,
      .message =
          fmt::format("a text of {} tokens, with its prompt; the context is {}: truncate cuts it",
                      tokens.size(), most_),
      .field = "truncate"});
}

void normalize(std::vector<float>& vector) {
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * value;
  const double norm = std::max(std::sqrt(squares), 1e-12);
  for (float& value : vector) value = static_cast<float>(value / norm);
}

}  // namespace ferry::prompt
