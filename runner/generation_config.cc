#include "runner/generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::runner {
namespace {

using Json = nlohmann::json;

constexpr const char* kGenerationFile = "generation_config.json";
constexpr const char* kConfigFile = "config.json";
// The parts of a config.json that may state settings, in the order of the reference.
constexpr const char* kParts[] = {"decoder", "generator", "text_config"};
constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;
// transformers keeps the 50 likeliest tokens where the file does not say how many.
constexpr int64_t kReferenceTopK = 50;
// Old tools wrote this default of transformers into every config.json.
constexpr int64_t kUnsetMaxLength = 20;

enum class Neutral {
  kNull,        // only null has no effect
  kFalse,       // null and false have none
  kZero,        // null and numbers up to 0 have none
  kOne,         // null and 1 have none
  kUpToOne,     // null and numbers up to 1 have none
  kFromOne,     // null and numbers from 1 on have none
  kOutsideOne,  // null and numbers outside of (0, 1) have none
};

struct SettingRow {
  const char* name;
  Neutral neutral;
  bool of_drawing;
};

// Settings that transformers obeys and the Sampler does not, and at the end those of GGUF files
// (general.sampling.*).
constexpr SettingRow kUnsupportedSettings[] = {
    {"num_beams", Neutral::kUpToOne, false},
    {"penalty_alpha", Neutral::kZero, false},
    {"dola_layers", Neutral::kNull, false},
    {"guidance_scale", Neutral::kOne, false},
    {"sequence_bias", Neutral::kNull, false},
    {"encoder_repetition_penalty", Neutral::kOne, false},
    {"no_repeat_ngram_size", Neutral::kZero, false},
    {"encoder_no_repeat_ngram_size", Neutral::kZero, false},
    {"bad_words_ids", Neutral::kNull, false},
    {"force_words_ids", Neutral::kNull, false},
    {"constraints", Neutral::kNull, false},
    {"min_length", Neutral::kZero, false},
    {"min_new_tokens", Neutral::kZero, false},
    {"forced_bos_token_id", Neutral::kNull, false},
    {"forced_eos_token_id", Neutral::kNull, false},
    {"exponential_decay_length_penalty", Neutral::kNull, false},
    {"suppress_tokens", Neutral::kNull, false},
    {"begin_suppress_tokens", Neutral::kNull, false},
    {"watermarking_config", Neutral::kNull, false},
    {"stop_strings", Neutral::kNull, false},
    {"max_time", Neutral::kNull, false},
    {"token_healing", Neutral::kFalse, false},
    {"top_h", Neutral::kNull, true},
    {"typical_p", Neutral::kFromOne, true},
    {"epsilon_cutoff", Neutral::kOutsideOne, true},
    {"eta_cutoff", Neutral::kOutsideOne, true},
    {"xtc_probability", Neutral::kZero, true},
    {"mirostat", Neutral::kZero, true},
};

// The settings that encoder-decoders have as GenerationRules.
constexpr std::string_view kRuleSettings[] = {"bad_words_ids", "forced_bos_token_id",
                                              "forced_eos_token_id", "suppress_tokens",
                                              "begin_suppress_tokens"};

bool has_no_effect(const Json& value, Neutral neutral) {
  if (value.is_null()) return true;
  if (neutral == Neutral::kNull) return value.is_array() && value.empty();
  if (neutral == Neutral::kFalse) return value == false;
  if (!value.is_number()) return false;
  const double number = value.get<double>();
  switch (neutral) {
    case Neutral::kZero:
      return number <= 0;
    case Neutral::kOne:
      return number == 1;
    case Neutral::kUpToOne:
      return number <= 1;
    case Neutral::kFromOne:
      return number >= 1;
    default:
      return number <= 0 || number >= 1;
  }
}

// Reads the members of one file.
class GenerationFile {
 public:
  // `part` has the members that `root` lacks; nullptr for none.
  GenerationFile(const Json& root, const Json* part, const std::string& name)
      : root_(root), part_(part), name_(name) {}

