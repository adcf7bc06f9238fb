#include "text/answer_end.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/file.h"
#include "core/text.h"
#include "text/chat_template/chat_template.h"
#include "text/chat_template/value.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::text {
namespace {

using chat::Value;

constexpr const char* kGenerationFile = "generation_config.json";
constexpr uint64_t kMaxGenerationConfigBytes = uint64_t{16} << 20;

// Returns nullopt if the file is absent, has no such member, or the member is null.
Result<std::optional<Value>> member_of(const std::string& path, std::string_view name) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<Value>();
  const std::string text = FERRY_TRY(read_text_file(path, kMaxGenerationConfigBytes));
  const Value root = FERRY_TRY(chat::parse_json_value(text, printable(path)));
  if (!root.is<Value::DictPtr>()) return bad_input(printable(path) + ": is no JSON object");
  for (const auto& [key, value] : root.members()) {
    if (key == name && !value.is<chat::None>()) return std::optional(value);
  }
  return std::optional<Value>();
}

Result<std::vector<int64_t>> ids_of(const Value& value, const std::string& path) {
  if (value.is<int64_t>()) return std::vector{value.integer()};
  std::vector<int64_t> ids;
  const bool is_list = value.is<Value::ListPtr>();
  if (is_list &&
      std::ranges::all_of(value.items(), [](const Value& id) { return id.is<int64_t>(); })) {
    for (const Value& id : value.items()) ids.push_back(id.integer());
    return ids;
  }
  return bad_input(
      fmt::format("{}: eos_token_id is neither a token id nor a list of them", printable(path)));
}

// A token is a string or an object that holds its text.
Result<std::string> text_of(const Value& token, const std::string& path) {
  if (token.is_text()) return token.str();
  if (token.is<Value::DictPtr>()) {
    for (const auto& [key, value] : token.members()) {
      if (key == "content" && value.is_text()) return value.str();
    }
  }
  return bad_input(fmt::format("{}: eos_token is no text", printable(path)));
}

}  // namespace

Result<std::vector<int64_t>> end_tokens(const std::string& directory) {
  const std::string generation = directory + "/" + kGenerationFile;
  const auto ids = FERRY_TRY(member_of(generation, "eos_token_id"));
  if (ids) return ids_of(*ids, generation);
  std::string file = directory + "/" + kTokenizerConfigFile;
  auto token = FERRY_TRY(member_of(file, "eos_token"));
  const std::string map = directory + "/" + kSpecialTokensMapFile;
  const auto decoder = FERRY_TRY(member_of(file, "added_tokens_decoder"));
  const auto mapped = FERRY_TRY(member_of(map, "eos_token"));
  if (!decoder && mapped) {  // the map takes precedence over the config
    token = mapped;
    file = map;
  }
  if (!token) return std::vector<int64_t>();
  const std::string text = FERRY_TRY(text_of(*token, file));
  const Tokenizer tokenizer = FERRY_TRY(load_tokenizer(directory));
  const std::optional<int64_t> id = tokenizer.find(text);
  if (id) return std::vector{*id};
  return bad_input(fmt::format("{}: eos_token {} is not a token of {}", printable(file),
                               quoted(text), printable(directory)));
}

// -- StopTexts

namespace {

// Returns how many bytes at the end of `text` begin `stop` without completing it.
size_t begun(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

std::string StopTexts::push(std::string_view part) {
  if (found_) return {};
  kept_ += part;
  size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = kept_.find(stop);
    if (at == std::string::npos || std::pair(at + stop.size(), at) >= std::pair(end, begin)) {
      continue;
    }
    begin = at;
    end = at + stop.size();
    found_ = stop;
  }
  if (found_) {
    kept_.resize(begin);
    return std::exchange(kept_, {});
  }
  size_t kept = 0;
  for (const std::string& stop : stops_) kept = std::max(kept, begun(kept_, stop));
  std::string given = kept_.substr(0, kept_.size() - kept);
  kept_.erase(0, given.size());
  return given;
}

std::string StopTexts::finish() { return std::exchange(kept_, {}); }

}  // namespace ferry::text
