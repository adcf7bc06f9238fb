#include "dialects/gguf/model/adopt.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "converters/config/json_fields.h"
#include "core/text.h"
#include "core/utf8.h"
#include "dialects/gguf/model/tokenizer_documents.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

constexpr IntRange kTokenIds = {0, INT32_MAX};
// Longer tokens are whole words of white space or noise; splitting them takes quadratic time.
constexpr size_t kMaxMergedBytes = 128;
constexpr const char* kSpace = "\xe2\x96\x81";  // U+2581, a space in SentencePiece

// Values of tokenizer.ggml.token_type.
enum TokenType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// Keys that name a token by its id, and the members of tokenizer_config.json for that token.
struct SpecialKey {
  const char* gguf;
  const char* hf;
};
constexpr SpecialKey kSpecials[] = {{"tokenizer.ggml.bos_token_id", "bos_token"},
                                    {"tokenizer.ggml.eos_token_id", "eos_token"},
                                    {"tokenizer.ggml.padding_token_id", "pad_token"},
                                    {"tokenizer.ggml.unknown_token_id", "unk_token"},
                                    {"tokenizer.ggml.cls_token_id", "cls_token"},
                                    {"tokenizer.ggml.seperator_token_id", "sep_token"},
                                    {"tokenizer.ggml.mask_token_id", "mask_token"}};

// A pre-tokenizer that tokenizer.ggml.pre names.
struct PreTokenizer {
  std::string_view name;
  const char* pattern;  // null: the pattern of the byte level itself
  bool digits = false;  // digits are split one by one before
  bool nfc = false;
  bool whole_words = false;  // a word that is a token is not merged
  bool bos = false;          // default of add_bos_token
  bool framed = false;       // texts stand between two tokens
};

constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "llama-bpe", .pattern = kLlama3Pattern, .whole_words = true, .bos = true},
    {.name = "llama3", .pattern = kLlama3Pattern, .whole_words = true, .bos = true},
    {.name = "llama-v3", .pattern = kLlama3Pattern, .whole_words = true, .bos = true},
    {.name = "qwen2", .pattern = kQwen2Pattern, .nfc = true},
    {.name = "deepseek-r1-qwen", .pattern = kQwen2Pattern, .nfc = true},
    {.name = "qwen35", .pattern = kQwen35Pattern, .nfc = true},
    {.name = "smollm", .pattern = nullptr, .digits = true},
    {.name = "gpt-2", .pattern = nullptr},
    {.name = "roberta-bpe", .pattern = nullptr, .framed = true},
    {.name = "modern-bert", .pattern = nullptr, .nfc = true, .framed = true},
};

