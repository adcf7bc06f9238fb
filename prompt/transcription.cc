#include "prompt/transcription.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <utility>
#include <variant>

#include "core/interrupt.h"
#include "core/text.h"
#include "media/sound.h"
#include "prompt/sound_input.h"
#include "runner/sampler.h"
#include "text/blank_token.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::prompt {
namespace {

// Tokens of a window where the file states neither max_length nor max_new_tokens.
constexpr int64_t kDefaultLength = 20;

std::vector<std::string> names_in(const std::map<std::string, int64_t>& table) {
  std::vector<std::string> names;
  for (const auto& [name, id] : table) names.push_back(name);
  return names;
}

// Returns the token of a language or task that a user or the file names.
Result<int64_t> named_token(const std::map<std::string, int64_t>& table, const std::string& name,
                            const char* option, const std::string& where) {
  for (const std::string& form : {name, "<|" + name + "|>"}) {
    if (const auto found = table.find(form); found != table.end()) return found->second;
  }
  return fail_field(ErrorCode::kUsage, option,
                    fmt::format(" {}: {}", printable(name),
                                table.empty() ? fmt::format("{} has no tokens for it", where)
                                              : fmt::format("the model has {}",
                                                            fmt::join(names_in(table), " "))));
}

// Refuses the first of these options that is given and that a model does not have.
Status refuse(std::initializer_list<std::pair<const char*, bool>> options, const std::string& where,
              const char* model) {
  for (const auto& [name, is_given] : options) {
    if (!is_given) continue;
    return fail_field(ErrorCode::kUsage, name,
                      fmt::format(": {}: {} has no such option", where, model));
  }
  return {};
}

class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::vector<int64_t> Transcript::tokens() const {
  std::vector<int64_t> all;
  for (const SpeechSegment& segment : segments) {
    all.insert(all.end(), segment.tokens.begin(), segment.tokens.end());
  }
  return all;
}

Result<Transcriber> Transcriber::load(const packer::Bundle& bundle, ThreadPool& pool,
                                      const runner::MethodOptions& options) {
  Transcriber transcriber = FERRY_TRY(load_model(bundle, pool, options));
  if (!transcriber.tokenizer_) {
    transcriber.tokenizer_ = FERRY_TRY(text::load_tokenizer(bundle.text_directory()));
  }
  return transcriber;
}

Result<Transcriber> Transcriber::load_model(const packer::Bundle& bundle, ThreadPool& pool,
                                            const runner::MethodOptions& options) {
  const media::SoundSettings sound = FERRY_TRY(sound_settings(bundle));
  if (const auto* whole = std::get_if<media::NormalizedMelSettings>(&sound)) {
    return load_labels(bundle, *whole, pool, options);
  }
  if (std::holds_alternative<media::UsmMelSettings>(sound) ||
      std::holds_alternative<media::PairedMelSettings>(sound)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} has no request to write a sound down; ferry run --audio FILE "
                            "--chat TEXT asks it for that",
                            printable(bundle.path()), bundle.manifest().model_type));
  }
  if (SoundRows::is_in(bundle)) {
    return load_rows(bundle, std::get<media::LogMelSettings>(sound), pool, options);
  }
  const bool windows = std::holds_alternative<media::LogMelSettings>(sound);
  SpeechSettings settings =
      FERRY_TRY(speech_settings(bundle, windows ? Generation::kWhisper : Generation::kPlain));
  auto decoder = FERRY_TRY(runner::load_decoder(bundle, pool, options));
  return Transcriber(std::move(decoder), std::move(settings), sound, bundle.manifest().vocab_size,
                     bundle.manifest().context_length, pool);
}

Result<Transcriber> Transcriber::load_rows(const packer::Bundle& bundle,
                                           const media::LogMelSettings& sound, ThreadPool& pool,
                                           const runner::MethodOptions& options) {
  SpeechSettings settings = FERRY_TRY(speech_settings(bundle, Generation::kPlain));
  SoundRows rows = FERRY_TRY(SoundRows::open(bundle));
  FERRY_RETURN_IF_ERROR(rows.load_encoder(pool, options));
  auto decoder = FERRY_TRY(runner::load_decoder(bundle, pool, options));
  return Transcriber(std::move(decoder), std::move(settings), std::move(rows), sound,
                     bundle.manifest(), pool);
}

