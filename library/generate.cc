#include <ferry/generate.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/utf8.h"
#include "library/internal.h"
#include "prompt/image_input.h"
#include "prompt/messages.h"
#include "prompt/sound_rows.h"
#include "runner/decoder.h"
#include "runner/generation_config.h"
#include "runner/sampler.h"
#include "runner/source_encoder.h"
#include "runner/vision_encoder.h"
#include "text/answer_end.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry {
inline namespace v0 {

struct Generator::Impl {
  Engine engine;
  packer::Bundle bundle;
  runner::MethodOptions method = {};
  std::unique_ptr<runner::Decoder> decoder = {};
  // Set for a bundle that takes images, or sounds. They have the tokenizer too.
  std::optional<prompt::ImageInput> input = {};
  std::optional<prompt::SoundRows> hearing = {};
  std::optional<text::Tokenizer> own_tokenizer = {};
  std::optional<text::ChatTemplate> chat_template = {};
  std::vector<int64_t> executed = {};             // tokens of the sequence in the decoder
  std::vector<prompt::EncodedImage> images = {};  // the decoder has views of these
  std::vector<prompt::EncodedSound> sounds = {};  // and of these
  bool has_rows = false;  // whether the sequence in the decoder has images or sounds
  // The first token of the answers of an encoder-decoder, and the tokens that its files forbid or
  // force.
  std::optional<int64_t> start_token = {};
  runner::GenerationRules rules = {};

  Status open_text();
  Status open_source();
  // Whether prompts are those of mistral-common, else those of the processor in `input`.
  bool has_sound_prompts() const { return hearing && hearing->has_prompts(); }
  text::Tokenizer* tokenizer() {
    if (input) return &input->prompts().tokenizer();
    if (has_sound_prompts()) return &hearing->prompts().tokenizer();
    return own_tokenizer ? &*own_tokenizer : nullptr;
  }
  Result<std::vector<int64_t>> encode(std::string_view text, bool add_special, const char* field);
  Result<std::vector<int64_t>> text_tokens(const Prompt& prompt);
  Result<prompt::ExpandedPrompt> processor_tokens(const Prompt& prompt, ThreadPool& pool);
  Result<prompt::SoundTokens> sound_tokens(const Prompt& prompt, ThreadPool& pool);
  Status encode_sounds(const Prompt& prompt, ThreadPool& pool);
  // Returns the tokens of a prompt that is no tokens, and its rows.
  Result<std::vector<int64_t>> tokens_of(const Prompt& prompt, ThreadPool& pool,
                                         std::vector<runner::EmbeddingRows>& rows);
  // Gives the text of the prompt to the encoder. Returns how many tokens it has.
  Result<int64_t> encode_source(const Prompt& prompt);
  // Returns the tokens of the prompt. Afterwards the decoder has the images or sounds at their
  // positions, and its sequence is a prefix of the prompt.
  Result<std::vector<int64_t>> prepare(const Prompt& prompt, ThreadPool& pool);
  void begin() {
    decoder->restart();
    executed.clear();
    has_rows = false;
  }
};

namespace {

using library::wrong;

// `from` must outlive the result.
Result<runner::DecodeOptions> decode_options(const GeneratorOptions& from) {
  runner::DecodeOptions options;
  if (from.mode == DecodeMode::kKv) options.mode = runner::DecodeMode::kKv;
  if (from.mode == DecodeMode::kHybrid) options.mode = runner::DecodeMode::kHybrid;
  if (from.mode == DecodeMode::kLookahead) options.mode = runner::DecodeMode::kLookahead;
  if (from.lookup < 0 || from.lookup > runner::kMostLookup) {
    return wrong("lookup", "must be 0 to " + std::to_string(runner::kMostLookup));
  }
  if (from.lookup > 0 && from.draft) return wrong("draft", "must be absent where lookup is given");
  options.lookup = from.lookup;
  if (from.draft) options.draft = &from.draft->impl().bundle;
  return options;
}

Status check_prompt(const Prompt& prompt) {
  const int given = (prompt.tokens.empty() ? 0 : 1) + (prompt.text.empty() ? 0 : 1) +
                    (prompt.messages.empty() ? 0 : 1) + (prompt.chat_json.empty() ? 0 : 1);
  if (given != 1) {
    return fail(ErrorCode::kUsage,
                "a prompt has exactly one of tokens, text, messages and chat_json");
  }
  if (!prompt.tokens.empty() && !prompt.images.empty()) {
    return wrong("images", "must be empty where the prompt has tokens");
  }
  if (!prompt.tokens.empty() && !prompt.sounds.empty()) {
    return wrong("sounds", "must be empty where the prompt has tokens");
  }
  if (!utf8::is_valid(prompt.text)) return wrong("text", "must be UTF-8");
  return {};
}

Status refuse_images(const Prompt& prompt) {
  if (!prompt.images.empty()) return wrong("images", "must be empty: this bundle takes none");
  for (const Message& message : prompt.messages) {
    if (message.images > 0) return wrong("messages", "must have no images: this bundle takes none");
  }
  return {};
}

Status refuse_sounds(const Prompt& prompt) {
  if (!prompt.sounds.empty()) return wrong("sounds", "must be empty: this bundle takes none");
  for (const Message& message : prompt.messages) {
    if (message.sounds > 0) return wrong("messages", "must have no sounds: this bundle takes none");
  }
  return {};
}

Result<std::vector<prompt::ChatMessage>> chat_messages(std::span<const Message> messages) {
  std::vector<prompt::ChatMessage> out;
  for (const Message& message : messages) {
    if (!utf8::is_valid(message.role) || !utf8::is_valid(message.text)) {
      return wrong("messages", "must be UTF-8");
    }
    out.push_back({message.role, message.text, message.images, message.sounds});
  }
  return out;
}

Status check_options(const GenerateOptions& options) {
  if (options.max_new_tokens < 1) return wrong("max_new_tokens", "must be 1 or more");
  for (const std::string& stop : options.stops) {
    if (stop.empty()) return wrong("stops", "must not have an empty text");
  }
  return {};
}

Result<runner::Sampler> make_sampler(const SamplingOptions& from,
                                     const runner::GenerationRules& rules, int64_t most) {
  runner::SamplingOptions options;
  options.rules = rules;
  options.rules.most = most;
  options.repetition_penalty = from.repetition_penalty;
  options.temperature = from.temperature;
  options.top_k = from.top_k;
  options.top_p = from.top_p;
  options.min_p = from.min_p;
  options.seed = from.seed;
  return runner::Sampler::make(options);
}

// The answer while it is generated.
class Answer {
 public:
  Answer(const GenerateOptions& options, const packer::Manifest& manifest,
         const runner::Decoder& decoder, const text::Tokenizer* tokenizer, const OnToken& on_token,
         runner::Sampler sampler, std::span<const int64_t> prompt)
      : options_(options),
        manifest_(manifest),
        decoder_(decoder),
        on_token_(on_token),
        sampler_(std::move(sampler)),
        prompt_(prompt),
        stops_(options.stops) {
    if (tokenizer != nullptr) stream_.emplace(*tokenizer);
  }

  // Chooses the next token from the logits before it. nullopt if generation ends here.
  Result<std::optional<int64_t>> choose(std::span<const float> logits) {
    const auto vocab = static_cast<size_t>(manifest_.vocab_size);
    if (logits.size() < vocab) {
      return bad_input("the bundle's logits are shorter than its vocabulary");
    }
    const int64_t token =
        FERRY_TRY(sampler_.sample(logits.last(vocab), prompt_, generation_.tokens));
    generation_.tokens.push_back(token);
    const bool is_end =
        !options_.ignore_end_tokens && std::ranges::count(manifest_.eos_ids, token) > 0;
    std::string part;
    if (stream_ && !is_end) part = stops_.push(FERRY_TRY(stream_->push(token)));
    generation_.text += part;
    const bool goes_on = !on_token_ || on_token_(token, part);
    stop_ = is_end ? std::optional(StopReason::kEndToken) : reason(goes_on);
    return stop_ ? std::nullopt : std::optional(token);
  }

  void interrupt() { stop_ = StopReason::kInterrupted; }

  Result<Generation> finish() {
    if (stream_) {
      std::string rest = stops_.push(FERRY_TRY(stream_->finish()));
      rest += stops_.finish();
      generation_.text += rest;
      if (on_token_ && !rest.empty() && stop_ != StopReason::kCallback) on_token_(-1, rest);
    }
    generation_.stop = *stop_;
    return std::move(generation_);
  }

 private:
  std::optional<StopReason> reason(bool goes_on) const {
    if (stops_.found()) return StopReason::kStopText;
    if (!goes_on) return StopReason::kCallback;
    if (std::ssize(generation_.tokens) >= options_.max_new_tokens) return StopReason::kMaxNewTokens;
    if (decoder_.position() >= decoder_.capacity()) return StopReason::kContextFull;
    return std::nullopt;
  }

  const GenerateOptions& options_;
  const packer::Manifest& manifest_;
  const runner::Decoder& decoder_;
  const OnToken& on_token_;
  runner::Sampler sampler_;
  std::span<const int64_t> prompt_;
  text::StopTexts stops_;
  std::optional<text::TextStream> stream_;
  std::optional<StopReason> stop_;
  Generation generation_;
};

}  // namespace

Status Generator::Impl::open_text() {
  const bool hears = prompt::SoundRows::is_in(bundle);
  if (prompt::has_processor(bundle)) {
    input = FERRY_TRY(prompt::ImageInput::open(bundle));
    return hears ? prompt::check_sound_placeholder(bundle, input->prompts()) : Status();
  }
  if (hears) {
    if (prompt::SoundRows::has_prompt_file(bundle)) {
      hearing = FERRY_TRY(prompt::SoundRows::open(bundle));
    }
    return {};
  }
  if (text::find_tokenizer_file(prompt::files_of(bundle)).empty()) return {};
  own_tokenizer =
      FERRY_TRY(text::load_tokenizer(bundle.text_directory(), prompt::reader_of(bundle)));
  return {};
}

Status Generator::Impl::open_source() {
  if (!runner::SourceEncoder::is_in(bundle)) return {};
  start_token = FERRY_TRY(runner::SourceEncoder::start_token_in(bundle));
  rules = FERRY_TRY(runner::generation_defaults(bundle)).sampling.rules;
  return {};
}

Result<std::vector<int64_t>> Generator::Impl::encode(std::string_view text, bool add_special,
                                                     const char* field) {
  if (!own_tokenizer) return wrong(field, "must be empty: this bundle has no tokenizer");
  return own_tokenizer->encode(text, add_special);
}

Result<std::vector<int64_t>> Generator::Impl::text_tokens(const Prompt& prompt) {
  FERRY_RETURN_IF_ERROR(refuse_images(prompt));
  FERRY_RETURN_IF_ERROR(refuse_sounds(prompt));
  if (!prompt.text.empty()) return encode(prompt.text, /*add_special=*/true, "text");
  const bool is_json = !prompt.chat_json.empty();
  const std::string chat =
      is_json ? prompt.chat_json
              : FERRY_TRY(library::chat_of(prompt.messages, /*add_generation_prompt=*/true));
  if (FERRY_TRY(prompt::message_beyond_text(chat, "chat")) > 0) {
    return wrong("chat_json", "must be text alone: this bundle takes no images");
  }
  if (!chat_template) {
    chat_template =
        FERRY_TRY(text::ChatTemplate::load(bundle.text_directory(), prompt::reader_of(bundle)));
  }
  // A chat template writes the special tokens itself.
  return encode(FERRY_TRY(chat_template->render(chat, "chat", text::chat::local_time())),
                /*add_special=*/false, is_json ? "chat_json" : "messages");
}

Result<prompt::ExpandedPrompt> Generator::Impl::processor_tokens(const Prompt& prompt,
                                                                 ThreadPool& pool) {
  const bool hears = prompt::SoundRows::is_in(bundle);
  FERRY_RETURN_IF_ERROR(hears ? encode_sounds(prompt, pool) : refuse_sounds(prompt));
  if (!prompt.images.empty() && !input->has_encoder()) {
    FERRY_RETURN_IF_ERROR(input->load_encoder(pool, method));
  }
  std::vector<prompt::EncodedImage> encoded;
  if (!prompt.images.empty()) encoded = FERRY_TRY(input->encode(prompt.images));
  images = std::move(encoded);
  const std::vector<prompt::ImageLayout> layouts = prompt::layouts_of(images);
  const std::vector<int64_t> rows = FERRY_TRY(prompt::row_counts(sounds));
  if (!prompt.text.empty()) return input->prompts().plain(prompt.text, "text", layouts, rows);
  std::string chat = prompt.chat_json;
  if (chat.empty()) {
    chat = input->prompts().chat_of(FERRY_TRY(chat_messages(prompt.messages)));
  }
  return input->prompts().chat(chat, "chat", text::chat::local_time(), layouts, rows);
}

Status Generator::Impl::encode_sounds(const Prompt& prompt, ThreadPool& pool) {
  // Without the file of its prompts a bundle with those of mistral-common says so here.
  if (!hearing) hearing = FERRY_TRY(prompt::SoundRows::open(bundle));
  if (!prompt.sounds.empty() && !hearing->has_encoder()) {
    FERRY_RETURN_IF_ERROR(hearing->load_encoder(pool, method));
  }
  std::vector<prompt::EncodedSound> encoded;
  for (const Sound& sound : prompt.sounds) {
    const media::Sound samples = FERRY_TRY(library::read_sound(sound, "sounds"));
    encoded.push_back(FERRY_TRY(hearing->encode(samples.samples, samples.rate)));
  }
  sounds = std::move(encoded);
  return {};
}

Result<prompt::SoundTokens> Generator::Impl::sound_tokens(const Prompt& prompt, ThreadPool& pool) {
  FERRY_RETURN_IF_ERROR(refuse_images(prompt));
  FERRY_RETURN_IF_ERROR(encode_sounds(prompt, pool));
  const std::vector<int64_t> rows = FERRY_TRY(prompt::row_counts(sounds));
  if (!prompt.text.empty()) return hearing->prompts().plain(prompt.text, rows, "text");
  if (!prompt.chat_json.empty()) {
    const auto messages = FERRY_TRY(prompt::sound_messages(prompt.chat_json, "chat_json"));
    return hearing->prompts().chat(messages, rows, "chat_json");
  }
  const auto messages = prompt::sound_messages(FERRY_TRY(chat_messages(prompt.messages)));
  return hearing->prompts().chat(messages, rows, "messages");
}

Result<std::vector<int64_t>> Generator::Impl::tokens_of(const Prompt& prompt, ThreadPool& pool,
                                                        std::vector<runner::EmbeddingRows>& rows) {
  if (!input && !prompt::SoundRows::is_in(bundle)) return text_tokens(prompt);
  if (has_rows) begin();  // ends the decoder's views of images and sounds
  FERRY_RETURN_IF_ERROR(decoder->set_image_rows({}));
  if (input) {
    prompt::ExpandedPrompt expanded = FERRY_TRY(processor_tokens(prompt, pool));
    rows = prompt::rows_of(expanded, images, sounds);
    return std::move(expanded.ids);
  }
  prompt::SoundTokens tokens = FERRY_TRY(sound_tokens(prompt, pool));
  rows = prompt::rows_of(tokens, sounds);
  return std::move(tokens.ids);
}

Result<int64_t> Generator::Impl::encode_source(const Prompt& prompt) {
  FERRY_RETURN_IF_ERROR(check_prompt(prompt));
  if (!prompt.messages.empty() || !prompt.chat_json.empty()) {
    return wrong(prompt.messages.empty() ? "chat_json" : "messages",
                 "must be empty: an encoder-decoder answers texts");
  }
  const std::vector<int64_t> tokens =
      prompt.tokens.empty() ? FERRY_TRY(text_tokens(prompt)) : prompt.tokens;
  begin();
  FERRY_RETURN_IF_ERROR(decoder->set_source(tokens));
  return std::ssize(tokens);
}

Result<std::vector<int64_t>> Generator::Impl::prepare(const Prompt& prompt, ThreadPool& pool) {
  FERRY_RETURN_IF_ERROR(check_prompt(prompt));
  std::vector<runner::EmbeddingRows> rows;
  std::vector<int64_t> tokens =
      prompt.tokens.empty() ? FERRY_TRY(tokens_of(prompt, pool, rows)) : prompt.tokens;
  if (tokens.empty()) return fail(ErrorCode::kUsage, "the prompt has no tokens");
  const bool extends = executed.size() < tokens.size() && !has_rows && rows.empty() &&
                       std::ranges::equal(executed, std::span(tokens).first(executed.size()));
  if (!extends) {
    begin();
    decoder->restart(std::ssize(tokens));
  }
  if (!rows.empty()) FERRY_RETURN_IF_ERROR(decoder->set_image_rows(rows));
  has_rows = !rows.empty();
  return tokens;
}

Generator::Generator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

Result<Generator> Generator::load(const Bundle& bundle, const Engine& engine,
                                  const GeneratorOptions& options) {
  const packer::Bundle& files = bundle.impl().bundle;
  return library::run(engine, files.path(), [&](ThreadPool& pool) -> Result<Generator> {
    auto impl = std::make_unique<Impl>(Impl{.engine = engine, .bundle = files});
    impl->method.memory = options.memory;
    impl->method.own_bf16 = !bundle.impl().exact;
    FERRY_RETURN_IF_ERROR(impl->open_text());
    FERRY_RETURN_IF_ERROR(impl->open_source());
    const runner::DecodeOptions decode = FERRY_TRY(decode_options(options));
    impl->decoder = FERRY_TRY(runner::load_decoder(files, pool, impl->method, decode));
    return Generator(std::move(impl));
  });
}

Result<Generation> Generator::generate(const Prompt& prompt, const GenerateOptions& options,
                                       const OnToken& on_token) {
  Impl& self = *impl_;
  const auto work = [&](ThreadPool& pool) -> Result<Generation> {
    FERRY_RETURN_IF_ERROR(check_options(options));
    runner::Sampler sampler =
        FERRY_TRY(make_sampler(options.sampling, self.rules, options.max_new_tokens));
    std::vector<int64_t> tokens;
    std::optional<int64_t> source_tokens;
    if (self.start_token) {
      source_tokens = FERRY_TRY(self.encode_source(prompt));
      tokens = {*self.start_token};
    } else {
      tokens = FERRY_TRY(self.prepare(prompt, pool));
    }
    const size_t reused = self.executed.size();
    Answer answer(options, self.bundle.manifest(), *self.decoder, self.tokenizer(), on_token,
                  std::move(sampler), tokens);
    const auto choose = [&](std::span<const float> logits) { return answer.choose(logits); };
    const auto logits = FERRY_TRY(self.decoder->forward(std::span(tokens).subspan(reused)));
    std::optional<int64_t> token = FERRY_TRY(choose(logits));
    while (token) {
      auto next = self.decoder->advance(*token, choose);
      if (!next && next.error().code == ErrorCode::kInterrupted) {
        answer.interrupt();
        break;
      }
      token = FERRY_TRY(std::move(next));
    }
    Generation generation = FERRY_TRY(answer.finish());
    generation.prompt_tokens = source_tokens.value_or(std::ssize(tokens));
    generation.reused_tokens = static_cast<int64_t>(reused);
    self.executed = tokens;
    self.executed.insert(self.executed.end(), generation.tokens.begin(), generation.tokens.end());
    // The last token has not been executed.
    self.executed.resize(static_cast<size_t>(self.decoder->position()));
    return generation;
  };
  Result<Generation> generation = library::run(self.engine, self.bundle.path(), work);
  if (!generation) restart();
  return generation;
}

Result<std::span<const float>> Generator::forward(std::span<const int64_t> tokens) {
  Impl& self = *impl_;
  return library::run(self.engine, self.bundle.path(),
                      [&](ThreadPool&) -> Result<std::span<const float>> {
                        const auto logits = FERRY_TRY(self.decoder->forward(tokens));
                        self.executed.insert(self.executed.end(), tokens.begin(), tokens.end());
                        return logits;
                      });
}

void Generator::restart() { impl_->begin(); }
Result<SamplingOptions> Generator::sampling_defaults() const {
  const auto file = FERRY_TRY(runner::generation_defaults(impl_->bundle));
  FERRY_RETURN_IF_ERROR(runner::check_supported(file, file.sampling));
  const runner::SamplingOptions& from = file.sampling;
  return SamplingOptions{.repetition_penalty = from.repetition_penalty,
                         .temperature = from.temperature,
                         .top_k = from.top_k,
                         .top_p = from.top_p,
                         .min_p = from.min_p};
}

int64_t Generator::position() const { return impl_->decoder->position(); }
int64_t Generator::capacity() const { return impl_->decoder->capacity(); }

}  // namespace v0
}  // namespace ferry
