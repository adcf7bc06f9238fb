#include "dialects/gguf/model/tokenizer_documents.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ferry::converters {
namespace {

using nlohmann::json;

constexpr std::string_view kWordStart = "\xe2\x96\x81";  // U+2581
constexpr const char* kContinued = "##";

json tokenizer_document(json added, json normalizer, json pre_tokenizer, json post_processor,
                        json decoder, json model) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", std::move(normalizer)},
          {"pre_tokenizer", std::move(pre_tokenizer)},
          {"post_processor", std::move(post_processor)},
          {"decoder", std::move(decoder)},
          {"model", std::move(model)}};
}

json special_step(const std::string& token, int type) {
  return {{"SpecialToken", {{"id", token}, {"type_id", type}}}};
}
json sequence_step(const char* id, int type) {
  return {{"Sequence", {{"id", id}, {"type_id", type}}}};
}

// A text stands between the two tokens; of two, the second follows with a token of its own.
json framed_text(const GgufTextFrame& frame) {
  json specials = json::object();
  for (const auto& [token, id] :
       {std::pair(frame.first, frame.first_id), std::pair(frame.last, frame.last_id)}) {
    specials[token] = {{"id", token}, {"ids", json::array({id})}, {"tokens", json::array({token})}};
  }
  const json first = special_step(frame.first, 0), last = special_step(frame.last, 0);
  return {
      {"type", "TemplateProcessing"},
      {"single", {first, sequence_step("A", 0), last}},
      {"pair",
       {first, sequence_step("A", 0), last, sequence_step("B", 1), special_step(frame.last, 1)}},
      {"special_tokens", std::move(specials)}};
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += k <= count ? kDigits[group >> (18 - 6 * k) & 63U] : '=';
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> word_piece_tokens(const std::vector<std::string>& tokens,
                                           const std::vector<bool>& keeps) {
  std::vector<std::string> spelled;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& token = tokens[i];
    if (keeps[i]) {
      spelled.push_back(token);
    } else if (token.starts_with(kWordStart)) {
      spelled.push_back(token.substr(kWordStart.size()));
    } else {
      spelled.push_back(kContinued + token);
    }
  }
  return spelled;
}

json word_piece_document(const std::vector<std::string>& tokens, const json& added,
                         const std::string& unknown, const GgufTextFrame& frame, bool lower) {
  constexpr int kMaxWord = 100;  // a constant of the reference
  json vocabulary = json::object();
  for (size_t i = 0; i < tokens.size(); ++i) vocabulary[tokens[i]] = i;
  return tokenizer_document(added,
                            {{"type", "BertNormalizer"},
                             {"clean_text", true},
                             {"handle_chinese_chars", true},
                             {"strip_accents", nullptr},
                             {"lowercase", lower}},
                            {{"type", "BertPreTokenizer"}}, framed_text(frame),
                            {{"type", "WordPiece"}, {"prefix", kContinued}, {"cleanup", true}},
                            {{"type", "WordPiece"},
                             {"unk_token", unknown},
                             {"continuing_subword_prefix", kContinued},
                             {"max_input_chars_per_word", kMaxWord},
                             {"vocab", std::move(vocabulary)}});
}

json unigram_document(const std::vector<std::string>& tokens, const std::vector<double>& scores,
                      const json& added, size_t unknown, std::string_view charsmap,
                      const json& post_processor) {
  json pieces = json::array();
  for (size_t i = 0; i < tokens.size(); ++i) pieces.push_back({tokens[i], scores[i]});
  const json meta = {{"type", "Metaspace"},
                     {"replacement", kWordStart},
                     {"prepend_scheme", "always"},
                     {"split", true}};
  json normalizer = nullptr;
  if (!charsmap.empty()) {
    normalizer = {{"type", "Precompiled"}, {"precompiled_charsmap", base64(charsmap)}};
  }
  return tokenizer_document(
      added, std::move(normalizer),
      {{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, meta}}},
      post_processor, meta,
      {{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", std::move(pieces)}});
}

}  // namespace ferry::converters
