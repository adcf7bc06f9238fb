#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/file.h"
#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/sentencepiece_words.h"
#include "text/tokenizer/token_model.h"
#include "text/tokenizer/token_spans.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_steps.h"

namespace ferry::text {
namespace {

constexpr size_t kMaxText = 256 << 20;

constexpr int64_t kMostTokens = INT64_MAX;

// Checks how the file would shorten texts, and returns the side at which it would. Callers say how
// much of a text is kept, as they do in transformers, which sets this anew for each call.
Result<std::optional<Tokenizer::Cut>> read_truncation(StepFields& fields) {
  const nlohmann::json* value = fields.find("truncation");
  if (value == nullptr) return std::optional<Tokenizer::Cut>();
  StepFields truncation = FERRY_TRY(StepFields::of(*value, fields.where() + ": truncation"));
  FERRY_TRY(truncation.integer("max_length", 0, kMostTokens));
  FERRY_TRY(truncation.integer("stride", 0, kMostTokens));
  const std::string strategy = FERRY_TRY(truncation.text("strategy"));
  const std::string direction = FERRY_TRY(truncation.optional_text("direction")).value_or("Right");
  FERRY_RETURN_IF_ERROR(truncation.finish());
  if (strategy != "LongestFirst" && strategy != "OnlyFirst" && strategy != "OnlySecond") {
    return truncation.bad(fmt::format("the strategy {} is not known", quoted(strategy, 60)));
  }
  if (direction == "Left") return std::optional(Tokenizer::Cut::kBegin);
  if (direction == "Right") return std::optional(Tokenizer::Cut::kEnd);
  return truncation.bad(fmt::format("the direction {} is not known", quoted(direction, 60)));
}

// Checks how the file would fill up texts. transformers sets this anew for each call too, and no
// padding has an effect on results.
Status check_padding(StepFields& fields) {
  const nlohmann::json* value = fields.find("padding");
  if (value == nullptr) return {};
  StepFields padding = FERRY_TRY(StepFields::of(*value, fields.where() + ": padding"));
  for (const char* known : {"strategy", "direction", "pad_to_multiple_of"}) padding.find(known);
  FERRY_TRY(padding.integer("pad_id", 0, kMaxTokenId));
  FERRY_TRY(padding.integer("pad_type_id", 0, kMaxTokenId));
  FERRY_TRY(padding.text("pad_token"));
  return padding.finish();
}

// Returns the side at which the file would shorten texts, if it would.
Result<std::optional<Tokenizer::Cut>> check_top_level(const TokenizerDocument& document) {
  StepFields fields = FERRY_TRY(StepFields::of(document.root, document.name));
  for (const char* known : {"version", "added_tokens", "normalizer", "pre_tokenizer", "model",
                            "post_processor", "decoder"}) {
    fields.find(known);
  }
  const std::optional<Tokenizer::Cut> cut = FERRY_TRY(read_truncation(fields));
  FERRY_RETURN_IF_ERROR(check_padding(fields));
  FERRY_RETURN_IF_ERROR(fields.finish());
  return cut;
}

nlohmann::json part(const TokenizerDocument& document, const char* key) {
  return document.root.value(key, nlohmann::json());
}

}  // namespace

struct Tokenizer::Impl {
  std::optional<Cut> cut;
  Vocabulary vocabulary;
  Normalizer normalizer;
  AddedTokens added;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  PostProcessor post_processor;
  TokenDecoder decoder;
  std::optional<PieceTexts> piece_texts;  // where the document has a SentencePiece model
  TokenSpelling spelling;
  // The parts of the text that is being encoded.
  std::vector<AddedTokens::Part> parts, inner_parts;
  Pieces pieces;
  // Where spans are wanted: those of the tokens so far, and where the part that is being encoded
  // begins in the text.
  std::vector<TextRange>* spans = nullptr;
  size_t offset = 0;

