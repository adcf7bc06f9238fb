#include "text/tokenizer/converted_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base64.h"
#include "core/text.h"
#include "core/utf8.h"

namespace ferry::text {
namespace {

using nlohmann::json;
using ModelKind = SentencePieceModel::Kind;
using PieceKind = SentencePieceModel::PieceKind;
using Name = std::pair<std::string_view, std::string_view>;

constexpr int64_t kExtraIds = 100;  // the default of T5Tokenizer

enum class Layout { kPlain, kLlama, kGemma, kT5, kXlmRoberta, kAlbert };

// The properties that a tokenizer class of transformers fixes.
struct PieceClassRow {
  std::string_view name;
  Layout layout;
  ModelKind kind;
  std::string_view normalizer, pre_tokenizer, decoder;  // JSON; empty if code builds the step
  std::vector<Name> named;  // used if the files do not name these tokens
};

constexpr std::string_view kWords = R"({"type": "Sequence", "pretokenizers": [
    {"type": "WhitespaceSplit"},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}]})";
constexpr std::string_view kMarks = R"({"type": "Metaspace", "replacement": "▁",
    "prepend_scheme": "always", "split": true})";
constexpr std::string_view kByteDecoders = R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"}]})";

const std::vector<PieceClassRow>& class_rows() {
  static const std::vector<PieceClassRow> rows = {
      {"LlamaTokenizer",
       Layout::kLlama,
       ModelKind::kBpe,
       "null",
       "",
       kByteDecoders,
       {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}}},
      {"GemmaTokenizer",
       Layout::kGemma,
       ModelKind::kBpe,
       R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})",
       R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
           "invert": false})",
       kByteDecoders,
       {{"bos_token", "<bos>"},
        {"eos_token", "<eos>"},
        {"unk_token", "<unk>"},
        {"pad_token", "<pad>"},
        {"mask_token", "<mask>"}}},
      {"T5Tokenizer",
       Layout::kT5,
       ModelKind::kUnigram,
       "",
       kWords,
       kMarks,
       {{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}}},
      {"XLMRobertaTokenizer",
       Layout::kXlmRoberta,
       ModelKind::kUnigram,
       "",
       kWords,
       kMarks,
       {{"bos_token", "<s>"},
        {"eos_token", "</s>"},
        {"unk_token", "<unk>"},
        {"sep_token", "</s>"},
        {"pad_token", "<pad>"},
        {"cls_token", "<s>"},
        {"mask_token", "<mask>"}}},
      {"AlbertTokenizer",
       Layout::kAlbert,
       ModelKind::kUnigram,
       R"({"type": "Sequence", "normalizers": [
           {"type": "Replace", "pattern": {"String": "``"}, "content": "\""},
           {"type": "Replace", "pattern": {"String": "''"}, "content": "\""},
           {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
           {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]})",
       kWords,
       kMarks,
       {{"bos_token", "[CLS]"},
        {"eos_token", "[SEP]"},
        {"unk_token", "<unk>"},
        {"sep_token", "[SEP]"},
        {"pad_token", "<pad>"},
        {"cls_token", "[CLS]"},
        {"mask_token", "[MASK]"}}},
  };
  return rows;
}

json replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

class Conversion {
 public:
  Conversion(const SentencePieceModel& model, const TokenizerSettings& settings,
             const std::string& name)
      : model_(model), settings_(settings), name_(name), out_(name) {}

  Result<TokenizerDocument> run() {
    FERRY_RETURN_IF_ERROR(find_class());
    FERRY_RETURN_IF_ERROR(check());
    if (is_unigram_) {
      FERRY_RETURN_IF_ERROR(add_scores());
    } else {
      FERRY_RETURN_IF_ERROR(add_tokens());
    }
    FERRY_RETURN_IF_ERROR(add_literal_tokens());
    set_model();
    set_steps();
    FERRY_RETURN_IF_ERROR(set_enclosing());
    return out_.take();
  }