Result<Transcriber> Transcriber::load_labels(const packer::Bundle& bundle,
                                             const media::NormalizedMelSettings& sound,
                                             ThreadPool& pool,
                                             const runner::MethodOptions& options) {
  const std::string directory = bundle.text_directory();
  text::Tokenizer tokenizer = FERRY_TRY(text::load_tokenizer(directory));
  const int64_t blank = FERRY_TRY(text::blank_token(tokenizer, directory));
  auto encoder = FERRY_TRY(runner::AudioEncoder::load_with_labels(bundle, pool, options));
  Transcriber out(std::move(encoder), printable(bundle.path()), blank, sound, pool);
  out.tokenizer_ = std::move(tokenizer);
  return out;
}

Status Transcriber::encode(const media::Features& features, int64_t seek, int64_t count,
                           int64_t width, Transcript& out) {
  const Stopwatch watch(out.encode_seconds);
  window_.assign(static_cast<size_t>(features.mel_bins * width), 0.0F);
  for (int64_t mel = 0; mel < features.mel_bins; ++mel) {
    std::copy_n(features.values.begin() + mel * features.frames + seek, count,
                window_.begin() + mel * width);
  }
  return decoder_->set_sound(window_);
}

Result<int64_t> Transcriber::detect_language() {
  decoder_->restart();
  const std::span<const float> logits = FERRY_TRY(decoder_->forward({&settings_.start, 1}));
  const std::span<const float> row = logits.last(static_cast<size_t>(vocab_));
  std::vector<int64_t> ids;
  for (const auto& [name, id] : settings_.languages) ids.push_back(id);
  std::ranges::sort(ids);
  return *std::ranges::max_element(ids, {},
                                   [&](int64_t id) { return row[static_cast<size_t>(id)]; });
}

Result<std::vector<int64_t>> Transcriber::forced_tokens(const TranscriptionOptions& options,
                                                        bool timestamps) {
  const SpeechSettings& s = settings_;
  const auto& language = options.language ? options.language : s.language;
  const auto& task = options.task ? options.task : s.task;
  if (!s.multilingual) {
    FERRY_RETURN_IF_ERROR(
        refuse({{"language", options.language.has_value()}, {"task", options.task.has_value()}},
               s.where, "an English-only model"));
  }
  std::vector<std::optional<int64_t>> tokens = {s.start};
  if (!language && !task) tokens.insert(tokens.end(), s.forced.begin(), s.forced.end());
  std::optional<int64_t> language_id;
  if (language) {
    language_id = FERRY_TRY(named_token(s.languages, *language, "language", s.where));
  } else if (!s.languages.empty() && (tokens.size() == 1 || !tokens[1])) {
    language_id = FERRY_TRY(detect_language());
  }
  if (language_id && tokens.size() > 1) {
    tokens[1] = language_id;
  } else if (language_id) {
    tokens.push_back(language_id);
  }
  if (task) {
    tokens.push_back(FERRY_TRY(named_token(s.tasks, *task, "task", s.where)));
  } else if (language && !s.tasks.empty()) {
    tokens.push_back(FERRY_TRY(named_token(s.tasks, "transcribe", "task", s.where)));
  }
  const bool last_is_mark = tokens.back() == s.no_timestamps;
  if (!timestamps && s.no_timestamps && !last_is_mark) tokens.push_back(s.no_timestamps);
  if (timestamps && last_is_mark) tokens.pop_back();
  std::vector<int64_t> out;
  for (const std::optional<int64_t>& token : tokens) {
    if (token) out.push_back(*token);
  }
  return out;
}

Result<std::vector<int64_t>> Transcriber::generate(std::span<const int64_t> forced, int64_t most,
                                                   bool timestamps) {
  decoder_->restart();
  std::span<const float> logits = FERRY_TRY(decoder_->forward(forced));
  std::vector<int64_t> tokens;
  for (int64_t length = std::ssize(forced); length < most; ++length) {
    if (logits.size() < static_cast<size_t>(vocab_)) {
      return bad_input("the bundle's logits are not [rows, vocabulary]");
    }
    const std::span<const float> row = logits.last(static_cast<size_t>(vocab_));
    logits_.assign(row.begin(), row.end());
    apply_speech_rules(settings_, tokens, timestamps, logits_);
    tokens.push_back(static_cast<int64_t>(runner::argmax(logits_)));
    if (settings_.ends(tokens.back()) || length + 1 >= most) break;
    FERRY_RETURN_IF_ERROR(check_interrupt());
    logits = FERRY_TRY(decoder_->forward({&tokens.back(), 1}));
  }
  // The reference takes padding off, as many tokens from the end as there are.
  const bool pads_off = settings_.generation == Generation::kWhisper && settings_.pad;
  if (pads_off && !tokens.empty() && tokens.back() == *settings_.pad) {
    auto pads = std::ranges::count(tokens, *settings_.pad);
    if (*settings_.pad == settings_.end) pads -= 1;
    tokens.resize(tokens.size() - static_cast<size_t>(pads));
  }
  if (!tokens.empty() && settings_.ends(tokens.back())) tokens.pop_back();
  return tokens;
}