  // Returns whether a piece may be treated as the first of the input although it is not.
  bool loses_start() const {
    if (!pre_tokenizer.minds_start() || !normalizer.drops_start()) return false;
    return pre_tokenizer.minds_start_of_pieces() ||
           std::ranges::any_of(added.all(), &AddedToken::normalized);
  }
  Status encode_part(std::string_view text, bool first, std::vector<int64_t>& ids);
  Status encode_words(std::string text, bool first, std::vector<int64_t>& ids,
                      std::vector<TextRange> origins = {});
  Status find_spans(std::string_view word, size_t begin, std::span<const int64_t> ids);
  void trim(TextRange& span, std::string_view token, bool first) const;
  Result<TypedTokens> encode_plain(Tokenizer& whole, std::string_view text, bool with_spans);
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  const std::string text = FERRY_TRY(read_text_file(path, kMaxTokenizerFile));
  return parse(text, printable(path));
}

Result<Tokenizer> Tokenizer::parse(std::string_view document, const std::string& name) {
  return make(FERRY_TRY(parse_tokenizer_document(document, name)));
}

Result<Tokenizer> Tokenizer::make(const TokenizerDocument& document) {
  auto impl = std::make_unique<Impl>();
  impl->cut = FERRY_TRY(check_top_level(document));
  const std::string& name = document.name;
  const auto where = [&](const char* key) { return name + ": " + key; };
  impl->normalizer = FERRY_TRY(Normalizer::make(part(document, "normalizer"), where("normalizer")));
  impl->pre_tokenizer =
      FERRY_TRY(PreTokenizer::make(part(document, "pre_tokenizer"), where("pre_tokenizer")));
  impl->post_processor =
      FERRY_TRY(PostProcessor::make(part(document, "post_processor"), where("post_processor")));
  impl->decoder = FERRY_TRY(TokenDecoder::make(part(document, "decoder"), where("decoder")));
  if (document.sentencepiece != nullptr) impl->piece_texts.emplace(*document.sentencepiece);
  impl->vocabulary = FERRY_TRY(Vocabulary::make(document));
  impl->model =
      FERRY_TRY(TokenModel::make(document, impl->vocabulary, impl->pre_tokenizer.byte_level()));
  impl->spelling = TokenSpelling::make(document, impl->pre_tokenizer.byte_level());
  impl->added = FERRY_TRY(AddedTokens::make(document, impl->vocabulary, impl->normalizer));
  if (impl->loses_start()) {
    // The reference uses positions in the text before normalization, which Ferry does not track.
    return fail(ErrorCode::kUnsupported,
                where("pre_tokenizer") +
                    ": prepend_scheme 'first' behind a normalizer that strips is not supported "
                    "where the text is cut between them");
  }
  return Tokenizer(std::move(impl));
}

std::optional<Tokenizer::Cut> Tokenizer::cut() const { return impl_->cut; }

Result<std::vector<int64_t>> Tokenizer::encode(std::string_view text, bool add_special) {
  if (text.size() > kMaxText) return bad_input("a text of more than 256 MiB");
  if (!utf8::is_valid(text)) return bad_input("a text that is not valid UTF-8");
  std::vector<int64_t> ids;
  ids.reserve(text.size() / 4);
  impl_->parts.clear();
  impl_->added.cut(text, /*normalized=*/false, impl_->parts);
  for (const AddedTokens::Part& part : impl_->parts) {
    impl_->offset = part.begin;
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
      if (impl_->spans != nullptr) {
        impl_->spans->push_back(
            {static_cast<uint32_t>(part.begin), static_cast<uint32_t>(part.end)});
      }
    } else {
      FERRY_RETURN_IF_ERROR(
          impl_->encode_part(text.substr(part.begin, part.end - part.begin), part.begin == 0, ids));
    }
  }
  if (add_special) return impl_->post_processor.apply(std::move(ids));
  return ids;
}

Result<std::vector<int64_t>> Tokenizer::encode_cut(std::string_view text, size_t most, Cut cut) {
  std::vector<int64_t> ids = FERRY_TRY(encode(text, /*add_special=*/false));
  const size_t special = impl_->post_processor.apply({}).size();
  if (special > most) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("{} special tokens are more than the {} that a text may have", special, most));
  }
  const size_t kept = std::min(ids.size(), most - special);
  const auto count = static_cast<std::ptrdiff_t>(kept);
  ids = cut == Cut::kEnd ? std::vector<int64_t>(ids.begin(), ids.begin() + count)
                         : std::vector<int64_t>(ids.end() - count, ids.end());
  return impl_->post_processor.apply(std::move(ids));
}