  Result<double> number(const char* key, double otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) return bad(key, *value, "is no number");
    return value->get<double>();
  }
  Result<std::optional<int64_t>> count(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::optional<int64_t>();
    const bool in_range = value->is_number_integer() && *value >= 0 && *value <= INT32_MAX;
    if (!in_range) return bad(key, *value, "is no count");
    return std::optional(value->get<int64_t>());
  }
  Result<bool> flag(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return bad(key, *value, "is neither true nor false");
    return value->get<bool>();
  }
  // Reads a token, or a list of tokens, of a vocabulary.
  Result<std::vector<int64_t>> ids(const char* key, int64_t vocab) const {
    const Json* value = find(key);
    if (value == nullptr) return std::vector<int64_t>();
    return ids_of(value->is_array() ? *value : Json::array({*value}), key, vocab);
  }
  Result<std::vector<std::vector<int64_t>>> words(const char* key, int64_t vocab) const {
    std::vector<std::vector<int64_t>> out;
    const Json* value = find(key);
    if (value == nullptr) return out;
    if (!value->is_array()) return bad(key, *value, "is no list of lists of tokens");
    for (const Json& word : *value) {
      if (!word.is_array() || word.empty()) return bad(key, *value, "has no list of tokens");
      out.push_back(FERRY_TRY(ids_of(word, key, vocab)));
    }
    return out;
  }
  std::vector<UnsupportedSetting> unsupported(bool has_rules) const {
    std::vector<UnsupportedSetting> found;
    for (const SettingRow& row : kUnsupportedSettings) {
      if (has_rules && std::ranges::count(kRuleSettings, std::string_view(row.name)) > 0) continue;
      const Json* value = find(row.name);
      if (value == nullptr || has_no_effect(*value, row.neutral)) continue;
      found.push_back({row.name, shown(*value), row.of_drawing});
    }
    return found;
  }

