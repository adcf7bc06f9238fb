// Makes tokenizer documents of the vocabulary files of other libraries: vocab.txt and vocab.json,
// ranks of tiktoken, models of SentencePiece. The steps around a vocabulary follow from the
// tokenizer class.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/hashing.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_settings.h"

namespace ferry::text {

inline constexpr std::string_view kWordPieceFile = "vocab.txt";
inline constexpr std::string_view kBpeFile = "vocab.json";
inline constexpr std::string_view kMergesFile = "merges.txt";

// `lines` has one token on each line, and the line number is the id. The class is BertTokenizer or
// DistilBertTokenizer, or follows from model_type of config.json. kUnsupported for other classes.
// `name` begins error messages.
Result<TokenizerDocument> word_piece_document(std::string_view lines,
                                              const TokenizerSettings& settings,
                                              const std::string& name);

// `vocab` is {token: id}. `merges` has two tokens on each line, ordered by rank; lines that begin
// with "#version" are ignored. The class is GPT2Tokenizer, CodeGenTokenizer, GPTNeoXTokenizer,
// Qwen2Tokenizer or RobertaTokenizer, or follows from model_type. kUnsupported for other classes,
// kBadInput for merges of texts that are no tokens.
Result<TokenizerDocument> byte_bpe_document(std::string_view vocab, std::string_view merges,
                                            const TokenizerSettings& settings,
                                            const std::string& name);

// -- tiktoken: a file with a token in base64 and its rank on each line. The rank is the id and the
// order of merging. The file contains neither the word-splitting pattern nor the special tokens.

// Returns whether `bytes` begin like a file of ranks: base64, a blank, a number, a newline.
bool is_tiktoken(std::string_view bytes);

// The source of the splitting pattern and of the special tokens is found in this order: the class
// QWenTokenizer or the file name qwen.tiktoken; the class TikTokenTokenizer (Kimi K2); Llama 3 if
// config.json has model_type llama; the encodings o200k_base and cl100k_base, by the name of the
// file. For these encodings added_tokens_decoder of the settings takes precedence. kUnsupported if
// nothing determines the source. kBadInput for other lines, and for tokens or ranks that occur
// twice. `file` is the name of the file. `name` begins error messages.
Result<TokenizerDocument> tiktoken_document(std::string_view bytes,
                                            const TokenizerSettings& settings,
                                            const std::string& file, const std::string& name);

// Returns the tokenizer that transformers 5.12 makes of `model` for the class that the settings
// name: LlamaTokenizer, GemmaTokenizer, T5Tokenizer, XLMRobertaTokenizer, AlbertTokenizer. If the
// settings name no class or a generic one (PreTrainedTokenizer, TokenizersBackend), the tokenizer
// follows SentencePiece itself; that supports BPE models that do not change characters.
// kUnsupported, by name, for other classes and for settings that cannot be expressed. `name` begins
// error messages.
Result<TokenizerDocument> sentencepiece_document(const SentencePieceModel& model,
                                                 const TokenizerSettings& settings,
                                                 const std::string& name);

// Returns the tokenizer of MarianTokenizer for texts that are translated: the pieces of `model`
// (source.spm), numbered by `vocab`, {token: id}. kUnsupported for another class, and for models
// that the class does not read as SentencePiece does.
inline constexpr std::string_view kMarianFile = "source.spm";
Result<TokenizerDocument> marian_document(SentencePieceModel model, std::string_view vocab,
                                          const TokenizerSettings& settings,
                                          const std::string& name, const std::string& vocab_name);

// Returns the tokenizer of a tekken.json of mistral-common: control tokens, which are not
// recognised within texts, and behind them ranks of tiktoken. `<s>` begins texts. kUnsupported for
// versions that are not known.
inline constexpr std::string_view kTekkenFile = "tekken.json";
Result<TokenizerDocument> tekken_document(std::string_view bytes, const std::string& name);

// DocumentBuilder makes a TokenizerDocument, with the contents of a tokenizer.json, from the
// vocabulary files of other libraries.
class DocumentBuilder {
 public:
  explicit DocumentBuilder(std::string name) { document_.name = std::move(name); }

  // Tokens with scores belong to a Unigram model, and are added in the order of their ids. All
  // tokens are different.
  void add_token(std::string_view text, uint32_t id);
  void add_scored(std::string_view text, double score);
  // `left` and `right` must be tokens of the vocabulary. kBadInput for more than kMaxMerges.
  Status add_merge(std::string_view left, std::string_view right);
  bool in_vocabulary(std::string_view text) const { return places_.contains(text); }
  // Returns the id of a token of the vocabulary or of an added token.
  std::optional<uint32_t> find(std::string_view text) const;

  // Adds a token that is matched literally. It takes the next free id if the vocabulary lacks it.
  // If it was added before, its flags are replaced.
  void add(const TokenSpec& token);
  bool is_added(std::string_view content) const { return added_ids_.contains(content); }

  // Returns a field of the document, such as "normalizer".
  nlohmann::json& field(const char* key) { return document_.root[key]; }
  // Sets a post-processor that puts these tokens before and behind a text. kBadInput if one of them
  // is not a token.
  Status enclose(const std::vector<std::string>& before, const std::vector<std::string>& behind);

  const std::string& name() const { return document_.name; }  // begins error messages
  // Control tokens are not recognised within texts.
  void set_plain_texts() { document_.plain_texts = true; }

  TokenizerDocument take();

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return TextHash()(text); }
  };
  void keep(std::string_view text, uint32_t id);

  TokenizerDocument document_;
  // Maps a text to its index in the document's vocabulary.
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> places_;
  std::optional<uint32_t> next_id_;  // the id of the next token that the vocabulary lacks
  std::map<uint32_t, TokenSpec> added_;
  std::map<std::string, uint32_t, std::less<>> added_ids_;
};

}  // namespace ferry::text