// Encodes the text between two added tokens that are not normalized. `first` says whether the input
// begins with it.
Status Tokenizer::Impl::encode_part(std::string_view text, bool first, std::vector<int64_t>& ids) {
  std::string normal(text);
  FERRY_RETURN_IF_ERROR(normalizer.apply(normal));
  inner_parts.clear();
  added.cut(normal, /*normalized=*/true, inner_parts);
  std::vector<TextRange> origins;
  if (spans != nullptr) {
    origins = FERRY_TRY(align_normalized(normalizer, text, normal));
    for (TextRange& origin : origins) {
      origin.begin += static_cast<uint32_t>(offset);
      origin.end += static_cast<uint32_t>(offset);
    }
  }
  if (inner_parts.size() == 1 && inner_parts[0].token == nullptr) {
    return encode_words(std::move(normal), first, ids, std::move(origins));
  }
  for (const AddedTokens::Part& part : inner_parts) {
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
      if (spans == nullptr) continue;
      spans->push_back({origins[part.begin].begin, origins[part.end - 1].end});
    } else {
      std::vector<TextRange> of_part;
      if (spans != nullptr) {
        of_part.assign(origins.begin() + static_cast<std::ptrdiff_t>(part.begin),
                       origins.begin() + static_cast<std::ptrdiff_t>(part.end));
      }
      FERRY_RETURN_IF_ERROR(encode_words(normal.substr(part.begin, part.end - part.begin),
                                         first && part.begin == 0, ids, std::move(of_part)));
    }
  }
  return {};
}

Status Tokenizer::Impl::encode_words(std::string text, bool first, std::vector<int64_t>& ids,
                                     std::vector<TextRange> origins) {
  pieces.text = std::move(text);
  pieces.ranges.assign(1, {0, static_cast<uint32_t>(pieces.text.size())});
  pieces.starts_input = first;
  pieces.origins = std::move(origins);
  FERRY_RETURN_IF_ERROR(pre_tokenizer.apply(pieces));
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    const size_t before = ids.size();
    FERRY_RETURN_IF_ERROR(model->encode(pieces.at(i), ids));
    if (spans == nullptr) continue;
    FERRY_RETURN_IF_ERROR(
        find_spans(pieces.at(i), pieces.ranges[i].begin, std::span(ids).subspan(before)));
  }
  return {};
}

// Adds the bytes of the input that the tokens of a word stand for. The word begins at `begin` in
// `pieces`.
Status Tokenizer::Impl::find_spans(std::string_view word, size_t begin,
                                   std::span<const int64_t> ids) {
  std::vector<TextRange> in_word;
  FERRY_RETURN_IF_ERROR(spelling.find(word, ids, vocabulary, in_word));
  for (const TextRange& token : in_word) {
    const size_t last = std::max<size_t>(token.begin + 1, token.end) - 1;
    if (begin + last >= pieces.origins.size()) {
      spans->push_back(spans->empty() ? TextRange{0, 0} : spans->back());
      continue;
    }
    TextRange span = {pieces.origins[begin + token.begin].begin, pieces.origins[begin + last].end};
    trim(span, word.substr(token.begin, token.end - token.begin), spans->empty());
    spans->push_back(span);
  }
  return {};
}

// Takes the blanks at both ends of a token off its span, as the post-processor of ByteLevel does.
void Tokenizer::Impl::trim(TextRange& span, std::string_view token, bool first) const {
  if (!post_processor.trims_spans()) return;
  const size_t start = std::min(token.find_first_not_of(' '), token.size());
  const size_t stop = token.find_last_not_of(' ');
  auto leading = static_cast<uint32_t>(start);
  const auto trailing = static_cast<uint32_t>(
      stop == std::string_view::npos ? token.size() : token.size() - stop - 1);
  // The blank before the text is one that ByteLevel added.
  if ((first || span.begin == 0) && leading > 0 && post_processor.prefixed()) leading = 0;
  span.begin = std::min(span.begin + leading, span.end);
  if (span.end >= trailing) span.end = std::max(span.end - trailing, span.begin);
}

Result<TypedTokens> Tokenizer::Impl::encode_plain(Tokenizer& whole, std::string_view text,
                                                  bool with_spans) {
  TypedTokens tokens;
  spans = with_spans ? &tokens.spans : nullptr;
  Result<std::vector<int64_t>> ids = whole.encode(text, /*add_special=*/false);
  spans = nullptr;
  if (!ids) return Failure(ids.error());
  tokens.ids = *std::move(ids);
  tokens.types.resize(tokens.ids.size(), 0);
  tokens.special.resize(tokens.ids.size(), false);
  return tokens;
}