 private:
  const Json* find(const char* key) const {
    for (const Json* object : {&root_, part_}) {
      if (object == nullptr) continue;
      const auto found = object->find(key);
      if (found != object->end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }
  Result<std::vector<int64_t>> ids_of(const Json& list, const char* key, int64_t vocab) const {
    std::vector<int64_t> out;
    for (const Json& id : list) {
      const bool is_token = id.is_number_integer() && id >= 0 && id < vocab;
      if (!is_token) return bad(key, id, "has no token of the vocabulary");
      out.push_back(id.get<int64_t>());
    }
    return out;
  }
  static std::string shown(const Json& value) {
    constexpr size_t kMost = 40;
    const std::string text = value.dump();
    return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
  }
  Failure bad(const char* key, const Json& value, const char* what) const {
    return bad_input(fmt::format("{}: '{}' {}: {}", name_, key, what, printable(shown(value))));
  }

  const Json& root_;
  const Json* part_;
  const std::string& name_;
};

Result<SamplingOptions> read_sampling(const GenerationFile& file, const std::string& name) {
  SamplingOptions sampling;
  const bool draws = FERRY_TRY(file.flag("do_sample"));
  sampling.repetition_penalty = FERRY_TRY(file.number("repetition_penalty", 1));
  const double temperature = FERRY_TRY(file.number("temperature", 1));
  const auto top_k = FERRY_TRY(file.count("top_k"));
  const double top_p = FERRY_TRY(file.number("top_p", 1));
  const double min_p = FERRY_TRY(file.number("min_p", 0));
  if (draws) {
    sampling.temperature = temperature;
    sampling.top_k = top_k.value_or(kReferenceTopK);
    sampling.top_p = std::min(top_p, 1.0);  // transformers skips what is 1 or more
    sampling.min_p = min_p;
  }
  if (const auto made = Sampler::make(sampling); !made) {
    return bad_input(fmt::format("{}: {}", name, made.error().message));
  }
  return sampling;
}

// A bad word that is an end token has no effect in the reference.
Result<GenerationRules> read_rules(const GenerationFile& file, int64_t vocab) {
  GenerationRules rules;
  rules.bad_words = FERRY_TRY(file.words("bad_words_ids", vocab));
  for (const int64_t end : FERRY_TRY(file.ids("eos_token_id", vocab))) {
    std::erase(rules.bad_words, std::vector<int64_t>{end});
  }
  rules.suppressed = FERRY_TRY(file.ids("suppress_tokens", vocab));
  rules.suppressed_first = FERRY_TRY(file.ids("begin_suppress_tokens", vocab));
  rules.forced_last = FERRY_TRY(file.ids("forced_eos_token_id", vocab));
  const std::vector<int64_t> first = FERRY_TRY(file.ids("forced_bos_token_id", vocab));
  if (!first.empty()) rules.forced_first = first.front();
  return rules;
}

Result<GenerationDefaults> read_defaults(const GenerationFile& file, const std::string& name,
                                         std::optional<int64_t> source_vocab) {
  GenerationDefaults defaults;
  defaults.file = name;
  defaults.sampling = FERRY_TRY(read_sampling(file, name));
  defaults.unsupported = file.unsupported(source_vocab.has_value());
  if (source_vocab) defaults.sampling.rules = FERRY_TRY(read_rules(file, *source_vocab));
  defaults.max_new_tokens = FERRY_TRY(file.count("max_new_tokens"));
  defaults.max_length = FERRY_TRY(file.count("max_length"));
  return defaults;
}

Result<Json> object_of(std::string_view text, const std::string& name) {
  Json root = FERRY_TRY(parse_json(text, name));
  if (!root.is_object()) return bad_input(name + ": is no JSON object");
  return root;
}

// Returns the part of a config.json that has the members that the config lacks, or nullptr.
const Json* part_of(const Json& config) {
  for (const char* name : kParts) {
    const auto found = config.find(name);
    if (found != config.end() && found->is_object() && !found->empty()) return &*found;
  }
  return nullptr;
}

}  // namespace

Result<GenerationDefaults> parse_generation_config(std::string_view text, const std::string& name,
                                                   std::optional<int64_t> source_vocab) {
  const Json root = FERRY_TRY(object_of(text, name));
  return read_defaults(GenerationFile(root, nullptr, name), name, source_vocab);
}

Result<GenerationDefaults> parse_model_config(std::string_view text, const std::string& name,
                                              std::optional<int64_t> source_vocab) {
  const Json root = FERRY_TRY(object_of(text, name));
  GenerationDefaults defaults =
      FERRY_TRY(read_defaults(GenerationFile(root, part_of(root), name), name, source_vocab));
  if (defaults.max_length == kUnsetMaxLength) defaults.max_length.reset();
  return defaults;
}

Result<GenerationDefaults> generation_defaults(const packer::Bundle& bundle) {
  const bool has_file = bundle.has_text(kGenerationFile);
  const char* file = has_file ? kGenerationFile : kConfigFile;
  if (!bundle.has_text(file)) return GenerationDefaults();
  const std::string text = FERRY_TRY(bundle.text(file, kMaxFileBytes));
  const packer::Manifest& m = bundle.manifest();
  std::optional<int64_t> source_vocab;
  if (m.find(kSourceEncoderRole) != nullptr) source_vocab = m.vocab_size;
  const std::string name = printable(bundle.text_directory() + "/" + file);
  return has_file ? parse_generation_config(text, name, source_vocab)
                  : parse_model_config(text, name, source_vocab);
}

Status check_supported(const GenerationDefaults& defaults, const SamplingOptions& sampling) {
  for (const UnsupportedSetting& setting : defaults.unsupported) {
    if (setting.of_drawing && sampling.temperature == 0) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: '{}' is {}, which is not supported", defaults.file, setting.name,
                            printable(setting.value)));
  }
  return {};
}

}  // namespace ferry::runner
