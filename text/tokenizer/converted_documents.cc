#include "text/tokenizer/converted_documents.h"

#include <fmt/format.h>

#include "core/text.h"

namespace ferry::text {

using nlohmann::json;

void DocumentBuilder::keep(std::string_view text, uint32_t id) {
  const auto offset = static_cast<uint32_t>(document_.strings.size());
  document_.strings += text;
  places_.emplace(text, document_.vocab.size());
  document_.vocab.push_back({{offset, static_cast<uint32_t>(text.size())}, id});
}

void DocumentBuilder::add_token(std::string_view text, uint32_t id) {
  document_.has_vocab = document_.has_merges = true;
  keep(text, id);
}

void DocumentBuilder::add_scored(std::string_view text, double score) {
  document_.has_scores = true;
  keep(text, static_cast<uint32_t>(document_.vocab.size()));
  document_.scores.push_back(score);
}

Status DocumentBuilder::add_merge(std::string_view left, std::string_view right) {
  const auto slice = [&](std::string_view text) {
    return document_.vocab[places_.find(text)->second].text;
  };
  if (document_.merges.size() == kMaxMerges) {
    return bad_input(fmt::format("{}: more than {} merges", document_.name, kMaxMerges));
  }
  document_.merges.push_back({slice(left), slice(right)});
  return {};
}

std::optional<uint32_t> DocumentBuilder::find(std::string_view text) const {
  const auto added = added_ids_.find(text);
  if (added != added_ids_.end()) return added->second;
  const auto known = places_.find(text);
  if (known == places_.end()) return std::nullopt;
  return document_.vocab[known->second].id;
}

void DocumentBuilder::add(const TokenSpec& token) {
  auto id = find(token.content);
  if (!id) {
    if (!next_id_) next_id_ = static_cast<uint32_t>(places_.size());
    id = (*next_id_)++;
  }
  added_ids_[token.content] = *id;
  added_[*id] = token;
}

Status DocumentBuilder::enclose(const std::vector<std::string>& before,
                                const std::vector<std::string>& behind) {
  json single = json::array(), table = json::object();
  const auto set = [&](const std::string& token) -> Status {
    const auto id = find(token);
    if (!id) {
      return bad_input(fmt::format("{}: the special token {} is not in the vocabulary",
                                   document_.name, quoted(token, 60)));
    }
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    table[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
    return {};
  };
  for (const std::string& token : before) FERRY_RETURN_IF_ERROR(set(token));
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const std::string& token : behind) FERRY_RETURN_IF_ERROR(set(token));
  field("post_processor") = {
      {"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", table}};
  return {};
}

TokenizerDocument DocumentBuilder::take() {
  json list = json::array();
  for (const auto& [id, token] : added_) {
    list.push_back({{"id", id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  field("added_tokens") = std::move(list);
  return std::move(document_);
}

}  // namespace ferry::text