json byte_level(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

json replace(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

class TokenizerMaker {
 public:
  TokenizerMaker(const json& metadata, const std::string& name) : fields_(metadata, name, "") {}

  Result<GgufTokenizer> run() {
    const auto model = FERRY_TRY(fields_.text("tokenizer.ggml.model"));
    if (!model || !fields_.find("tokenizer.ggml.tokens")) {
      return none("the metadata have no tokenizer");
    }
    FERRY_RETURN_IF_ERROR(read_tokens());
    if (!trouble_.empty()) return none(trouble_);
    json document;
    if (*model == "gpt2") {
      document = FERRY_TRY(byte_level_bpe());
    } else if (*model == "llama") {
      document = FERRY_TRY(sentence_piece());
    } else if (*model == "bert") {
      document = FERRY_TRY(word_piece());
    } else if (*model == "t5") {
      document = FERRY_TRY(unigram());
    } else if (*model == "gemma4") {
      document = FERRY_TRY(spaced_bpe());
    } else {
      return none(fmt::format("tokenizer.ggml.model {} is not known", quoted(*model)));
    }
    if (!trouble_.empty()) return none(trouble_);
    GgufTokenizer out;
    out.tokenizer = document.dump() + "\n";
    out.tokenizer_config = FERRY_TRY(config()).dump(2) + "\n";
    return out;
  }

 private:
  static GgufTokenizer none(std::string why) {
    GgufTokenizer out;
    out.missing = std::move(why);
    return out;
  }

  // -- the lists of the metadata

  Result<std::vector<std::string>> strings(const char* key) const {
    const json* list = fields_.find(key);
    std::vector<std::string> out;
    if (!list) return out;
    if (!list->is_array()) return fields_.bad(key, "is not an array");
    for (const json& item : *list) {
      if (!item.is_string()) return fields_.bad(key, "has an element that is not a string");
      out.push_back(item.get<std::string>());
    }
    return out;
  }

  // Returns one number per token, or none at all.
  template <class T>
  Result<std::vector<T>> numbers(const char* key) const {
    const json* list = fields_.find(key);
    std::vector<T> out;
    if (!list) return out;
    if (!list->is_array() || list->size() != tokens_.size()) {
      return fields_.bad(key, "is not an array of one element per token");
    }
    for (const json& item : *list) {
      if (!item.is_number()) return fields_.bad(key, "has an element that is not a number");
      out.push_back(item.get<T>());
    }
    return out;
  }

  Status read_tokens() {
    tokens_ = FERRY_TRY(strings("tokenizer.ggml.tokens"));
    types_ = FERRY_TRY(numbers<int64_t>("tokenizer.ggml.token_type"));
    if (types_.empty()) types_.assign(tokens_.size(), kNormal);
    scores_ = FERRY_TRY(numbers<double>("tokenizer.ggml.scores"));
    int64_t last_named = -1;
    for (const SpecialKey& special : kSpecials) {
      if (FERRY_TRY(is_no_token(special.gguf))) continue;
      last_named = std::max(last_named, FERRY_TRY(fields_.integer_or(special.gguf, kTokenIds, -1)));
    }
    while (std::ssize(types_) > last_named + 1 && types_.back() == kUnused) {
      types_.pop_back();
      tokens_.pop_back();
    }
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (!utf8::is_valid(tokens_[i])) {
        trouble_ = fmt::format("token {} is not UTF-8", i);
      } else if (!ids_.emplace(tokens_[i], i).second) {
        trouble_ = fmt::format("two tokens are {}", quoted(tokens_[i], 40));
      }
    }
    return {};
  }

  // Returns the token that a key names by its id.
  Result<std::optional<std::string>> special(const char* key) const {
    const auto id = FERRY_TRY(fields_.integer(key, kTokenIds));
    if (!id) return std::nullopt;
    if (static_cast<size_t>(*id) < tokens_.size()) return tokens_[static_cast<size_t>(*id)];
    return fields_.bad(key, fmt::format("is {}, but there are {} tokens", *id, tokens_.size()));
  }

  // llama.cpp takes a mask or separator that is no token for none, where the type of the vocabulary
  // has no other by default. Its converter writes what the config says, whatever the vocabulary
  // has.
  Result<bool> is_no_token(std::string_view key) const {
    const std::string model = FERRY_TRY(fields_.text("tokenizer.ggml.model")).value_or("");
    constexpr std::string_view kOptional[] = {"tokenizer.ggml.mask_token_id",
                                              "tokenizer.ggml.seperator_token_id"};
    if (std::ranges::count(kOptional, key) == 0 || (model != "gpt2" && model != "llama")) {
      return false;
    }
    return FERRY_TRY(fields_.integer_or(key, kTokenIds, 0)) >= std::ssize(tokens_);
  }

  // -- parts of tokenizer.json

  json added_tokens() const {
    json added = json::array();
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (types_[i] != kControl && types_[i] != kUserDefined) continue;
      added.push_back({{"id", i},
                       {"content", tokens_[i]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types_[i] == kControl}});
    }
    return added;
  }

  json model(bool whole_words, json merges) const {
    json vocabulary = json::object();
    for (size_t i = 0; i < tokens_.size(); ++i) vocabulary[tokens_[i]] = i;
    return {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", whole_words},
            {"vocab", std::move(vocabulary)},
            {"merges", std::move(merges)}};
  }

  json document(json normalizer, json pre_tokenizer, json decoder, json model) const {
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", added_tokens()},
            {"normalizer", std::move(normalizer)},
            {"pre_tokenizer", std::move(pre_tokenizer)},
            {"post_processor", post_processor()},
            {"decoder", std::move(decoder)},
            {"model", std::move(model)}};
  }

  // Reads the tokens that begin and end every text.
  Status read_frame(bool bos_by_default) {
    add_bos_ = FERRY_TRY(fields_.flag_or("tokenizer.ggml.add_bos_token", bos_by_default));
    add_eos_ = FERRY_TRY(fields_.flag_or("tokenizer.ggml.add_eos_token", false));
    bos_ = FERRY_TRY(special("tokenizer.ggml.bos_token_id"));
    eos_ = FERRY_TRY(special("tokenizer.ggml.eos_token_id"));
    return {};
  }

  // Reads the tokens around a text of an encoder. Files of encoders have names of their own for
  // them, and may state no flags.
  Status read_encoder_frame() {
    add_bos_ = FERRY_TRY(fields_.flag_or("tokenizer.ggml.add_bos_token", true));
    add_eos_ = FERRY_TRY(fields_.flag_or("tokenizer.ggml.add_eos_token", true));
    bos_ = FERRY_TRY(special("tokenizer.ggml.cls_token_id"));
    constexpr const char* kSeparator = "tokenizer.ggml.seperator_token_id";
    if (!FERRY_TRY(is_no_token(kSeparator))) eos_ = FERRY_TRY(special(kSeparator));
    if (!bos_) bos_ = FERRY_TRY(special("tokenizer.ggml.bos_token_id"));
    if (!eos_) eos_ = FERRY_TRY(special("tokenizer.ggml.eos_token_id"));
    return {};
  }

  json post_processor() const {
    const bool bos = add_bos_ && bos_, eos = add_eos_ && eos_;
    if (!bos && !eos) return nullptr;
    json single = json::array(), pair = json::array(), specials = json::object();
    const auto put = [&](json& list, const std::string& token, int type) {
      list.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
      specials[token] = {
          {"id", token}, {"ids", json::array({ids_.at(token)})}, {"tokens", json::array({token})}};
    };
    for (int type = 0; type < 2; ++type) {
      const json sequence = {{"Sequence", {{"id", type == 0 ? "A" : "B"}, {"type_id", type}}}};
      for (json* list : {&single, &pair}) {
        if (type == 1 && list == &single) continue;
        if (bos) put(*list, *bos_, type);
        list->push_back(sequence);
        if (eos) put(*list, *eos_, type);
      }
    }
    return {{"type", "TemplateProcessing"},
            {"single", std::move(single)},
            {"pair", std::move(pair)},
            {"special_tokens", std::move(specials)}};
  }

  // -- the kinds of models

  Result<json> byte_level_bpe() {
    const std::string pre = FERRY_TRY(fields_.text("tokenizer.ggml.pre")).value_or("default");
    const auto* known = std::ranges::find(kPreTokenizers, pre, &PreTokenizer::name);
    if (known == std::end(kPreTokenizers)) {
      trouble_ = fmt::format("tokenizer.ggml.pre {} is not known", quoted(pre));
      return json();
    }
    json merges = FERRY_TRY(stated_merges());
    FERRY_RETURN_IF_ERROR(known->framed ? read_encoder_frame() : read_frame(known->bos));
    json steps = json::array();
    if (known->digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    if (known->pattern) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", known->pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    steps.push_back(byte_level(false, known->pattern == nullptr));
    const json normalizer = known->nfc ? json({{"type", "NFC"}}) : json();
    return document(normalizer, {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}},
                    byte_level(true, true), model(known->whole_words, std::move(merges)));
  }

  Result<json> word_piece() {
    std::vector<bool> keeps;
    bool lower = true;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const bool is_special = types_[i] != kNormal && types_[i] != kUnused;
      keeps.push_back(is_special);
      const bool capital =
          std::ranges::any_of(tokens_[i], [](char c) { return c >= 'A' && c <= 'Z'; });
      // Rows without a use have names such as [unused1] and [PAD12].
      if (capital && !is_special && !tokens_[i].ends_with("]")) lower = false;
    }
    tokens_ = word_piece_tokens(tokens_, keeps);
    ids_.clear();
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (ids_.emplace(tokens_[i], i).second) continue;
      trouble_ = fmt::format("two tokens are {}", quoted(tokens_[i], 40));
    }
    FERRY_RETURN_IF_ERROR(read_encoder_frame());
    const std::string unknown =
        FERRY_TRY(special("tokenizer.ggml.unknown_token_id")).value_or("[UNK]");
    const std::string first = bos_.value_or("[CLS]"), last = eos_.value_or("[SEP]");
    for (const std::string& token : {unknown, first, last}) {
      if (!ids_.contains(token)) trouble_ = fmt::format("there is no token {}", quoted(token, 40));
    }
    if (!trouble_.empty()) return json();
    const auto id = [&](const std::string& token) { return static_cast<int64_t>(ids_.at(token)); };
    return word_piece_document(tokens_, added_tokens(), unknown, {first, last, id(first), id(last)},
                               lower);
  }

  Result<json> unigram() {
    const auto unknown = FERRY_TRY(special("tokenizer.ggml.unknown_token_id"));
    if (!unknown || scores_.empty()) {
      trouble_ = "the pieces have no scores, or none is for unknown texts";
      return json();
    }
    FERRY_RETURN_IF_ERROR(read_frame(false));
    add_eos_ = FERRY_TRY(fields_.flag_or("tokenizer.ggml.add_eos_token", true));
    const char* key = "tokenizer.ggml.precompiled_charsmap";
    std::string charsmap;
    const auto bytes = FERRY_TRY(fields_.integers(key, {-128, 255}));
    if (bytes) {
      for (const int64_t byte : *bytes) charsmap += static_cast<char>(byte);
    }
    return unigram_document(tokens_, scores_, added_tokens(), ids_.at(*unknown), charsmap,
                            post_processor());
  }

  Result<json> stated_merges() {
    json merges = json::array();
    for (const std::string& merge : FERRY_TRY(strings("tokenizer.ggml.merges"))) {
      const size_t space = merge.find(' ');
      if (space == 0 || space >= merge.size() - 1 || merge.find(' ', space + 1) != merge.npos ||
          !utf8::is_valid(merge)) {
        trouble_ = fmt::format("the merge {} is not two tokens", quoted(merge, 40));
        return json();
      }
      merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
    }
    return merges;
  }

  // Makes BPE over a whole text, in which U+2581 stands for a space. Readers of GGUF put the first
  // token before every text, whatever the file says.
  Result<json> spaced_bpe() {
    json bpe = model(false, FERRY_TRY(stated_merges()));
    FERRY_RETURN_IF_ERROR(read_frame(true));
    add_bos_ = true;
    FERRY_RETURN_IF_ERROR(add_fallback(bpe));
    return document(
        replace(" ", kSpace), nullptr,
        {{"type", "Sequence"},
         {"decoders", {replace(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}},
        std::move(bpe));
  }

  // Spells what is no token in bytes, where there are tokens for them.
  Status add_fallback(json& bpe) const {
    const auto unknown = FERRY_TRY(special("tokenizer.ggml.unknown_token_id"));
    if (unknown) bpe["unk_token"] = *unknown;
    bpe["fuse_unk"] = true;
    bpe["byte_fallback"] = std::ranges::count(types_, kByte) > 0;
    return {};
  }

  Result<json> sentence_piece() {
    const auto [low, high] = std::ranges::minmax_element(scores_);
    if (scores_.empty() || *low == *high) {
      trouble_ = "tokenizer.ggml.scores do not rank the tokens";
      return json();
    }
    const bool prefix = FERRY_TRY(fields_.flag_or("tokenizer.ggml.add_space_prefix", true));
    FERRY_RETURN_IF_ERROR(read_frame(true));
    json normalizers = json::array(), decoders = json::array();
    if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
    normalizers.push_back(replace(" ", kSpace));
    decoders.push_back(replace(kSpace, " "));
    decoders.push_back({{"type", "ByteFallback"}});
    decoders.push_back({{"type", "Fuse"}});
    if (prefix) {
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    json bpe = model(false, merges_by_score());
    FERRY_RETURN_IF_ERROR(add_fallback(bpe));
    return document({{"type", "Sequence"}, {"normalizers", std::move(normalizers)}}, nullptr,
                    {{"type", "Sequence"}, {"decoders", std::move(decoders)}}, std::move(bpe));
  }

  // Lists every way to make a token of two others: the better token first, then the one with the
  // earlier left and right part.
  json merges_by_score() const {
    struct Merge {
      double score;
      size_t left, right;
    };
    std::vector<Merge> found;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const std::string& token = tokens_[i];
      if (types_[i] != kNormal || token.size() > kMaxMergedBytes) continue;
      for (size_t cut = 1; cut < token.size(); ++cut) {
        if ((static_cast<unsigned char>(token[cut]) & 0xc0u) == 0x80u) continue;
        const auto left = ids_.find(token.substr(0, cut));
        const auto right = ids_.find(token.substr(cut));
        if (left == ids_.end() || right == ids_.end()) continue;
        found.push_back({scores_[i], left->second, right->second});
      }
    }
    std::ranges::sort(found, [](const Merge& a, const Merge& b) {
      return std::tuple(-a.score, a.left, a.right) < std::tuple(-b.score, b.left, b.right);
    });
    json merges = json::array();
    for (const Merge& merge : found) merges.push_back({tokens_[merge.left], tokens_[merge.right]});
    return merges;
  }

  Result<json> config() const {
    json out = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                {"add_bos_token", add_bos_},
                {"add_eos_token", add_eos_},
                {"clean_up_tokenization_spaces", false}};
    for (const auto& [key, name] : kSpecials) {
      if (FERRY_TRY(is_no_token(key))) continue;
      if (const auto token = FERRY_TRY(special(key))) out[name] = *token;
    }
    const auto chat = FERRY_TRY(fields_.text("tokenizer.chat_template"));
    if (chat && utf8::is_valid(*chat)) out["chat_template"] = *chat;
    return out;
  }

  JsonFields fields_;
  std::vector<std::string> tokens_;
  std::vector<int64_t> types_;  // values of TokenType
  std::vector<double> scores_;
  std::unordered_map<std::string, size_t> ids_;
  bool add_bos_ = false, add_eos_ = false;
  std::optional<std::string> bos_, eos_;
  std::string trouble_;  // reason why there will be no tokenizer
};

}  // namespace

Result<GgufTokenizer> make_gguf_tokenizer(const json& metadata, const std::string& name) {
  return TokenizerMaker(metadata, name).run();
}

}  // namespace ferry::converters
