#include "text/tokenizer/tokenizer_files.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "text/tokenizer/converted_documents.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_settings.h"

namespace ferry::text {
namespace {

constexpr uint64_t kMaxModelFile = uint64_t{64} << 20;
// Files are looked for in this order.
constexpr std::array<std::string_view, 13> kFiles = {
    kTokenizerFile,
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tiktoken.model",
    "qwen.tiktoken",
    "tokenizer.tiktoken",
    "o200k_base.tiktoken",
    "cl100k_base.tiktoken",
    kMarianFile,
    kBpeFile,
    kWordPieceFile,
    kTekkenFile,
};

uint64_t limit_of(std::string_view file) {
  if (file == kTokenizerFile) return kMaxTokenizerFile;
  return file == kTekkenFile ? kMaxTekkenFile : kMaxModelFile;
}

// Refuses settings by which a MarianTokenizer computes something else.
Status check_marian_settings(const std::string& name, const ReadFile& read) {
  constexpr const char* kFile = "tokenizer_config.json";
  const std::string text = FERRY_TRY(read(kFile, kMaxModelFile));
  if (text.empty()) return {};
  const nlohmann::json object = FERRY_TRY(parse_json(text, kFile));
  for (const char* key : {"separate_vocabs", "sp_model_kwargs", "clean_up_tokenization_spaces"}) {
    const auto found = object.find(key);
    const bool plain = found == object.end() || found->is_null() || *found == false ||
                       (found->is_object() && found->empty());
    if (plain) continue;
    return fail(ErrorCode::kUnsupported, fmt::format("{}: '{}' of {} is {}: not supported", name,
                                                     key, kFile, quoted(found->dump(), 40)));
  }
  return {};
}

// Makes the tokenizer of source.spm, whose pieces vocab.json numbers.
Result<Tokenizer> make_marian(std::string_view bytes, const std::string& directory,
                              const std::string& name, const TokenizerSettings& settings,
                              const ReadFile& read) {
  const std::string vocab = FERRY_TRY(read(std::string(kBpeFile), kMaxModelFile));
  if (vocab.empty()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: without {} it is no tokenizer", name, kBpeFile));
  }
  FERRY_RETURN_IF_ERROR(check_marian_settings(name, read));
  SentencePieceModel model = FERRY_TRY(SentencePieceModel::parse(bytes, name));
  const std::string vocab_name = printable(directory + "/" + std::string(kBpeFile));
  return Tokenizer::make(
      FERRY_TRY(marian_document(std::move(model), vocab, settings, name, vocab_name)));
}

Result<Tokenizer> make_of(std::string_view bytes, const std::string& directory,
                          const std::string& file, const ReadFile& read) {
  const std::string name = printable(directory.empty() ? file : directory + "/" + file);
  if (file == kTekkenFile) return tekken_tokenizer(bytes, name);
  if (file.ends_with(".json") && file != kBpeFile) return Tokenizer::parse(bytes, name);
  const TokenizerSettings settings = FERRY_TRY(TokenizerSettings::read(directory, read));
  if (file == kWordPieceFile) {
    return Tokenizer::make(FERRY_TRY(word_piece_document(bytes, settings, name)));
  }
  if (file == kBpeFile) {
    const std::string merges = FERRY_TRY(read(std::string(kMergesFile), kMaxModelFile));
    if (merges.empty()) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: without {} it is no tokenizer", name, kMergesFile));
    }
    return Tokenizer::make(FERRY_TRY(byte_bpe_document(bytes, merges, settings, name)));
  }
  if (file == kMarianFile) return make_marian(bytes, directory, name, settings, read);
  // SentencePiece models and ranks both have the file name tokenizer.model. Ranks are lines of
  // printable characters.
  if (is_tiktoken(bytes)) {
    return Tokenizer::make(FERRY_TRY(tiktoken_document(bytes, settings, file, name)));
  }
  const SentencePieceModel model = FERRY_TRY(SentencePieceModel::parse(bytes, name));
  return Tokenizer::make(FERRY_TRY(sentencepiece_document(model, settings, name)));
}

}  // namespace

std::string_view find_tokenizer_file(const std::function<bool(std::string_view)>& has) {
  for (const std::string_view name : kFiles) {
    if (has(name)) return name;
  }
  return {};
}

Result<Tokenizer> load_tokenizer(const std::string& directory, const ReadFile& read) {
  for (const std::string_view file : kFiles) {
    const std::string text = FERRY_TRY(read(std::string(file), limit_of(file)));
    if (!text.empty()) return make_of(text, directory, std::string(file), read);
  }
  return fail(ErrorCode::kIo, fmt::format("{}: has no {}, tokenizer.model or other tokenizer file "
                                          "that is not empty",
                                          printable(directory), kTokenizerFile));
}

Result<Tokenizer> tekken_tokenizer(std::string_view bytes, const std::string& name) {
  return Tokenizer::make(FERRY_TRY(tekken_document(bytes, name)));
}

Result<Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return load_tokenizer(path, files_in(path));
  const std::filesystem::path file(path);
  const std::string directory = file.has_parent_path() ? file.parent_path().string() : ".";
  const std::string own = file.filename().string();
  const bool is_json = !path.ends_with(".model") && own != kMarianFile &&
                       !path.ends_with(".tiktoken") && own != kBpeFile && own != kWordPieceFile &&
                       own != kTekkenFile;
  const std::string bytes =
      FERRY_TRY(read_text_file(path, is_json ? kMaxTokenizerFile : limit_of(own)));
  if (is_json) return Tokenizer::parse(bytes, printable(path));
  return make_of(bytes, directory, own, files_in(directory));
}

}  // namespace ferry::text