Status Transcriber::check_length(int64_t forced, int64_t most) const {
  if (most <= positions_ && forced < positions_) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: {} forced and {} new tokens, the programs have {} positions",
                          settings_.where, forced, most - forced, positions_));
}

Result<std::string> Transcriber::text_of(std::vector<int64_t> tokens) const {
  std::erase_if(tokens, [&](int64_t token) { return token >= first_timestamp(); });
  return tokenizer_->decode(tokens, /*skip_special=*/true);
}

Result<Transcript> Transcriber::transcribe(std::span<const float> samples, int64_t rate,
                                           const TranscriptionOptions& options) {
  Transcript out = FERRY_TRY(make_tokens(samples, rate, options));
  for (SpeechSegment& segment : out.segments) segment.text = FERRY_TRY(text_of(segment.tokens));
  out.text = FERRY_TRY(text_of(out.tokens()));
  out.forced_text = FERRY_TRY(tokenizer_->decode(out.forced, /*skip_special=*/false));
  out.duration = static_cast<double>(samples.size()) / static_cast<double>(rate);
  return out;
}

Result<Transcript> Transcriber::make_tokens(std::span<const float> samples, int64_t rate,
                                            const TranscriptionOptions& options) {
  if (rows_) return transcribe_rows(samples, rate, options);
  if (const auto* mel = std::get_if<media::LogMelSettings>(&sound_)) {
    return transcribe_windows(*mel, samples, rate, options);
  }
  if (const auto* whole = std::get_if<media::NormalizedMelSettings>(&sound_)) {
    return transcribe_labels(*whole, samples, rate, options);
  }
  return transcribe_whole(std::get<media::WaveformSettings>(sound_), samples, rate, options);
}

Status Transcriber::check_text_alone(const TranscriptionOptions& options) const {
  return refuse({{"language", options.language.has_value()},
                 {"task", options.task.has_value()},
                 {"timestamps", options.timestamps}},
                settings_.where, "the model");
}

Result<Transcript> Transcriber::transcribe_labels(const media::NormalizedMelSettings& mel,
                                                  std::span<const float> samples, int64_t rate,
                                                  const TranscriptionOptions& options) {
  FERRY_RETURN_IF_ERROR(check_text_alone(options));
  const std::vector<float> sound = media::at_rate(samples, rate, mel.rate, *pool_);
  const std::vector<float> frames = FERRY_TRY(whole_sound_frames(sound, mel, *pool_));
  Transcript out;
  out.windows = 1;
  if (options.progress) options.progress(0, 1);
  {
    const Stopwatch watch(out.encode_seconds);
    FERRY_RETURN_IF_ERROR(encoder_->encode(frames));
  }
  const Stopwatch watch(out.decode_seconds);
  std::vector<int64_t> labels;
  const auto width = static_cast<size_t>(vocab_);
  const std::span<const float> logits = encoder_->logits();
  for (size_t at = 0; at + width <= logits.size(); at += width) {
    labels.push_back(static_cast<int64_t>(runner::argmax(logits.subspan(at, width))));
  }
  const double seconds = static_cast<double>(samples.size()) / static_cast<double>(rate);
  out.segments.push_back({0, seconds, text::collapsed(labels, blank_)});
  return out;
}

