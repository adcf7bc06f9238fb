// SpeechSettings: how a model of speech generates text, as its generation_config.json states it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"

namespace ferry::prompt {

// Which generate() of transformers 5.23 a model has: that of WhisperForConditionalGeneration, or
// the plain one, which knows neither languages nor timestamps.
enum class Generation { kWhisper, kPlain };

// Token ids and limits that it reads.
struct SpeechSettings {
  std::string where;  // path of the file, for messages
  Generation generation = Generation::kWhisper;
  int64_t start = 0;                     // decoder_start_token_id
  int64_t end = 0;                       // eos_token_id
  std::vector<int64_t> other_ends = {};  // the others, where the plain one has several
  std::optional<int64_t> pad = {};
  std::optional<int64_t> no_timestamps = {};  // the timestamps 0.00, 0.02, ... follow this token
  std::optional<int64_t> latest_start = {};   // max_initial_timestamp_index, in units of 0.02 s
  std::vector<int64_t> suppressed = {}, suppressed_first = {};
  // The tokens of forced_decoder_ids; nullopt for one that is null, a language to be detected.
  std::vector<std::optional<int64_t>> forced = {};
  bool multilingual = true;                       // false only where the file says so
  std::map<std::string, int64_t> languages = {};  // lang_to_id, such as "<|en|>"
  std::map<std::string, int64_t> tasks = {};      // task_to_id
  std::optional<std::string> language = {}, task = {};
  bool timestamps = false;  // return_timestamps
  std::optional<int64_t> max_length = {}, max_new_tokens = {};

  bool ends(int64_t token) const {
    return token == end || std::ranges::count(other_ends, token) > 0;
  }
  // The first timestamp token; beyond every token where the file states none.
  int64_t first_timestamp(int64_t vocab) const {
    return no_timestamps ? *no_timestamps + 1 : vocab + 1;
  }
};

// kIo if the bundle has no such file; kBadInput for wrong types and ids outside of the vocabulary;
// kUnsupported, by name, for settings that choose other tokens than the greedy ones.
Result<SpeechSettings> speech_settings(const packer::Bundle& bundle, Generation generation);
// Reads the text of a file. `where` begins the messages.
Result<SpeechSettings> parse_speech_settings(std::string_view text, int64_t vocab,
                                             const std::string& where,
                                             Generation generation = Generation::kWhisper);

}  // namespace ferry::prompt
