#include <ferry/transcribe.h>

#include <utility>

#include "library/internal.h"
#include "media/sound.h"
#include "prompt/transcription.h"

namespace ferry {
inline namespace v0 {

struct Transcriber::Impl {
  Engine engine;
  packer::Bundle bundle;
  prompt::Transcriber transcriber;
};

namespace library {

Result<media::Sound> read_sound(const Sound& sound, const char* field) {
  if (sound.path.empty() == sound.samples.empty()) {
    return wrong(field, "must have one of path and samples");
  }
  if (!sound.path.empty()) {
    if (sound.rate != 0) return wrong(field, "must have no rate beside a path");
    return media::read_sound(sound.path);
  }
  FERRY_RETURN_IF_ERROR(media::check_samples(sound.samples, sound.rate, field));
  return media::Sound{.rate = sound.rate, .channels = 1, .samples = sound.samples};
}

}  // namespace library

namespace {

Transcription to_public(prompt::Transcript made) {
  Transcription out;
  out.tokens = made.tokens();
  for (prompt::SpeechSegment& segment : made.segments) {
    out.segments.push_back(
        {segment.start, segment.end, std::move(segment.text), std::move(segment.tokens)});
  }
  out.text = std::move(made.text);
  out.forced_tokens = std::move(made.forced);
  out.forced = std::move(made.forced_text);
  out.timestamps = made.timestamps;
  out.duration = made.duration;
  out.windows = made.windows;
  out.encode_seconds = made.encode_seconds;
  out.decode_seconds = made.decode_seconds;
  return out;
}

}  // namespace

Transcriber::Transcriber(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Transcriber::~Transcriber() = default;
Transcriber::Transcriber(Transcriber&&) noexcept = default;
Transcriber& Transcriber::operator=(Transcriber&&) noexcept = default;

Result<Transcriber> Transcriber::load(const Bundle& bundle, const Engine& engine,
                                      std::optional<uint64_t> memory) {
  const packer::Bundle& files = bundle.impl().bundle;
  return library::run(engine, files.path(), [&](ThreadPool& pool) -> Result<Transcriber> {
    runner::MethodOptions method;
    method.memory = memory;
    method.own_bf16 = !bundle.impl().exact;
    auto transcriber = FERRY_TRY(prompt::Transcriber::load(files, pool, method));
    return Transcriber(std::make_unique<Impl>(Impl{engine, files, std::move(transcriber)}));
  });
}

Result<Transcription> Transcriber::transcribe(const Sound& sound, const TranscribeOptions& options,
                                              const OnProgress& progress) {
  Impl& self = *impl_;
  const std::string& path = sound.path.empty() ? self.bundle.path() : sound.path;
  return library::run(self.engine, path, [&](ThreadPool&) -> Result<Transcription> {
    const media::Sound samples = FERRY_TRY(library::read_sound(sound, "sound"));
    prompt::TranscriptionOptions how;
    if (!options.language.empty()) how.language = options.language;
    if (!options.task.empty()) how.task = options.task;
    how.timestamps = options.timestamps;
    how.progress = library::show(progress, "transcribing");
    return to_public(FERRY_TRY(self.transcriber.transcribe(samples.samples, samples.rate, how)));
  });
}

}  // namespace v0
}  // namespace ferry