 private:
  Status find_class() {
    const std::string& wanted = settings_.class_name;
    for (const PieceClassRow& row : class_rows()) {
      if (row.name == wanted) row_ = &row;
    }
    if (row_ != nullptr) return {};
    for (const char* silent : {"", "PreTrainedTokenizer", "TokenizersBackend"}) {
      if (wanted == silent) return {};
    }
    return unsupported(fmt::format("tokenizer_class {}", quoted(wanted, 60)));
  }
  Failure unsupported(std::string_view what) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} is not supported for a SentencePiece model", name_, what));
  }
  Layout layout() const { return row_ == nullptr ? Layout::kPlain : row_->layout; }

  Status check() {
    is_unigram_ = model_.kind == ModelKind::kUnigram;
    if (!is_unigram_ && model_.kind != ModelKind::kBpe) {
      return unsupported("a word or character model");
    }
    if (model_.white_space_is_suffix) return unsupported("treat_whitespace_as_suffix");
    if (model_.denormalizes) return unsupported("a denormalizer");
    if (row_ != nullptr && row_->kind != model_.kind) {
      return unsupported(
          fmt::format("{} with a model of the other kind (BPE or Unigram)", row_->name));
    }
    if (layout() == Layout::kPlain) FERRY_RETURN_IF_ERROR(check_plain());
    if (layout() == Layout::kXlmRoberta && model_.pieces.size() < 3) {
      return bad_input(name_ + ": fewer than 3 pieces");
    }
    return {};
  }

  // SentencePiece and transformers read such models differently.
  Status check_plain() const {
    const char* what = is_unigram_                       ? "a Unigram model"
                       : !model_.escape_whitespaces      ? "escape_whitespaces = false"
                       : !model_.charsmap.empty()        ? "a precompiled_charsmap"
                       : model_.remove_extra_whitespaces ? "remove_extra_whitespaces"
                                                         : nullptr;
    if (what == nullptr) return {};
    return unsupported(fmt::format("{} without a tokenizer_class in tokenizer_config.json", what));
  }

  // -- vocabulary

  // Returns the content of a named token, or an empty text if there is none.
  std::string named(std::string_view key) const {
    const auto stated = settings_.named.find(key);
    if (stated != settings_.named.end()) {
      return stated->second ? stated->second->content : std::string();
    }
    if (row_ != nullptr) {
      for (const auto& [name, content] : row_->named) {
        if (name == key) return std::string(content);
      }
      return {};
    }
    if (key == "bos_token" && model_.bos_id >= 0) return model_.bos_piece;
    if (key == "eos_token" && model_.eos_id >= 0) return model_.eos_piece;
    return key == "unk_token" ? model_.unk_piece : std::string();
  }

  Status add_scores() {
    size_t begin = 0;
    if (layout() == Layout::kXlmRoberta) {  // the ids have the order of fairseq
      for (const char* key : {"bos_token", "pad_token", "eos_token", "unk_token"}) {
        if (named(key).empty()) return bad_input(fmt::format("{}: {} is null", name_, key));
        out_.add_scored(named(key), 0);
      }
      begin = 3;
    }
    for (size_t id = begin; id < model_.pieces.size(); ++id) {
      out_.add_scored(model_.pieces[id].text, static_cast<double>(model_.pieces[id].score));
    }
    if (layout() == Layout::kXlmRoberta && !named("mask_token").empty()) {
      out_.add_scored(named("mask_token"), 0);
    }
    for (const std::string& token : extra_ids()) out_.add_scored(token, 0);
    return {};
  }

  // Returns the sentinels of T5 in the order of their ids, so the last sentinel is first.
  std::vector<std::string> extra_ids() const {
    std::vector<std::string> tokens;
    const int64_t count = settings_.extra_ids.value_or(kExtraIds);
    for (int64_t i = layout() == Layout::kT5 ? count : 0; i-- > 0;) {
      tokens.push_back(fmt::format("<extra_id_{}>", i));
    }
    return tokens;
  }

  // A piece can be merged from every two pieces that make it. Merges have the order of the ids of
  // the merged pieces, and those of one piece are ordered by the length of the left side.
  Status add_tokens() {
    for (size_t id = 0; id < model_.pieces.size(); ++id) {
      out_.add_token(model_.pieces[id].text, static_cast<uint32_t>(id));
    }
    for (const auto& piece : model_.pieces) {
      const std::string_view text = piece.text;
      for (size_t at = 0; (at += utf8::decode_valid(text, at).size) < text.size();) {
        const std::string_view left = text.substr(0, at), right = text.substr(at);
        if (!out_.in_vocabulary(left) || !out_.in_vocabulary(right)) continue;
        FERRY_RETURN_IF_ERROR(out_.add_merge(left, right));
      }
    }
    return {};
  }

  // -- added tokens

  // Tokens are added in the order of the reference: those that the settings list, the named ones,
  // then the control and user-defined pieces of the model. A listed token keeps its flags.
  Status add_literal_tokens() {
    for (const auto& [id, token] : settings_.added) {
      out_.add(token);
      if (out_.find(token.content) == id) continue;
      return bad_input(fmt::format("{}: the added token {} has the id {} in {}, expected {}", name_,
                                   quoted(token.content, 60), id, settings_.added_file,
                                   *out_.find(token.content)));
    }
    const auto is_listed = [&](std::string_view content) {
      return std::ranges::any_of(
          settings_.added, [&](const auto& added) { return added.second.content == content; });
    };
    for (const std::string_view key : TokenizerSettings::kNames) {
      const std::string content = named(key);
      if (content.empty() || is_listed(content)) continue;
      const auto stated = settings_.named.find(key);
      TokenSpec plain;
      plain.content = content;
      out_.add(stated != settings_.named.end() && stated->second ? *stated->second : plain);
    }
    for (const auto& piece : model_.pieces) {
      const bool control = piece.kind == PieceKind::kControl;
      if ((!control && piece.kind != PieceKind::kUserDefined) || is_listed(piece.text)) continue;
      TokenSpec token;
      token.content = piece.text;
      token.special = control || is_named(piece.text);
      out_.add(token);
    }
    for (const std::string& content : extra_ids()) {
      TokenSpec token;
      token.content = content;
      out_.add(token);
    }
    return check_extra();
  }
  bool is_named(std::string_view content) const {
    return std::ranges::any_of(TokenizerSettings::kNames,
                               [&](std::string_view key) { return named(key) == content; });
  }
  // The files do not state the ids of these tokens.
  Status check_extra() const {
    for (const std::string& content : settings_.extra) {
      if (!out_.is_added(content)) {
        return unsupported(
            fmt::format("the further special token {} without an id", quoted(content, 60)));
      }
    }
    return {};
  }

  // -- steps

  void set_model() {
    if (is_unigram_) {
      const int64_t unk = layout() == Layout::kXlmRoberta ? 3 : layout() == Layout::kT5 ? 2 : 1;
      out_.field("model") = {{"type", "Unigram"}, {"unk_id", unk}, {"byte_fallback", false}};
      return;
    }
    json model = {{"type", "BPE"}, {"fuse_unk", true}};
    model["byte_fallback"] = layout() != Layout::kPlain || model_.byte_fallback;
    if (layout() == Layout::kGemma) model["unk_token"] = named("unk_token");
    if (layout() == Layout::kPlain) model["unk_token"] = model_.unk_piece;
    out_.field("model") = std::move(model);
  }

  json charsmap() const {
    return {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(model_.charsmap)}};
  }

  void set_steps() {
    if (row_ == nullptr) return set_plain_steps();
    const auto parsed = [](std::string_view text) { return json::parse(text); };
    if (!row_->normalizer.empty()) {
      out_.field("normalizer") = parsed(row_->normalizer);
    } else if (!model_.charsmap.empty()) {
      out_.field("normalizer") = charsmap();
    }
    json decoder = parsed(row_->decoder);
    const bool prefix = settings_.add_prefix_space.value_or(true);
    if (layout() == Layout::kLlama) {
      const char* scheme = !prefix                            ? "never"
                           : settings_.legacy.value_or(false) ? "always"
                                                              : "first";
      out_.field("pre_tokenizer") = {{"type", "Metaspace"},
                                     {"replacement", "▁"},
                                     {"prepend_scheme", scheme},
                                     {"split", false}};
      if (prefix) {
        decoder["decoders"].push_back(
            {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
      }
    } else {
      json words = parsed(row_->pre_tokenizer);
      const bool marks = layout() == Layout::kXlmRoberta || layout() == Layout::kAlbert;
      if (marks && !prefix) {
        words["pretokenizers"][1]["prepend_scheme"] = decoder["prepend_scheme"] = "never";
      }
      out_.field("pre_tokenizer") = std::move(words);
    }
    out_.field("decoder") = std::move(decoder);
  }

  // The steps of SentencePiece: a blank is put before the text, and blanks are written as U+2581.
  void set_plain_steps() {
    json steps = json::array();
    if (model_.add_dummy_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", "▁"}});
    steps.push_back(replace(" ", "▁"));
    out_.field("normalizer") = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
    json decoder = json::parse(kByteDecoders);
    json& decoders = decoder["decoders"];
    // The new step goes after the one that strips the blank, and before the one that joins the
    // texts.
    decoders.insert(
        decoders.begin() + 1,
        replace(model_.pieces[static_cast<size_t>(model_.unk_id)].text, model_.unk_surface));
    if (model_.add_dummy_prefix) {
      decoder["decoders"].push_back(
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    out_.field("decoder") = std::move(decoder);
  }

  Status set_enclosing() {
    std::vector<std::string> before, behind;
    switch (layout()) {
      case Layout::kT5:
        behind = {named("eos_token")};
        break;
      case Layout::kXlmRoberta:
        before = {named("bos_token")};
        behind = {named("eos_token")};
        break;
      case Layout::kAlbert:
        before = {"[CLS]"};
        behind = {"[SEP]"};
        break;
      default:
        if (settings_.add_bos.value_or(false)) before = {named("bos_token")};
        if (settings_.add_eos.value_or(false)) behind = {named("eos_token")};
    }
    std::erase(before, "");
    std::erase(behind, "");
    return out_.enclose(before, behind);
  }

  const SentencePieceModel& model_;
  const TokenizerSettings& settings_;
  const std::string& name_;
  const PieceClassRow* row_ = nullptr;
  bool is_unigram_ = false;
  DocumentBuilder out_;
};

}  // namespace

Result<TokenizerDocument> sentencepiece_document(const SentencePieceModel& model,
                                                 const TokenizerSettings& settings,
                                                 const std::string& name) {
  return Conversion(model, settings, name).run();
}

}  // namespace ferry::text
