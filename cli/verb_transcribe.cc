// ferry transcribe turns speech into text with a bundle of a model of speech.

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/verbs.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "media/sound.h"
#include "packer/bundle_reader.h"
#include "prompt/transcription.h"

namespace ferry::cli {
namespace {

struct TranscribeLine {
  std::string bundle, sound, language, task;
  bool timestamps = false;
};

std::string transcript_json(const prompt::Transcript& made) {
  JsonWriter json;
  json.begin_object().member("text", made.text).member("forced", made.forced_text);
  json.member("timestamps", made.timestamps).member("duration", made.duration);
  json.member("windows", made.windows);
  json.member("encode_seconds", made.encode_seconds);
  json.member("decode_seconds", made.decode_seconds);
  json.member("forced_tokens", Shape(made.forced)).member("tokens", Shape(made.tokens()));
  json.key("segments").begin_array();
  for (const prompt::SpeechSegment& segment : made.segments) {
    json.begin_object().member("start", segment.start).member("end", segment.end);
    json.member("text", segment.text).member("tokens", Shape(segment.tokens)).end_object();
  }
  return json.end_array().end_object().take();
}

std::string transcript_text(const prompt::Transcript& made) {
  if (!made.timestamps) return printable(trimmed(made.text)) + "\n";
  std::string lines;
  for (const prompt::SpeechSegment& segment : made.segments) {
    lines += fmt::format("[{:.2f} - {:.2f}] {}\n", segment.start, segment.end,
                         printable(trimmed(segment.text)));
  }
  return lines;
}

Result<int> run_transcribe(Context& context, const TranscribeLine& o) {
  const packer::Bundle bundle =
      FERRY_TRY(packer::Bundle::open_to_execute(o.bundle, context.pool()));
  prompt::Transcriber transcriber =
      FERRY_TRY(prompt::Transcriber::load(bundle, context.pool(), {.own_bf16 = true}));
  const media::Sound sound = FERRY_TRY(media::read_sound(o.sound));
  prompt::TranscriptionOptions options;
  if (!o.language.empty()) options.language = o.language;
  if (!o.task.empty()) options.task = o.task;
  options.timestamps = o.timestamps;
  options.progress = context.progress("transcribing", ProgressUnit::kItems);
  const prompt::Transcript made =
      FERRY_TRY(transcriber.transcribe(sound.samples, sound.rate, options));
  context.detail(
      fmt::format("encoder {:.2f} s, decoder {:.2f} s", made.encode_seconds, made.decode_seconds));
  if (context.json) {
    context.print_result(transcript_json(made), 0);
  } else {
    context.print(transcript_text(made));
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
