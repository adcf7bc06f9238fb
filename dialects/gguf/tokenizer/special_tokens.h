// Derives the keys of a GGUF file about special tokens, chat templates and the normalizer, as
// llama.cpp's gguf-py does (class SpecialVocab): from tokenizer.json, tokenizer_config.json and
// config.json.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/gguf_key_value.h"

namespace ferry::text {

// Keys of a GGUF file and their values, in the order in which they were set first.
class GgufKeyList {
 public:
  // Replaces the value of a key that is there, in its place. Empty texts and lists are left out, as
  // the converter does.
  void set(std::string_view key, GgufValue value) {
    if (is_empty(value)) return;
    const auto at = std::ranges::find(entries_, key, &GgufKeyValue::key);
    if (at == entries_.end()) {
      entries_.push_back({std::string(key), std::move(value)});
    } else {
      at->value = std::move(value);
    }
  }
  const std::vector<GgufKeyValue>& entries() const { return entries_; }
  std::vector<GgufKeyValue> take() && { return std::move(entries_); }

 private:
  static bool is_empty(const GgufValue& value) {
    return std::visit(
        [](const auto& held) {
          if constexpr (requires { held.empty(); }) {
            return held.empty();
          } else {
            return false;
          }
        },
        value);
  }

  std::vector<GgufKeyValue> entries_;
};

class GgufSpecialTokens {
 public:
  // `tokenizer` is the document without its vocabulary, null where there is no tokenizer.json. The
  // other two may be null as well. Ids from `id_bound` on are left out.
  GgufSpecialTokens(const nlohmann::json& tokenizer, nlohmann::json tokenizer_config,
                    const nlohmann::json& config, const nlohmann::json& chat_templates,
                    int64_t id_bound);

  // Sets an id, unless the type has one already.
  void set(std::string_view type, int64_t id);
  void write(GgufKeyList& keys) const;

 private:
  void read_post_processor(const nlohmann::json& post_processor);
  void read_roberta(const nlohmann::json& processor);
  void read_template(const nlohmann::json& processor);
  void read_first(const nlohmann::json& first);
  void read_last(const nlohmann::json& last);
  void read_pair(const nlohmann::json& pair, const nlohmann::json& first,
                 const nlohmann::json& last);
  void read_normalizer(const nlohmann::json& normalizer, int depth);
  void read_tokenizer_config(const nlohmann::json& added_tokens);
  void read_config(const nlohmann::json& config);
  void write_templates(GgufKeyList& keys) const;
  void set_flag(std::string_view type, bool value);
  bool has_flag(std::string_view type) const;

  nlohmann::json config_;  // tokenizer_config.json, with what the post-processor adds
  nlohmann::json bos_, cls_, eos_, sep_;
  nlohmann::json templates_;
  int64_t id_bound_;
  std::vector<std::string> types_;
  std::vector<std::pair<std::string, int64_t>> ids_;  // in the order of discovery
  std::vector<std::pair<std::string, bool>> flags_;
  std::vector<std::pair<std::string, bool>> normalizer_;
};

}  // namespace ferry::text
