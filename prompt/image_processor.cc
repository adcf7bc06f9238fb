#include "prompt/image_processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include "core/text.h"
#include "media/settings.h"
#include "text/chat_template/chat_template.h"
#include "text/chat_template/lexer.h"
#include "text/chat_template/value.h"

namespace ferry::prompt {
namespace {

using text::chat::Value;

constexpr const char* kProcessorFile = "processor_config.json";
constexpr const char* kPreprocessorFile = "preprocessor_config.json";
constexpr const char* kTemplateJsonFile = "chat_template.json";
constexpr uint64_t kMaxConfigBytes = text::chat::kMaxTemplateBytes;

// The source of the text of a token: a field of tokenizer_config.json, or `otherwise`. Without a
// field the text is fixed. Without `otherwise` the field must be present. Without both there is no
// such token.
struct TokenRule {
  std::string_view field, otherwise;
};

struct Processor {
  std::string_view name;
  ImageGrammar grammar;
  std::string_view length_field;
  int64_t length;  // the default if the field is absent
  TokenRule image, open, close, global, video;
  bool adds_special = true;
  VideoText video_text = VideoText::kNone;
};

constexpr TokenRule kFake = {"fake_image_token", "<fake_token_around_image>"};
constexpr TokenRule kImagePad = {"image_token", "<|image_pad|>"};
constexpr TokenRule kVideoPad = {"video_token", "<|video_pad|>"};
constexpr TokenRule kVisionStart = {{}, "<|vision_start|>"}, kVisionEnd = {{}, "<|vision_end|>"};
constexpr Processor kProcessors[] = {
    {"Idefics3Processor",
     ImageGrammar::kIdefics3,
     "image_seq_len",
     169,
     {{}, "<image>"},
     {{}, kFake.otherwise},
     {{}, kFake.otherwise},
     {{}, "<global-img>"},
     {}},
    {"SmolVLMProcessor",
     ImageGrammar::kIdefics3,
     "image_seq_len",
     169,
     {"image_token", "<image>"},
     kFake,
     kFake,
     {"global_image_token", "<global-img>"},
     {"video_token", "<video>"},
     true,
     VideoText::kStory},
    {"InternVLProcessor",
     ImageGrammar::kInternVl,
     "image_seq_length",
     256,
     {"context_image_token", {}},
     {"start_image_token", {}},
     {"end_image_token", {}},
     {},
     {"video_token", {}},
     true,
     VideoText::kNumbered},
    {"Gemma3Processor",
     ImageGrammar::kGemma3,
     "image_seq_length",
     256,
     {"image_token", {}},
     {"boi_token", {}},
     {"eoi_token", {}},
     {},
     {}},
    {"Gemma3nProcessor",
     ImageGrammar::kGemma3n,
     "image_seq_length",
     256,
     {"image_token", {}},
     {"boi_token", {}},
     {"eoi_token", {}},
     {},
     {}},
    {"Gemma4Processor",
     ImageGrammar::kGemma4,
     {},
     0,
     {"image_token", {}},
     {"boi_token", {}},
     {"eoi_token", {}},
     {},
     {{}, "<|video|>"},
     true,
     VideoText::kClock},
    {"Qwen2VLProcessor",
     ImageGrammar::kQwenVl,
     {},
     0,
     kImagePad,
     kVisionStart,
     kVisionEnd,
     {},
     kVideoPad,
     true,
     VideoText::kRun},
    {"Qwen2_5_VLProcessor",
     ImageGrammar::kQwenVl,
     {},
     0,
     kImagePad,
     kVisionStart,
     kVisionEnd,
     {},
     kVideoPad,
     true,
     VideoText::kSpaced},
    {"Qwen3VLProcessor",
     ImageGrammar::kQwenVl,
     {},
     0,
     kImagePad,
     kVisionStart,
     kVisionEnd,
     {},
     kVideoPad,
     true,
     VideoText::kTimed},
    {"LlavaProcessor", ImageGrammar::kLlava, {}, 0, {"image_token", "<image>"}, {}, {}, {}, {}},
    {"LlavaNextProcessor", ImageGrammar::kTiled, {}, 0, {"image_token", "<image>"}, {}, {}, {}, {}},
    {"LlavaOnevisionProcessor",
     ImageGrammar::kTiled,
     {},
     0,
     {"image_token", "<image>"},
     {},
     {},
     {},
     {"video_token", "<video>"},
     true,
     VideoText::kPooled},
    {"Lfm2VlProcessor",
     ImageGrammar::kLfm2Vl,
     {},
     0,
     {"image_token", "<image>"},
     {"image_start_token", "<|image_start|>"},
     {"image_end_token", "<|image_end|>"},
     {"image_thumbnail_token", "<|img_thumbnail|>"},
     {},
     false},
    {"PaliGemmaProcessor",
     ImageGrammar::kPaliGemma,
     {},
     0,
     {"image_token", "<image>"},
     {},
     {},
     {},
     {},
     false},
    {"PixtralProcessor",
     ImageGrammar::kPixtral,
     {},
     0,
     {"image_token", "[IMG]"},
     {"image_break_token", "[IMG_BREAK]"},
     {"image_end_token", "[IMG_END]"},
     {},
     {}},
    {"GraniteSpeechProcessor", ImageGrammar::kGraniteSpeech, {}, 0, {}, {}, {}, {}, {}},
};

// The fields of processor_config.json that other code reads, or that older versions of the
// reference saved and no version reads.
constexpr std::string_view kOtherFields[] = {"processor_class",
                                             "image_processor",
                                             "video_processor",
                                             "chat_template",
                                             "image_token",
                                             "image_token_id",
                                             "fake_image_token",
                                             "end_of_utterance_token",
                                             "global_image_token",
                                             "video_token",
                                             "start_image_token",
                                             "start_image_token_id",
                                             "end_image_token",
                                             "end_image_token_id",
                                             "video_token_id",
                                             "fake_image_token_id",
                                             "global_image_tag",
                                             "global_image_token_id",
                                             "use_image_special_tokens"};

// The fields of PixtralProcessor, which names its own tokens.
constexpr std::string_view kPixtralFields[] = {"patch_size", "spatial_merge_size",
                                               "image_break_token", "image_end_token"};
// The fields from which LlavaProcessor computes the length of a run.
constexpr std::string_view kPatchSize = "patch_size";
constexpr std::string_view kStrategy = "vision_feature_select_strategy";
constexpr std::string_view kMoreTokens = "num_additional_image_tokens";
constexpr std::string_view kLlavaFields[] = {kPatchSize, kStrategy, kMoreTokens};
constexpr std::string_view kTiledFields[] = {kPatchSize, kStrategy, kMoreTokens, "num_image_tokens",
                                             "vision_aspect_ratio"};

// The fields of Gemma4Processor about sounds, and the run of an image, which the reference makes as
// long as the image has tokens.
constexpr std::string_view kGemma4Fields[] = {"image_seq_length", "audio_seq_length",
                                              "audio_ms_per_token", "feature_extractor"};

// The fields of Gemma3nProcessor about sounds.
constexpr std::string_view kSoundLength = "audio_seq_length";
constexpr int64_t kDefaultSoundLength = 188;
constexpr std::string_view kGemma3nFields[] = {kSoundLength, "feature_extractor"};

// The field of GraniteSpeechProcessor that names its placeholder, where the tokenizer does not.
constexpr std::string_view kAudioToken = "audio_token";
constexpr std::string_view kGraniteFields[] = {kAudioToken, "audio_processor"};

const Value* processor_member(const Value& object, std::string_view name) {
  const Value* found =
      object.is<Value::DictPtr>() ? std::get<Value::DictPtr>(object.data())->find(name) : nullptr;
  return found == nullptr || found->is<text::chat::None>() ? nullptr : found;
}

// Returns the JSON object of a file, or an empty object if there is no such file.
Result<Value> object_in(const std::string& path, const std::string& text) {
  if (text.empty()) return Value::dict({});
  Value value = FERRY_TRY(text::chat::parse_json_value(text, path));
  if (!value.is<Value::DictPtr>()) return bad_input(path + ": not an object");
  return value;
}

Result<std::string> text_in(const Value& object, std::string_view field, const std::string& path) {
  const Value* value = processor_member(object, field);
  if (value == nullptr) return std::string();
  if (!value->is_text()) return bad_input(fmt::format("{}: field '{}': not a text", path, field));
  return value->str();
}

// -- processor_config.json

Result<const Processor*> find_processor(const std::string& name, const std::string& path) {
  if (name.empty()) return bad_input(path + ": no field 'processor_class'");
  for (const Processor& processor : kProcessors) {
    if (processor.name == name) return &processor;
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: processor_class {} is not supported", path, quoted(name)));
}

// Returns the fields that a kind of processor has beside those of all.
std::span<const std::string_view> own_fields(ImageGrammar grammar) {
  if (grammar == ImageGrammar::kLlava) return kLlavaFields;
  if (grammar == ImageGrammar::kTiled) return kTiledFields;
  if (grammar == ImageGrammar::kPixtral) return kPixtralFields;
  if (grammar == ImageGrammar::kGemma3n) return kGemma3nFields;
  if (grammar == ImageGrammar::kGemma4) return kGemma4Fields;
  if (grammar == ImageGrammar::kGraniteSpeech) return kGraniteFields;
  return {};
}

Status check_fields(const Value& config, const Processor& processor, const std::string& path) {
  for (const auto& [name, value] : config.members()) {
    const bool known = std::ranges::find(kOtherFields, name) != std::end(kOtherFields);
    const auto more = own_fields(processor.grammar);
    const bool own = std::ranges::find(more, name) != more.end();
    if (known || own || name == processor.length_field || value.is<text::chat::None>()) continue;
    return fail(ErrorCode::kUnsupported, fmt::format("{}: field {}: not supported with {}", path,
                                                     quoted(name), processor.name));
  }
  return {};
}

Result<int64_t> length_in(const Value& config, const Processor& processor,
                          const std::string& path) {
  if (processor.length_field.empty()) return processor.length;
  const Value* value = processor_member(config, processor.length_field);
  if (value == nullptr) return processor.length;
  if (value->is<int64_t>() && value->integer() > 0 && value->integer() <= kMaxTokensPerTile) {
    return value->integer();
  }
  return bad_input(fmt::format("{}: field '{}': not a whole number from 1 to {}", path,
                               processor.length_field, kMaxTokensPerTile));
}

// Returns a whole number of a field, or `otherwise`.
Result<int64_t> number_in(const Value& config, std::string_view field, int64_t least, int64_t most,
                          std::optional<int64_t> otherwise, const std::string& path) {
  const Value* value = processor_member(config, field);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr) return bad_input(fmt::format("{}: no field '{}'", path, field));
  if (value->is<int64_t>() && value->integer() >= least && value->integer() <= most) {
    return value->integer();
  }
  return bad_input(
      fmt::format("{}: field '{}': not a whole number from {} to {}", path, field, least, most));
}

// The placeholders of a tile of LlavaProcessor, by the size of the tile and the fields above.
Result<int64_t> llava_length(const Value& config, int64_t tile, const std::string& path) {
  const int64_t patch = FERRY_TRY(number_in(config, kPatchSize, 1, tile, std::nullopt, path));
  const int64_t more = FERRY_TRY(number_in(config, kMoreTokens, 0, kMaxTokensPerTile, 0, path));
  const std::string strategy = FERRY_TRY(text_in(config, kStrategy, path));
  const int64_t tokens = (tile / patch) * (tile / patch) + more - (strategy == "default" ? 1 : 0);
  if (tokens > 0 && tokens <= kMaxTokensPerTile) return tokens;
  return bad_input(fmt::format("{}: a tile has {} tokens, not a number from 1 to {}", path, tokens,
                               kMaxTokensPerTile));
}

// -- tokenizer_config.json

// A token is a string or, in older files, an object {"content": "..."}.
const Value* special_token_text(const Value* value) {
  if (value == nullptr || value->is_text()) return value;
  const Value* content = processor_member(*value, "content");
  return content != nullptr && content->is_text() ? content : nullptr;
}

// Tokens beyond the common ones are members of one of these objects, or of the file itself.
const Value* find_token(const Value& config, std::string_view field) {
  for (const char* object : {"extra_special_tokens", "model_specific_special_tokens"}) {
    const Value* tokens = processor_member(config, object);
    const Value* text =
        tokens != nullptr ? special_token_text(processor_member(*tokens, field)) : nullptr;
    if (text != nullptr) return text;
  }
  return special_token_text(processor_member(config, field));
}

Result<std::string> token_of(const Value& config, const TokenRule& rule, const std::string& path) {
  const Value* stated = rule.field.empty() ? nullptr : find_token(config, rule.field);
  if (stated == nullptr && rule.otherwise.empty() && !rule.field.empty()) {
    return bad_input(fmt::format("{}: no field '{}'", path, rule.field));
  }
  const std::string text = stated != nullptr ? stated->str() : std::string(rule.otherwise);
  if (stated == nullptr || (!text.empty() && text.size() <= kMaxImageTokenBytes)) return text;
  return bad_input(fmt::format("{}: field '{}': {} bytes where 1 to {} are expected", path,
                               rule.field, text.size(), kMaxImageTokenBytes));
}

}  // namespace

Result<ImageProcessor> read_image_processor(const std::string& directory,
                                            const text::ReadFile& read) {
  const auto open = [&](const char* name, uint64_t limit, std::string& path) -> Result<Value> {
    path = printable(directory + "/" + name);
    const std::string text = FERRY_TRY(read(name, limit));
    return object_in(path, text);
  };
  std::string path, outer_path, tokenizer_path;
  const Value config = FERRY_TRY(open(kProcessorFile, kMaxConfigBytes, path));
  const Value outer = FERRY_TRY(open(kPreprocessorFile, kMaxConfigBytes, outer_path));
  if (config.members().empty() && outer.members().empty()) {
    return bad_input(fmt::format("{}: has no image processor: neither {} nor {}",
                                 printable(directory), kProcessorFile, kPreprocessorFile));
  }
  std::string name = FERRY_TRY(text_in(config, "processor_class", path));
  const bool inner = !name.empty();
  if (!inner) name = FERRY_TRY(text_in(outer, "processor_class", outer_path));
  const Processor* processor = FERRY_TRY(find_processor(name, inner ? path : outer_path));
  FERRY_RETURN_IF_ERROR(check_fields(config, *processor, path));

  const Value tokenizer =
      FERRY_TRY(open(text::kTokenizerConfigFile, text::kMaxTokenizerConfigBytes, tokenizer_path));
  const bool own_tokens = processor->grammar == ImageGrammar::kPixtral;
  const auto token = [&](const TokenRule& rule) {
    return own_tokens ? token_of(config, rule, path) : token_of(tokenizer, rule, tokenizer_path);
  };
  ImageProcessor out;
  out.grammar = processor->grammar;
  out.adds_special = processor->adds_special;
  out.tokens_per_tile = FERRY_TRY(length_in(config, *processor, path));
  TokenRule image = processor->image;
  std::string own_image;
  const auto tile_settings = [&]() -> Result<media::Settings> {
    const std::string preprocessor = FERRY_TRY(read(kPreprocessorFile, kMaxConfigBytes));
    const std::string own = FERRY_TRY(read(kProcessorFile, kMaxConfigBytes));
    return media::settings_from(preprocessor, own, printable(directory));
  };
  if (out.grammar == ImageGrammar::kLlava) {
    const media::Settings settings = FERRY_TRY(tile_settings());
    out.tokens_per_tile = FERRY_TRY(llava_length(config, settings.tile, path));
  }
  if (out.grammar == ImageGrammar::kLlava || out.grammar == ImageGrammar::kTiled) {
    own_image = FERRY_TRY(text_in(config, "image_token", path));
    if (!own_image.empty()) image.otherwise = own_image;
  }
  if (out.grammar == ImageGrammar::kPaliGemma) {
    out.tokens_per_tile = FERRY_TRY(tile_settings()).tile_tokens;
    if (out.tokens_per_tile == 0) {
      return bad_input(fmt::format("{}: the image processor has no field 'image_seq_length'",
                                   printable(directory)));
    }
  }
  out.image = FERRY_TRY(token(image));
  out.open = FERRY_TRY(token(processor->open));
  out.close = FERRY_TRY(token(processor->close));
  out.mark = out.grammar == ImageGrammar::kGemma3 ? out.open : out.image;
  out.stand_in = out.grammar == ImageGrammar::kQwenVl ? out.open + out.mark + out.close : out.mark;
  out.global = FERRY_TRY(token(processor->global));
  out.video = FERRY_TRY(token(processor->video));
  out.video_text = processor->video_text;
  if (out.grammar == ImageGrammar::kGemma3n) {
    out.tokens_per_sound =
        FERRY_TRY(number_in(config, kSoundLength, 1, kMaxTokensPerTile, kDefaultSoundLength, path));
  }
  if (out.grammar == ImageGrammar::kGemma3n || out.grammar == ImageGrammar::kGemma4) {
    const auto optional = [&](const char* field) -> Result<std::string> {
      if (find_token(tokenizer, field) == nullptr) return std::string();
      return token({field, {}});
    };
    out.audio = FERRY_TRY(optional("audio_token"));
    out.audio_open = FERRY_TRY(optional("boa_token"));
    out.audio_close = FERRY_TRY(optional("eoa_token"));
  }
  if (out.grammar == ImageGrammar::kGraniteSpeech) {
    const std::string stated = FERRY_TRY(text_in(config, kAudioToken, path));
    out.audio = FERRY_TRY(token({kAudioToken, stated.empty() ? "<|audio|>" : stated}));
  }
  if (const Value* bos = special_token_text(processor_member(tokenizer, "bos_token"))) {
    out.bos = bos->str();
  }
  if (out.grammar == ImageGrammar::kPaliGemma && out.bos.empty()) {
    return bad_input(tokenizer_path + ": no field 'bos_token'");
  }
  return out;
}

Result<std::string> read_processor_template(const std::string& directory,
                                            const text::ReadFile& read) {
  std::string jinja = FERRY_TRY(read(text::kChatTemplateFile, text::chat::kMaxTemplateBytes));
  if (!jinja.empty()) return jinja;
  for (const char* name : {kTemplateJsonFile, kProcessorFile}) {
    const std::string path = printable(directory + "/" + name);
    const std::string text = FERRY_TRY(read(name, kMaxConfigBytes));
    const Value fields = FERRY_TRY(object_in(path, text));
    jinja = FERRY_TRY(text_in(fields, "chat_template", path));
    if (!jinja.empty()) return jinja;
  }
  return jinja;
}

}  // namespace ferry::prompt
