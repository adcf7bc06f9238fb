#include "prompt/speech_settings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::prompt {
namespace {

using nlohmann::json;

constexpr const char* kSpeechFile = "generation_config.json";
constexpr uint64_t kMostSpeechBytes = 4 << 20;

// Settings that choose other tokens, and the values that do not. null never does.
struct PlainValue {
  const char* name;
  json value;
};

std::vector<PlainValue> plain_values() {
  return {{"num_beams", 1},
          {"repetition_penalty", 1.0},
          {"encoder_repetition_penalty", 1.0},
          {"no_repeat_ngram_size", 0},
          {"encoder_no_repeat_ngram_size", 0},
          {"min_length", 0},
          {"bad_words_ids", nullptr},
          {"min_new_tokens", nullptr},
          {"forced_bos_token_id", nullptr},
          {"forced_eos_token_id", nullptr},
          {"sequence_bias", nullptr},
          {"guidance_scale", nullptr},
          {"exponential_decay_length_penalty", nullptr},
          {"watermarking_config", nullptr},
          {"remove_invalid_values", false},
          {"condition_on_prev_tokens", false},
          {"no_speech_threshold", nullptr},
          {"logprob_threshold", nullptr},
          {"compression_ratio_threshold", nullptr},
          {"max_time", nullptr},
          {"stop_strings", nullptr}};
}

class SpeechFields {
 public:
  SpeechFields(const json& object, int64_t vocab, const std::string& where)
      : object_(object), vocab_(vocab), where_(where) {}

  Failure bad(std::string_view name, std::string_view what) const {
    return bad_input(fmt::format("{}: '{}' {}", where_, name, what));
  }
  const json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  Result<int64_t> id_of(const json& value, const char* name) const {
    if (!value.is_number_integer() || value < 0 || value >= vocab_) {
      return bad(name, fmt::format("has no token of the vocabulary of {}", vocab_));
    }
    return value.get<int64_t>();
  }
  Result<std::optional<int64_t>> id(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return std::optional<int64_t>();
    return std::optional(FERRY_TRY(id_of(*value, name)));
  }
  Result<int64_t> required_id(const char* name) const {
    const auto found = FERRY_TRY(id(name));
    if (!found) return bad(name, "is missing");
    return *found;
  }
  Result<std::optional<int64_t>> count(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return std::optional<int64_t>();
    if (!value->is_number_integer() || *value < 0 || *value > INT32_MAX) {
      return bad(name, "is not a whole number");
    }
    return std::optional(value->get<int64_t>());
  }
  Result<std::vector<int64_t>> ids(const char* name) const {
    std::vector<int64_t> out;
    const json* value = find(name);
    if (value == nullptr) return out;
    if (!value->is_array()) return bad(name, "is not a list of tokens");
    for (const json& item : *value) out.push_back(FERRY_TRY(id_of(item, name)));
    return out;
  }
  // Reads a list of tokens, or one; empty where the value is neither.
  Result<std::vector<int64_t>> one_or_more(const char* name) const {
    const json* value = find(name);
    if (value != nullptr && value->is_array()) return ids(name);
    return std::vector<int64_t>();
  }
  Result<std::map<std::string, int64_t>> table(const char* name) const {
    std::map<std::string, int64_t> out;
    const json* value = find(name);
    if (value == nullptr) return out;
    if (!value->is_object()) return bad(name, "is not an object");
    for (const auto& [key, item] : value->items()) out[key] = FERRY_TRY(id_of(item, name));
    return out;
  }
  Result<std::optional<std::string>> text(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return std::optional<std::string>();
    if (!value->is_string()) return bad(name, "is not a text");
    return std::optional(value->get<std::string>());
  }
  Result<bool> flag(const char* name, bool otherwise) const {
    const json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) return bad(name, "is not true or false");
    return value->get<bool>();
  }
  // Sampling; the generation of Whisper is greedy whatever the file says.
  Status check_greedy() const { return check_values({{"do_sample", false}}); }
  Status check_plain() const { return check_values(plain_values()); }
  Status check_values(const std::vector<PlainValue>& values) const {
    for (const PlainValue& plain : values) {
      const json* value = find(plain.name);
      if (value == nullptr || *value == plain.value) continue;
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: '{}' is {}: not supported", where_, plain.name,
                      quoted(value->dump(-1, ' ', true, json::error_handler_t::replace), 40)));
    }
    return {};
  }
  // Reads pairs of a position, from 1 on, and a token.
  Result<std::vector<std::optional<int64_t>>> forced() const {
    constexpr const char* kForced = "forced_decoder_ids";
    std::vector<std::optional<int64_t>> out;
    const json* value = find(kForced);
    if (value == nullptr) return out;
    if (!value->is_array()) return bad(kForced, "is not a list");
    for (const json& pair : *value) {
      const bool in_order = pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() &&
                            pair[0] == std::ssize(out) + 1;
      if (!in_order) return bad(kForced, "is not a list of pairs of 1, 2, ... and a token");
      std::optional<int64_t> id;
      if (!pair[1].is_null()) id = FERRY_TRY(id_of(pair[1], kForced));
      out.push_back(id);
    }
    return out;
  }

 private:
  const json& object_;
  int64_t vocab_;
  const std::string& where_;
};

