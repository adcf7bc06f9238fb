#include "dialects/gguf/tokenizer/tokenizer_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "converters/families/families.h"
#include "converters/family.h"
#include "core/json.h"
#include "core/text.h"
#include "dialects/gguf/tokenizer/encoder_vocabulary.h"
#include "dialects/gguf/tokenizer/pre_tokenizers.h"
#include "dialects/gguf/tokenizer/special_tokens.h"
#include "dialects/gguf/tokenizer/vocabulary.h"
#include "text/tokenizer/converted_documents.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_settings.h"

namespace ferry::text {
namespace {

using converters::GgufTokenizerRules;
using nlohmann::json;

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr const char* kUnigramFile = "sentencepiece.bpe.model";
constexpr const char* kPiecesFiles[] = {"tokenizer.model", "spiece.model"};
constexpr std::string_view kWordPiece = "WordPiece", kUnigram = "Unigram";
constexpr int64_t kCodeLlamaVocabulary = 32016, kGraniteVocabulary = 49152;

// Returns how the files of an architecture state their tokenizers, as its family says.
GgufTokenizerRules tokenizer_of(std::string_view architecture) {
  for (const converters::FamilySpec* family : converters::all_families()) {
    const auto at =
        std::ranges::find(family->gguf, architecture, &converters::GgufArchitecture::name);
    if (at != family->gguf.end() && at->tokenizer_keys != GgufTokenizerRules{}) {
      return at->tokenizer_keys;
    }
  }
  return {};
}

// Refuses members of the wrong kind. The converter ignores them, but such a file is damaged, and
// what it says would be lost.
Status check_tokenizer_config(const json& config, const std::string& name) {
  if (config.is_null()) return {};  // there is no tokenizer_config.json
  if (!config.is_object()) return bad_input(name + ": not an object");
  const auto wrong = [&](const std::string& key, bool (*fits)(const json&)) {
    const auto at = config.find(key);
    return at != config.end() && !at->is_null() && !fits(*at);
  };
  const auto refuse = [&](const std::string& key, const char* expected) {
    return bad_input(fmt::format("{}: {} is not {}", name, quoted(key), expected));
  };
  for (const char* type : {"bos", "eos", "unk", "sep", "pad", "cls", "mask"}) {
    const std::string token = fmt::format("{}_token", type), flag = "add_" + token;
    if (wrong(flag, [](const json& v) { return v.is_boolean(); })) {
      return refuse(flag, "true or false");
    }
    if (wrong(token, [](const json& v) { return v.is_string() || v.is_object(); })) {
      return refuse(token, "a token");
    }
  }
  for (const char* list : {"additional_special_tokens", "extra_special_tokens"}) {
    if (wrong(list, [](const json& v) { return v.is_structured(); })) return refuse(list, "a list");
  }
  if (wrong("chat_template", [](const json& v) { return v.is_string() || v.is_array(); })) {
    return refuse("chat_template", "a template");
  }
  return {};
}

class Maker {
 public:
  Maker(const ReadFile& read, const GgufTokenizerOptions& options)
      : read_(read), options_(options), policy_(tokenizer_of(options.architecture)) {}

  Result<GgufTokenizerKeys> run() {
    FERRY_RETURN_IF_ERROR(check_options());
    FERRY_RETURN_IF_ERROR(read_files());
    FERRY_RETURN_IF_ERROR(check_pre());
    if (!document_ && pieces_.empty() && !makes_unigram()) {
      set_token_types();
      keys_.set("tokenizer.ggml.model", std::string("none"));
      notes_.push_back(
          "the checkpoint has no tokenizer.json and no tokenizer.model: the file takes token ids "
          "only");
    } else {
      FERRY_RETURN_IF_ERROR(make_keys());
    }
    GgufTokenizerKeys out;
    out.keys = std::move(keys_).take();
    out.notes = std::move(notes_);
    return out;
  }