namespace {

template <class T>
void keep(std::vector<T>& list, size_t count, Tokenizer::Cut cut) {
  if (list.size() <= count) return;
  const auto more = static_cast<std::ptrdiff_t>(list.size() - count);
  if (cut == Tokenizer::Cut::kEnd) {
    list.erase(list.end() - more, list.end());
  } else {
    list.erase(list.begin(), list.begin() + more);
  }
}

void cut_tokens(TypedTokens& tokens, size_t count, Tokenizer::Cut cut) {
  keep(tokens.ids, count, cut);
  keep(tokens.types, count, cut);
  keep(tokens.special, count, cut);
  keep(tokens.spans, count, cut);
}

// Returns how many tokens of each text stay where both may have `most`: the longer one is cut
// first, then both to a half. Source: tokenizers, TruncationStrategy::LongestFirst.
std::pair<size_t, size_t> shares_of(size_t first, size_t second, size_t most) {
  const bool swapped = first > second;
  size_t shorter = std::min(first, second);
  size_t longer = shorter > most ? shorter : std::max(shorter, most - shorter);
  if (shorter + longer > most) {
    shorter = most / 2;
    longer = shorter + most % 2;
  }
  return swapped ? std::pair(longer, shorter) : std::pair(shorter, longer);
}

}  // namespace

Result<TypedTokens> Tokenizer::encode(const Input& input) {
  TypedTokens first = FERRY_TRY(impl_->encode_plain(*this, input.text, input.spans));
  std::optional<TypedTokens> second;
  if (input.second) second = FERRY_TRY(impl_->encode_plain(*this, *input.second, false));
  const size_t size = first.ids.size() + (second ? second->ids.size() : 0);
  const size_t special = impl_->post_processor.added(second.has_value());
  if (input.most && size + special > *input.most) {
    if (special > *input.most) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{} special tokens are more than the {} that a text may have",
                              special, *input.most));
    }
    const size_t room = *input.most - special;
    const auto [of_first, of_second] =
        second ? shares_of(first.ids.size(), second->ids.size(), room) : std::pair(room, size_t{0});
    cut_tokens(first, of_first, input.cut);
    if (second) cut_tokens(*second, of_second, input.cut);
  }
  return impl_->post_processor.apply(std::move(first), second ? &*second : nullptr);
}

Result<std::string> Tokenizer::join(std::vector<std::string> tokens) const {
  return impl_->decoder.apply(std::move(tokens));
}

std::optional<int64_t> Tokenizer::unknown() const {
  return impl_->spelling.unknown(impl_->vocabulary);
}

bool Tokenizer::marks_subwords() const { return impl_->spelling.marks_subwords(); }

std::optional<std::string> Tokenizer::token(int64_t id) const {
  if (const AddedToken* token = impl_->added.find(id)) return token->content;
  const auto text = impl_->vocabulary.token(id);
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

Result<std::string> Tokenizer::decode(std::span<const int64_t> ids, bool skip_special) const {
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  std::optional<PieceTexts>& pieces = impl_->piece_texts;
  if (pieces) pieces->begin(texts);
  for (const int64_t id : ids) {
    if (const AddedToken* token = impl_->added.find(id)) {
      if (skip_special && token->skipped) continue;
      pieces ? pieces->add_special(token->text) : texts.push_back(token->text);
    } else if (const auto text = impl_->vocabulary.token(id)) {
      pieces ? pieces->add(*text) : (void)texts.emplace_back(*text);
    }
  }
  return impl_->decoder.apply(std::move(texts));
}

int64_t Tokenizer::id_bound() const {
  int64_t bound = impl_->vocabulary.id_bound();
  for (const AddedToken& token : impl_->added.all()) {
    bound = std::max(bound, int64_t{token.id} + 1);
  }
  return bound;
}

std::optional<int64_t> Tokenizer::find(std::string_view token) const {
  if (const AddedToken* added = impl_->added.find(token)) return added->id;
  return impl_->vocabulary.find(token);
}

namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

std::string behind(const std::string& text, const std::string& given) {
  return text.size() > given.size() ? text.substr(given.size()) : "";
}

}  // namespace

Result<std::string> TextStream::push(int64_t id) {
  window_.push_back(id);
  const std::string text = FERRY_TRY(tokenizer_->decode(window_, /*skip_special=*/true));
  if (text.size() <= given_.size() || text.ends_with(kReplacementCharacter)) return std::string();
  std::string more = behind(text, given_);
  // Decoders treat the first token in a special way (they strip a blank). So the ids of this text
  // stay in the window, and the next ids are never the first.
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(context_));
  context_ = window_.size();
  given_ = FERRY_TRY(tokenizer_->decode(window_, /*skip_special=*/true));
  return more;
}

Result<std::string> TextStream::finish() {
  const std::string text = FERRY_TRY(tokenizer_->decode(window_, /*skip_special=*/true));
  std::string more = behind(text, given_);
  window_.clear();
  context_ = 0;
  given_.clear();
  return more;
}

}  // namespace ferry::text