// Reads what both kinds of generation read.
Result<SpeechSettings> read_common(const SpeechFields& fields, Generation generation) {
  SpeechSettings s;
  const bool plain = generation == Generation::kPlain;
  if (plain) FERRY_RETURN_IF_ERROR(fields.check_greedy());
  // The plain one begins with the token of the beginning where no other is stated.
  const auto start = FERRY_TRY(fields.id("decoder_start_token_id"));
  s.start = start || !plain ? FERRY_TRY(fields.required_id("decoder_start_token_id"))
                            : FERRY_TRY(fields.required_id("bos_token_id"));
  std::vector<int64_t> ends = {};
  if (plain) ends = FERRY_TRY(fields.one_or_more("eos_token_id"));
  s.end = ends.empty() ? FERRY_TRY(fields.required_id("eos_token_id")) : ends.front();
  s.other_ends = std::move(ends);
  s.pad = FERRY_TRY(fields.id("pad_token_id"));
  s.suppressed = FERRY_TRY(fields.ids("suppress_tokens"));
  s.suppressed_first = FERRY_TRY(fields.ids("begin_suppress_tokens"));
  s.max_length = FERRY_TRY(fields.count("max_length"));
  s.max_new_tokens = FERRY_TRY(fields.count("max_new_tokens"));
  return s;
}

}  // namespace

Result<SpeechSettings> parse_speech_settings(std::string_view text, int64_t vocab,
                                             const std::string& where, Generation generation) {
  const json object = FERRY_TRY(parse_json(text, where));
  if (!object.is_object()) return bad_input(where + ": not a JSON object");
  const SpeechFields fields(object, vocab, where);
  FERRY_RETURN_IF_ERROR(fields.check_plain());
  SpeechSettings s = FERRY_TRY(read_common(fields, generation));
  s.where = where;
  s.generation = generation;
  if (generation == Generation::kPlain) return s;
  s.no_timestamps = FERRY_TRY(fields.id("no_timestamps_token_id"));
  s.latest_start = FERRY_TRY(fields.count("max_initial_timestamp_index"));
  s.forced = FERRY_TRY(fields.forced());
  s.multilingual = FERRY_TRY(fields.flag("is_multilingual", true));
  s.languages = FERRY_TRY(fields.table("lang_to_id"));
  s.tasks = FERRY_TRY(fields.table("task_to_id"));
  s.language = FERRY_TRY(fields.text("language"));
  s.task = FERRY_TRY(fields.text("task"));
  s.timestamps = FERRY_TRY(fields.flag("return_timestamps", false));
  return s;
}

Result<SpeechSettings> speech_settings(const packer::Bundle& bundle, Generation generation) {
  const std::string path = bundle.text_directory() + "/" + kSpeechFile;
  if (!bundle.has_text(kSpeechFile)) {
    return fail(ErrorCode::kIo, printable(path) + ": there is no such file");
  }
  const std::string text = FERRY_TRY(read_text_file(path, kMostSpeechBytes));
  return parse_speech_settings(text, bundle.manifest().vocab_size, printable(path), generation);
}

}  // namespace ferry::prompt