 private:
  Status check_options() const {
    if (!options_.pre.empty() && !is_gguf_pre_tokenizer(options_.pre)) {
      return fail_field(ErrorCode::kUsage, "tokenizer_pre",
                        fmt::format(": GGUF has no pre-tokenizer {}", quoted(options_.pre, 60)));
    }
    if (options_.vocab_size <= 0 || options_.vocab_size > kMaxTokenId + 1) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("config.json: vocab_size is {}, at most {} tokens are supported",
                              options_.vocab_size, kMaxTokenId + 1));
    }
    return {};
  }

  // Refuses a stated pre-tokenizer where there is no byte-level BPE.
  Status check_pre() const {
    if (options_.pre.empty() || makes_byte_level() || makes_words()) return {};
    return fail_field(ErrorCode::kUsage, "tokenizer_pre",
                      ": the checkpoint has no byte-level BPE and no WordPiece, which alone have a "
                      "pre-tokenizer to name");
  }

  Result<json> read_json(const char* name) {
    const std::string text = FERRY_TRY(read_(name, kMaxConfigBytes));
    if (text.empty()) return json();
    return parse_json(text, name);
  }

  Status read_files() {
    tokenizer_text_ = FERRY_TRY(read_(kTokenizerFile, kMaxTokenizerFile));
    if (!tokenizer_text_.empty()) {
      document_ = FERRY_TRY(parse_tokenizer_document(tokenizer_text_, kTokenizerFile));
    }
    config_ = FERRY_TRY(read_json("config.json"));
    tokenizer_config_ = FERRY_TRY(read_json("tokenizer_config.json"));
    FERRY_RETURN_IF_ERROR(check_tokenizer_config(tokenizer_config_, "tokenizer_config.json"));
    templates_ = FERRY_TRY(read_templates());
    if (policy_.encoder && !document_) FERRY_RETURN_IF_ERROR(read_words());
    FERRY_RETURN_IF_ERROR(read_unigram());
    const bool wants_pieces = policy_.sentence_piece && !is_phi_with_bpe();
    if (!wants_pieces) return {};
    const std::string model = FERRY_TRY(read_("tokenizer.model", kMaxTokenizerFile));
    if (!model.empty()) pieces_ = FERRY_TRY(read_sentence_pieces(model, "tokenizer.model"));
    return {};
  }

  // Reads the model of a Unigram. Where it is that of the tokens, nothing else is needed.
  Status read_unigram() {
    if (policy_.pieces) {
      for (const char* file : kPiecesFiles) {
        unigram_file_ = file;
        unigram_ = FERRY_TRY(read_(file, kMaxTokenizerFile));
        if (!unigram_.empty()) break;
      }
    } else if (is_encoder_of(kUnigram)) {
      unigram_ = FERRY_TRY(read_(kUnigramFile, kMaxTokenizerFile));
    }
    return {};
  }

  // Reads vocab.txt, which the first BERTs have in the place of tokenizer.json.
  Status read_words() {
    const std::string words = FERRY_TRY(read_(std::string(kWordPieceFile), kMaxTokenizerFile));
    if (words.empty()) return {};
    const TokenizerSettings settings = FERRY_TRY(TokenizerSettings::read("", read_));
    document_ = FERRY_TRY(word_piece_document(words, settings, std::string(kWordPieceFile)));
    return {};
  }

  // Reads chat templates beside tokenizer_config.json.
  Result<json> read_templates() {
    const std::string plain = FERRY_TRY(read_("chat_template.jinja", kMaxConfigBytes));
    if (!plain.empty()) return json(plain);
    const json file = FERRY_TRY(read_json("chat_template.json"));
    const auto at = file.is_object() ? file.find("chat_template") : file.end();
    return at == file.end() ? json() : *at;
  }

  bool is_phi_with_bpe() const {
    if (options_.architecture != "phi3" || !tokenizer_config_.is_object()) return false;
    const auto at = tokenizer_config_.find("tokenizer_class");
    return at != tokenizer_config_.end() && *at == "GPT2Tokenizer";
  }

  // -- the models

  bool is_unscored() const { return policy_.llama && has_byte_fallback(*document_); }
  bool is_spaced() const { return policy_.spaced && has_byte_fallback(*document_); }
  bool is_encoder_of(std::string_view model) const {
    return (policy_.encoder || policy_.pieces) && document_ && has_token_model(*document_, model);
  }
  bool makes_words() const { return is_encoder_of(kWordPiece); }
  bool makes_unigram() const { return !unigram_.empty() || is_encoder_of(kUnigram); }
  bool makes_byte_level() const {
    return document_ && pieces_.empty() && !is_unscored() && !is_spaced() && !makes_words() &&
           !makes_unigram();
  }

