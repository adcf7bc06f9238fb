#include "prompt/classifier_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/text.h"
#include "core/utf8.h"
#include "prompt/embedding_text.h"
#include "prompt/image_input.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::prompt {
namespace {

// Whether the tokenizer of transformers gives types: model_input_names says so, else its class.
Result<bool> gives_types(const packer::Bundle& bundle) {
  const nlohmann::json config = FERRY_TRY(object_of_bundle(bundle, "tokenizer_config.json"));
  const auto names = config.find("model_input_names");
  if (names != config.end() && names->is_array()) {
    return std::ranges::find(*names, nlohmann::json("token_type_ids")) != names->end();
  }
  const auto stated = config.find("tokenizer_class");
  if (stated == config.end() || !stated->is_string()) return true;
  std::string name = stated->get<std::string>();
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  constexpr std::string_view kTyped[] = {"BertTokenizer", "ElectraTokenizer"};
  return std::ranges::count(kTyped, name) > 0;
}

}  // namespace

Result<ClassifierText> ClassifierText::open(const packer::Bundle& bundle, int64_t most,
                                            bool truncate) {
  text::Tokenizer tokenizer =
      FERRY_TRY(text::load_tokenizer(bundle.text_directory(), reader_of(bundle)));
  std::optional<text::Tokenizer::Cut> cut;
  if (truncate) cut = FERRY_TRY(cut_of_bundle(bundle, tokenizer.cut()));
  const bool typed = FERRY_TRY(gives_types(bundle));
  return ClassifierText(std::move(tokenizer), static_cast<size_t>(most), cut, typed);
}

Result<text::TypedTokens> ClassifierText::tokens_of(const ClassifiedText& text, bool spans) {
  text::Tokenizer::Input input = {.text = text.text, .spans = spans};
  if (text.pair) input.second = *text.pair;
  if (cut_) {
    input.most = most_;
    input.cut = *cut_;
  }
  text::TypedTokens tokens = FERRY_TRY(tokenizer_.encode(input));
  if (!typed_) tokens.types.assign(tokens.ids.size(), 0);
  if (tokens.ids.size() <= most_) return tokens;
  return Failure(
      Error{.code = ErrorCode::kUsage,
            .message = fmt::format("a text of {} tokens; the context is {}: truncate cuts it",
                                   tokens.ids.size(), most_),
            .field = "truncate"});
}

std::vector<float> scores_of(std::span<const float> outputs, std::string_view function) {
  std::vector<float> scores(outputs.begin(), outputs.end());
  if (function == "sigmoid") {
    for (float& score : scores) score = static_cast<float>(1 / (1 + std::exp(-double{score})));
  }
  if (function != "softmax" || scores.empty()) return scores;
  const double largest = std::ranges::max(scores);
  double sum = 0;
  for (const float score : scores) sum += std::exp(score - largest);
  for (float& score : scores) score = static_cast<float>(std::exp(score - largest) / sum);
  return scores;
}

}  // namespace ferry::prompt
