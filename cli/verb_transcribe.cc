// ferry transcribe turns speech into text with a bundle of a model of speech.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "media/sound.h"
#include "packer/bundle_reader.h"
#include "prompt/transcription.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::cli {
namespace {

struct TranscribeLine {
  std::string bundle, sound, language, task;
  bool timestamps = false;
};

// A transcript with its texts.
struct Written {
  const prompt::Transcript& transcript;
  std::vector<std::string> texts;  // of the segments
  std::string text;                // of all
  std::string forced;              // the forced tokens as text
  double duration = 0;             // of the sound, in seconds
};

Result<std::string> text_of(const text::Tokenizer& tokenizer, std::vector<int64_t> tokens,
                            int64_t first_timestamp) {
  std::erase_if(tokens, [&](int64_t token) { return token >= first_timestamp; });
  return tokenizer.decode(tokens, /*skip_special=*/true);
}

std::string transcript_json(const Written& w) {
  JsonWriter json;
  json.begin_object().member("text", w.text).member("forced", w.forced);
  json.member("timestamps", w.transcript.timestamps).member("duration", w.duration);
  json.member("windows", w.transcript.windows);
  json.member("encode_seconds", w.transcript.encode_seconds);
  json.member("decode_seconds", w.transcript.decode_seconds);
  json.member("forced_tokens", Shape(w.transcript.forced));
  json.member("tokens", Shape(w.transcript.tokens()));
  json.key("segments").begin_array();
  for (size_t i = 0; i < w.texts.size(); ++i) {
    const prompt::SpeechSegment& segment = w.transcript.segments[i];
    json.begin_object().member("start", segment.start).member("end", segment.end);
    json.member("text", w.texts[i]).member("tokens", Shape(segment.tokens)).end_object();
  }
  return json.end_array().end_object().take();
}

std::string transcript_text(const Written& w) {
  std::string lines;
  for (size_t i = 0; w.transcript.timestamps && i < w.texts.size(); ++i) {
    const prompt::SpeechSegment& segment = w.transcript.segments[i];
    lines += fmt::format("[{:.2f} - {:.2f}] {}\n", segment.start, segment.end,
                         printable(trimmed(w.texts[i])));
  }
  return w.transcript.timestamps ? lines : printable(trimmed(w.text)) + "\n";
}

Result<int> run_transcribe(Context& context, const TranscribeLine& o) {
  const packer::Bundle bundle =
      FERRY_TRY(packer::Bundle::open_to_execute(o.bundle, context.pool()));
  prompt::Transcriber transcriber =
      FERRY_TRY(prompt::Transcriber::load(bundle, context.pool(), {.own_bf16 = true}));
  const text::Tokenizer tokenizer = FERRY_TRY(text::load_tokenizer(bundle.text_directory()));
  const media::Sound sound = FERRY_TRY(media::read_sound(o.sound));
  prompt::TranscriptionOptions options;
  if (!o.language.empty()) options.language = o.language;
  if (!o.task.empty()) options.task = o.task;
  options.timestamps = o.timestamps;
  options.progress = context.progress("transcribing", ProgressUnit::kItems);
  const prompt::Transcript transcript =
      FERRY_TRY(transcriber.transcribe(sound.samples, sound.rate, options));
  Written written{transcript, {}, {}, {}, 0};
  const int64_t times = transcriber.first_timestamp();
  for (const prompt::SpeechSegment& segment : transcript.segments) {
    written.texts.push_back(FERRY_TRY(text_of(tokenizer, segment.tokens, times)));
  }
  written.text = FERRY_TRY(text_of(tokenizer, transcript.tokens(), times));
  written.forced = FERRY_TRY(tokenizer.decode(transcript.forced, /*skip_special=*/false));
  written.duration = static_cast<double>(sound.samples.size()) / static_cast<double>(sound.rate);
  context.detail(fmt::format("encoder {:.2f} s, decoder {:.2f} s", transcript.encode_seconds,
                             transcript.decode_seconds));
  if (context.json) {
    context.print_result(transcript_json(written), 0);
  } else {
    context.print(transcript_text(written));
  }
  return 0;
}

}  // namespace

void add_transcribe(CommandLine& line) {
  auto o = std::make_shared<TranscribeLine>();
  line.verb("transcribe", "Speech to text, with a bundle of a model of speech such as Whisper")
      .positional("BUNDLE", o->bundle, "Bundle with an audio encoder")
      .positional("FILE", o->sound, "Sound: WAV or FLAC, of any sampling rate and channels")
      .option("--language", o->language,
              "Language of the speech, such as en; by default it is detected")
      .option("--task", o->task, "transcribe, or translate into English")
      .flag("--timestamps", o->timestamps,
            "The times of segments too; sound longer than a window always has them")
      .example("ferry transcribe whisper.bundle talk.wav", "The words that were spoken.")
      .example(
          "ferry transcribe whisper.bundle talk.flac --language de --task translate "
          "--timestamps",
          "In English, with times.")
      .action([o](Context& context) { return run_transcribe(context, *o); });
}

}  // namespace ferry::cli