  Status make_keys() {
    if (policy_.llama) set_stated_prefix();
    if (!pieces_.empty()) return sentence_piece();
    if (is_spaced()) return spaced();
    if (makes_words()) return word_piece();
    if (makes_unigram()) return unigram();
    return is_unscored() ? unscored() : byte_level();
  }

  void set_stated_prefix() {
    if (!tokenizer_config_.is_object()) return;
    const auto prefix = tokenizer_config_.find("add_prefix_space");
    if (prefix != tokenizer_config_.end() && prefix->is_boolean()) {
      keys_.set("tokenizer.ggml.add_space_prefix", prefix->get<bool>());
    }
  }

  GgufVocabularySource source() const { return {tokenizer_config_, options_.vocab_size}; }

  void set_lists(const char* model, std::string pre, GgufVocabulary vocabulary) {
    keys_.set("tokenizer.ggml.model", std::string(model));
    keys_.set("tokenizer.ggml.pre", std::move(pre));
    keys_.set("tokenizer.ggml.tokens", std::move(vocabulary.tokens));
    keys_.set("tokenizer.ggml.scores", std::move(vocabulary.scores));
    keys_.set("tokenizer.ggml.token_type", std::move(vocabulary.types));
  }

  GgufSpecialTokens specials(int64_t id_bound) const {
    const bool stored = document_ && !tokenizer_text_.empty();
    return GgufSpecialTokens(stored ? document_->root : json(), tokenizer_config_, config_,
                             templates_, id_bound);
  }

  // Refuses a damaged tokenizer.json, of which the converter would use some members and ignore the
  // others. A tokenizer that is only not supported here may be written.
  Status check_document() const {
    if (!document_ || tokenizer_text_.empty()) return {};
    const auto tokenizer = Tokenizer::parse(tokenizer_text_, kTokenizerFile);
    if (tokenizer || tokenizer.error().code != ErrorCode::kBadInput) return {};
    return Failure(tokenizer.error());
  }

  Status sentence_piece() {
    FERRY_RETURN_IF_ERROR(check_document());
    const json added = FERRY_TRY(read_json("added_tokens.json"));
    const AddedTokenRule rule =
        options_.architecture == "phi3" ? AddedTokenRule::kAsStated : AddedTokenRule::kByName;
    const TokenizerDocument* document = document_ ? &*document_ : nullptr;
    set_lists("llama", "default",
              FERRY_TRY(sentence_piece_vocabulary(pieces_, added, document, rule, source())));
    specials(options_.vocab_size).write(keys_);
    for (const GgufTokenizerRules::FixedId& fixed : policy_.ids) {
      if (!fixed.key.empty()) keys_.set(std::string(fixed.key), fixed.id);
    }
    if (policy_.no_prefix) keys_.set("tokenizer.ggml.add_space_prefix", false);
    if (policy_.stated_prefix) set_stated_prefix();
    set_llama_exceptions();
    return {};
  }

  Status unscored() {
    FERRY_RETURN_IF_ERROR(check_document());
    set_lists("llama", "default", FERRY_TRY(unscored_vocabulary(*document_, source())));
    specials(options_.vocab_size).write(keys_);
    set_llama_exceptions();
    notes_.push_back(
        "tokenizer.json has no scores: every token of the file has the same one, as llama.cpp's "
        "converter writes it, and llama.cpp may split words otherwise; tokenizer.model has them");
    return {};
  }