Result<Transcript> Transcriber::transcribe_rows(std::span<const float> samples, int64_t rate,
                                                const TranscriptionOptions& options) {
  FERRY_RETURN_IF_ERROR(
      refuse({{"task", options.task.has_value()}, {"timestamps", options.timestamps}},
             settings_.where, "the model"));
  if (options.progress) options.progress(0, 1);
  Transcript out;
  std::vector<EncodedSound> sounds;
  {
    const Stopwatch watch(out.encode_seconds);
    FERRY_TRY(rows_->add(samples, rate, sounds));
  }
  out.windows = sounds.front().windows;
  const SoundTokens tokens =
      FERRY_TRY(rows_->prompts().transcription(sounds.front().rows, options.language));
  out.forced = tokens.ids;
  const int64_t forced = std::ssize(out.forced);
  int64_t most = settings_.max_length.value_or(positions_);
  if (settings_.max_new_tokens) most = forced + *settings_.max_new_tokens;
  FERRY_RETURN_IF_ERROR(check_length(forced, std::min(most, positions_)));
  const std::vector<runner::EmbeddingRows> rows = rows_of(tokens, sounds);
  FERRY_RETURN_IF_ERROR(decoder_->set_image_rows(rows));
  std::vector<int64_t> made;
  {
    const Stopwatch watch(out.decode_seconds);
    auto generated = generate(out.forced, std::min(most, positions_), /*timestamps=*/false);
    FERRY_RETURN_IF_ERROR(decoder_->set_image_rows({}));
    made = FERRY_TRY(std::move(generated));
  }
  out.segments.push_back({0, sounds.front().seconds, std::move(made)});
  return out;
}

Result<Transcript> Transcriber::transcribe_whole(const media::WaveformSettings& wave,
                                                 std::span<const float> samples, int64_t rate,
                                                 const TranscriptionOptions& options) {
  FERRY_RETURN_IF_ERROR(check_text_alone(options));
  const std::vector<float> values =
      media::waveform(media::at_rate(samples, rate, wave.rate, *pool_), wave);
  Transcript out;
  out.windows = 1;
  out.forced = {settings_.start};
  // Without a length in the file the reference generates 20 tokens, as far as it has positions.
  const int64_t forced = std::ssize(out.forced);
  int64_t most = settings_.max_length.value_or(std::min(kDefaultLength + forced, positions_));
  if (settings_.max_new_tokens) most = forced + *settings_.max_new_tokens;
  FERRY_RETURN_IF_ERROR(check_length(forced, most));
  if (options.progress) options.progress(0, 1);
  {
    const Stopwatch watch(out.encode_seconds);
    FERRY_RETURN_IF_ERROR(decoder_->set_sound(values));
  }
  std::vector<int64_t> tokens;
  {
    const Stopwatch watch(out.decode_seconds);
    tokens = FERRY_TRY(generate(out.forced, most, /*timestamps=*/false));
  }
  const double seconds = static_cast<double>(samples.size()) / static_cast<double>(rate);
  out.segments.push_back({0, seconds, std::move(tokens)});
  return out;
}

Result<Transcript> Transcriber::transcribe_windows(const media::LogMelSettings& mel,
                                                   std::span<const float> samples, int64_t rate,
                                                   const TranscriptionOptions& options) {
  const int64_t width = mel.chunk_frames();
  std::vector<float> sound = media::at_rate(samples, rate, mel.rate, *pool_);
  const bool is_long = std::ssize(sound) > mel.chunk_samples();
  if (!is_long) sound = media::one_chunk(sound, mel);
  const media::Features features = media::log_mel(sound, mel, *pool_);
  sound.clear();
  Transcript out;
  out.timestamps = options.timestamps || settings_.timestamps || features.frames > width;
  if (out.timestamps && !settings_.no_timestamps) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: 'no_timestamps_token_id' is missing, and timestamps need it",
                            settings_.where));
  }
  int64_t max_length = settings_.max_length.value_or(kDefaultLength);
  for (int64_t seek = 0; seek < features.frames;) {
    if (options.progress) {
      options.progress(static_cast<uint64_t>(seek), static_cast<uint64_t>(features.frames));
    }
    const int64_t count = std::min(width, features.frames - seek);
    FERRY_RETURN_IF_ERROR(encode(features, seek, count, width, out));
    const Stopwatch watch(out.decode_seconds);
    if (out.windows == 0) out.forced = FERRY_TRY(forced_tokens(options, out.timestamps));
    const int64_t forced = std::ssize(out.forced);
    max_length = std::min(max_length + forced, positions_);
    const int64_t most = settings_.max_new_tokens ? forced + *settings_.max_new_tokens : max_length;
    FERRY_RETURN_IF_ERROR(check_length(forced, most));
    const std::vector<int64_t> tokens = FERRY_TRY(generate(out.forced, most, out.timestamps));
    WindowSegments window = cut_window(tokens, seek, count, first_timestamp());
    if (window.advance < 1) {
      return bad_input(fmt::format("the transcript does not advance at frame {}", seek));
    }
    std::ranges::move(window.segments, std::back_inserter(out.segments));
    out.windows += 1;
    seek += window.advance;
  }
  return out;
}

}  // namespace ferry::prompt
