#include "text/tokenizer/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/byte_level.h"

namespace ferry::text {
namespace {

std::string spelled(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    utf8::append(text, byte_level::kCharOf[static_cast<unsigned char>(c)]);
  }
  return text;
}

// A token can be merged from every two tokens that make it. Merges are ordered by the token's rank,
// then by the ranks of the two.
Status add_rank_merges(const std::vector<Rank>& ranks, DocumentBuilder& out) {
  struct Pair {
    uint32_t left_id, right_id;
    std::string_view left, right;
  };
  std::vector<Pair> pairs;
  for (const Rank& rank : ranks) {
    pairs.clear();
    const std::string text = spelled(rank.bytes);
    for (size_t at = 0; (at += utf8::decode_valid(text, at).size) < text.size();) {
      const std::string_view left = std::string_view(text).substr(0, at);
      const std::string_view right = std::string_view(text).substr(at);
      const auto left_id = out.find(left);
      const auto right_id = left_id ? out.find(right) : std::nullopt;
      if (right_id) pairs.push_back({*left_id, *right_id, left, right});
    }
    std::ranges::sort(pairs, [](const Pair& a, const Pair& b) {
      return std::pair(a.left_id, a.right_id) < std::pair(b.left_id, b.right_id);
    });
    for (const Pair& pair : pairs) FERRY_RETURN_IF_ERROR(out.add_merge(pair.left, pair.right));
  }
  return {};
}

}  // namespace

Status add_ranks(const std::vector<Rank>& ranks, DocumentBuilder& out) {
  for (const Rank& rank : ranks) {
    const std::string text = spelled(rank.bytes);
    if (out.in_vocabulary(text)) {
      return bad_input(
          fmt::format("{}: the token {} is there twice", out.name(), quoted(text, 60)));
    }
    out.add_token(text, rank.rank);
  }
  return add_rank_merges(ranks, out);
}

void set_rank_steps(const std::string& pattern, DocumentBuilder& out) {
  out.field("model") = {{"type", "BPE"}, {"ignore_merges", true}};
  out.field("pre_tokenizer") = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", pattern}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  out.field("decoder") = {{"type", "ByteLevel"}};
}

}  // namespace ferry::text