  // The tokens that a parser of chats must see are no control tokens.
  Status spaced() {
    constexpr std::string_view kSeen[] = {"<|channel>",   "<channel|>",       "<|tool_call>",
                                          "<tool_call|>", "<|tool_response>", "<tool_response|>",
                                          "<|\"|>"};
    FERRY_RETURN_IF_ERROR(check_document());
    GgufVocabulary vocabulary = FERRY_TRY(unscored_vocabulary(*document_, source()));
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      if (std::ranges::count(kSeen, vocabulary.tokens[id]) == 0) continue;
      vocabulary.types[id] = SentencePiece::kUserDefined;
    }
    set_lists("gemma4", {}, std::move(vocabulary));
    keys_.set("tokenizer.ggml.merges", byte_level_merges(*document_));
    specials(options_.vocab_size).write(keys_);
    keys_.set("tokenizer.ggml.add_space_prefix", false);
    keys_.set("tokenizer.ggml.add_bos_token", true);
    return {};
  }

  // Writes the number of types that a token may have, where the architecture has them.
  void set_token_types() {
    if (!policy_.encoder) return;
    keys_.set("tokenizer.ggml.token_type_count",
              static_cast<uint32_t>(std::max<int64_t>(options_.token_types, 1)));
  }

  Status word_piece() {
    Tokenizer tokenizer =
        FERRY_TRY(tokenizer_text_.empty() ? Tokenizer::make(*document_)
                                          : Tokenizer::parse(tokenizer_text_, kTokenizerFile));
    std::string pre = options_.pre;
    if (pre.empty()) pre = FERRY_TRY(find_pre(tokenizer));
    set_token_types();
    set_lists("bert", std::move(pre),
              FERRY_TRY(word_piece_vocabulary(*document_, tokenizer, source())));
    specials(options_.vocab_size).write(keys_);
    return {};
  }

  // Scores and the table of normalised characters are those of the SentencePiece model.
  Status unigram() {
    FERRY_RETURN_IF_ERROR(check_document());
    const char* file = unigram_file_;
    if (unigram_.empty()) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: is a Unigram; for architecture {} GGUF needs {} beside it",
                              kTokenizerFile, quoted(options_.architecture), file));
    }
    const SentencePieceModel model = FERRY_TRY(SentencePieceModel::parse(unigram_, file));
    const json added = policy_.pieces ? FERRY_TRY(read_json("added_tokens.json")) : json();
    set_lists("t5", "default",
              policy_.pieces ? FERRY_TRY(pieces_vocabulary(model, added, options_.vocab_size, file))
                             : FERRY_TRY(unigram_vocabulary(model, options_.vocab_size, file)));
    keys_.set("tokenizer.ggml.add_space_prefix", model.add_dummy_prefix);
    set_token_types();
    keys_.set("tokenizer.ggml.remove_extra_whitespaces", model.remove_extra_whitespaces);
    if (!model.charsmap.empty()) {
      keys_.set("tokenizer.ggml.precompiled_charsmap", gguf_byte_array(model.charsmap));
    }
    specials(options_.vocab_size).write(keys_);
    return {};
  }

  // Writes what is so unless the tokenizer says otherwise.
  void set_frame() {
    if (policy_.no_bos) keys_.set("tokenizer.ggml.add_bos_token", false);
    if (!policy_.framed) return;
    for (const char* type : {"bos", "eos", "sep"}) {
      keys_.set(fmt::format("tokenizer.ggml.add_{}_token", type), true);
    }
  }

  Status byte_level() {
    if (!is_byte_level(*document_)) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: is no byte-level BPE; for architecture {} GGUF needs "
                              "tokenizer.model beside it",
                              kTokenizerFile, quoted(options_.architecture)));
    }
    Tokenizer tokenizer = FERRY_TRY(Tokenizer::parse(tokenizer_text_, kTokenizerFile));
    std::string pre = options_.pre;
    if (pre.empty()) pre = FERRY_TRY(find_pre(tokenizer));
    if (policy_.glm == GgufTokenizerRules::Glm::kOld)
      keys_.set("tokenizer.ggml.add_bos_token", false);
    set_frame();
    set_lists("gpt2", std::move(pre),
              FERRY_TRY(byte_level_vocabulary(*document_, tokenizer, source())));
    keys_.set("tokenizer.ggml.merges", byte_level_merges(*document_));
    GgufSpecialTokens special = specials(INT64_MAX);
    FERRY_RETURN_IF_ERROR(set_glm(special, tokenizer));
    special.write(keys_);
    if (policy_.hunyuan) FERRY_RETURN_IF_ERROR(set_hunyuan());
    set_token_types();
    set_llama_exceptions();
    return {};
  }

  Status set_hunyuan() {
    const auto end = config_.is_object() ? config_.find("eod_token_id") : config_.end();
    if (end != config_.end() && end->is_number_unsigned()) {
      keys_.set("tokenizer.ggml.eos_token_id", end->get<uint32_t>());
    }
    const json generation = FERRY_TRY(read_json("generation_config.json"));
    const auto ends = generation.is_object() ? generation.find("eos_token_id") : generation.end();
    const bool several = ends != generation.end() && ends->is_array() && ends->size() > 1;
    if (several && ends->front().is_number_unsigned()) {
      keys_.set("tokenizer.ggml.eot_token_id", ends->front().get<uint32_t>());
    }
    return {};
  }

  static Result<std::string> find_pre(Tokenizer& tokenizer) {
    const std::string digest = FERRY_TRY(gguf_pre_tokenizer_digest(tokenizer));
    auto name = gguf_pre_tokenizer_of(digest);
    if (name) return *std::move(name);
    return Failure(
        Error{.code = ErrorCode::kUnsupported,
              .message = fmt::format("{}: GGUF has no name for this pre-tokenizer (digest {}); "
                                     "tokenizer_pre can state one",
                                     kTokenizerFile, digest),
              .field = "tokenizer_pre"});
  }

  using SpecialToken = std::pair<const char*, const char*>;
  std::span<const SpecialToken> glm_tokens() const {
    static constexpr SpecialToken kTokens[] = {{"eos", "<|endoftext|>"},
                                               {"eot", "<|user|>"},
                                               {"unk", "<|endoftext|>"},
                                               {"bos", "<|endoftext|>"}};
    static constexpr SpecialToken kMaskedTokens[] = {{"bos", "[gMASK]"},
                                                     {"eot", "<|user|>"},
                                                     {"unk", "<|endoftext|>"},
                                                     {"eom", "<|observation|>"}};
    switch (policy_.glm) {
      case GgufTokenizerRules::Glm::kNone:
        return {};
      case GgufTokenizerRules::Glm::kOld:
        return std::span(kTokens).first(3);
      case GgufTokenizerRules::Glm::kWithBos:
        return kTokens;
      case GgufTokenizerRules::Glm::kMasked:
        return kMaskedTokens;
    }
    return {};  // not reached: -Wswitch reports a missing case
  }

  Status set_glm(GgufSpecialTokens& special, const Tokenizer& tokenizer) const {
    for (const auto& [type, token] : glm_tokens()) {
      const auto id = tokenizer.find(token);
      if (!id) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{}: has no {}, which GGUF needs for architecture {}",
                                kTokenizerFile, token, quoted(options_.architecture)));
      }
      special.set(type, *id);
    }
    return {};
  }

  void set_llama_exceptions() {
    if (!policy_.llama) return;
    if (options_.vocab_size == kCodeLlamaVocabulary) {
      constexpr std::pair<const char*, uint32_t> kInfill[] = {
          {"prefix", 32007}, {"suffix", 32008}, {"middle", 32009}, {"eot", 32010}};
      for (const auto& [type, id] : kInfill) {
        keys_.set(fmt::format("tokenizer.ggml.{}_token_id", type), id);
      }
    }
    if (options_.vocab_size == kGraniteVocabulary) {
      keys_.set("tokenizer.ggml.add_bos_token", false);
    }
  }

  const ReadFile& read_;
  const GgufTokenizerOptions& options_;
  GgufTokenizerRules policy_;
  std::string tokenizer_text_;
  std::optional<TokenizerDocument> document_;
  std::vector<SentencePiece> pieces_;
  std::string unigram_;  // bytes of a Unigram model
  const char* unigram_file_ = kUnigramFile;
  json config_, tokenizer_config_, templates_;
  GgufKeyList keys_;
  std::vector<std::string> notes_;
};

}  // namespace

Result<GgufTokenizerKeys> gguf_tokenizer_keys(const ReadFile& read,
                                              const GgufTokenizerOptions& options) {
  return Maker(read, options).run();
}

}  // namespace ferry::text
