// Uses what the public interface has for sound, as a program that knows nothing else of Ferry:
//   listener SPEECH_CHECKPOINT TRANSCRIPT_TOKENS HEARING_CHECKPOINT ANSWER_TOKENS WAV DIRECTORY
//            SEEING_CHECKPOINT TOKENS OTHER_WAV PICTURE
// WAV has one channel of 16 bits. The lists of tokens are what the reference makes of it: the
// transcript without options, and the answer to the sound and "What is said?". The third list is
// the answer of a model that sees and hears to PICTURE, OTHER_WAV and "Do they fit?".
#include <ferry/ferry.h>

#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

// Ends the program where `condition` does not hold.
void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not as expected: %s\n", what);
  std::exit(1);
}

// Returns the numbers in a text such as "[1, 2]".
std::vector<int64_t> numbers_in(const char* text) {
  std::vector<int64_t> numbers;
  while (*text != '\0') {
    char* end = nullptr;
    if (std::isdigit(static_cast<unsigned char>(*text)) == 0) {
      ++text;
      continue;
    }
    numbers.push_back(std::strtoll(text, &end, 10));
    text = end;
  }
  return numbers;
}

// Returns the samples of a WAV file of one channel and 16 bits, with a header of 44 bytes.
ferry::Sound samples_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  ferry::Sound sound;
  int32_t rate = 0;
  std::memcpy(&rate, &bytes[24], sizeof rate);
  sound.rate = rate;
  for (size_t at = 44; at + 2 <= bytes.size(); at += 2) {
    int16_t value = 0;
    std::memcpy(&value, &bytes[at], sizeof value);
    sound.samples.push_back(static_cast<float>(value) / 32768.0F);
  }
  return sound;
}

ferry::Result<ferry::Bundle> converted(const std::string& source, const std::string& out,
                                       const ferry::Engine& engine) {
  ferry::ConvertOptions options;
  options.source = source;
  options.dtype = ferry::WeightType::kF32;
  ferry::WriteOptions write;
  write.path = out;
  FERRY_RETURN_IF_ERROR(ferry::convert(options, write, engine));
  return ferry::Bundle::open(out, engine);
}

ferry::Status transcribes(const ferry::Bundle& bundle, const std::vector<int64_t>& expected,
                          const std::string& wav, const ferry::Engine& engine) {
  ferry::Transcriber transcriber = FERRY_TRY(ferry::Transcriber::load(bundle, engine));
  const auto whole = FERRY_TRY(transcriber.transcribe({.path = wav}));
  expect(whole.tokens == expected && !whole.text.empty() && !whole.segments.empty(), "a file");
  expect(!whole.timestamps && whole.windows > 0 && whole.duration > 0.1, "about a transcript");
  expect(!whole.forced_tokens.empty() && !whole.forced.empty(), "forced tokens");
  bool reported = false;
  const auto note = [&](std::string_view what, uint64_t, uint64_t) {
    reported = what == "transcribing";
    return true;
  };
  const auto same = FERRY_TRY(transcriber.transcribe(samples_of(wav), {}, note));
  expect(same.tokens == expected && same.text == whole.text && reported, "samples");
  expect(same.duration == whole.duration, "duration of samples");
  const ferry::TranscribeOptions options = {"de", "translate", true};
  const auto timed = FERRY_TRY(transcriber.transcribe({.path = wav}, options));
  expect(timed.timestamps && timed.forced_tokens != whole.forced_tokens, "options");
  const auto stop = [](std::string_view, uint64_t, uint64_t) { return false; };
  const auto stopped = transcriber.transcribe({.path = wav}, {}, stop);
  expect(!stopped && stopped.error().code == ferry::ErrorCode::kInterrupted, "stopped");
  expect(FERRY_TRY(transcriber.transcribe({.path = wav})).tokens == expected, "after that");
  return {};
}

// Sounds that are none are refused as those of files are.
ferry::Status refuses(const ferry::Bundle& bundle, const std::string& wav,
                      const ferry::Engine& engine) {
  ferry::Transcriber transcriber = FERRY_TRY(ferry::Transcriber::load(bundle, engine));
  const auto refused = [&](const ferry::Sound& sound, ferry::ErrorCode code, const char* what) {
    const auto made = transcriber.transcribe(sound);
    expect(!made && made.error().code == code, what);
  };
  using ferry::ErrorCode;
  ferry::Sound sound = samples_of(wav);
  const auto french = transcriber.transcribe(sound, {.language = "fr"});
  expect(!french && french.error().field == "language", "a language that the model lacks");
  sound.rate = 999;
  refused(sound, ErrorCode::kUnsupported, "a rate that is too low");
  sound.rate = 16000;
  sound.samples[7] = std::nanf("");
  refused(sound, ErrorCode::kBadInput, "a sample that is no number");
  sound.path = wav;
  refused(sound, ErrorCode::kUsage, "a file and samples");
  refused({}, ErrorCode::kUsage, "neither a file nor samples");
  refused({.path = wav, .rate = 16000}, ErrorCode::kUsage, "a rate of a file");
  const auto absent = transcriber.transcribe({.path = wav + ".none"});
  expect(!absent && absent.error().place == wav + ".none", "place of an error");
  return {};
}

ferry::Status hears(const ferry::Bundle& bundle, const std::vector<int64_t>& expected,
                    const std::string& wav, const ferry::Engine& engine) {
  ferry::Generator generator = FERRY_TRY(ferry::Generator::load(bundle, engine));
  ferry::GenerateOptions limits;
  limits.max_new_tokens = 12;
  ferry::Prompt prompt;
  prompt.messages = {{.role = "user", .text = "What is said?", .sounds = 1}};
  prompt.sounds = {samples_of(wav)};
  const auto first = FERRY_TRY(generator.generate(prompt, limits));
  expect(first.tokens == expected && !first.text.empty(), "the answer to samples");
  prompt.messages.clear();
  prompt.chat_json =
      R"([{"role":"user","content":[{"type":"audio"},{"type":"text","text":"What is said?"}]}])";
  prompt.sounds = {{.path = wav}};
  expect(FERRY_TRY(generator.generate(prompt, limits)).tokens == expected, "the answer to a file");
  prompt.sounds.clear();
  const auto missing = generator.generate(prompt, limits);
  expect(!missing && missing.error().code == ferry::ErrorCode::kBadInput,
         "a sound that is missing");
  ferry::Prompt text;
  text.text = "What is said?";
  const auto silent = FERRY_TRY(generator.generate(text, limits));
  text.sounds = {{.path = wav}};
  expect(FERRY_TRY(generator.generate(text, limits)).prompt_tokens > silent.prompt_tokens, "text");
  text.images = {wav};
  const auto picture = generator.generate(text, limits);
  expect(!picture && picture.error().field == "images", "a picture");
  ferry::Prompt tokens;
  tokens.tokens = {1, 50, 60};
  tokens.sounds = {{.path = wav}};
  const auto refused = generator.generate(tokens, limits);
  expect(!refused && refused.error().field == "sounds", "a sound beside tokens");

  ferry::Transcriber transcriber = FERRY_TRY(ferry::Transcriber::load(bundle, engine));
  const auto plain = FERRY_TRY(transcriber.transcribe({.path = wav}));
  const auto english = FERRY_TRY(transcriber.transcribe({.path = wav}, {.language = "en"}));
  expect(english.forced_tokens.size() > plain.forced_tokens.size(), "a language");
  const auto timed = transcriber.transcribe({.path = wav}, {.timestamps = true});
  expect(!timed && timed.error().field == "timestamps", "an option that the model lacks");
  return {};
}

ferry::Status sees_and_hears(const ferry::Bundle& bundle, const std::vector<int64_t>& expected,
                             const std::string& wav, const std::string& picture,
                             const ferry::Engine& engine) {
  ferry::Generator generator = FERRY_TRY(ferry::Generator::load(bundle, engine));
  ferry::GenerateOptions limits;
  limits.max_new_tokens = 10;
  ferry::Prompt prompt;
  prompt.messages = {{.role = "user", .text = "Do they fit?", .images = 1, .sounds = 1}};
  prompt.images = {picture};
  prompt.sounds = {{.path = wav}};
  const auto answer = FERRY_TRY(generator.generate(prompt, limits));
  expect(answer.tokens == expected, "the answer to a picture and a sound");
  prompt.sounds.clear();
  expect(!generator.generate(prompt, limits), "a sound that is missing beside a picture");
  const auto transcriber = ferry::Transcriber::load(bundle, engine);
  expect(!transcriber && transcriber.error().code == ferry::ErrorCode::kUnsupported,
         "a transcript of a model without a request for it");
  return {};
}

ferry::Status run(char** argv) {
  const ferry::Engine engine(2);
  const std::string wav = argv[5], directory = argv[6];
  const auto speech = FERRY_TRY(converted(argv[1], directory + "/speech", engine));
  FERRY_RETURN_IF_ERROR(transcribes(speech, numbers_in(argv[2]), wav, engine));
  FERRY_RETURN_IF_ERROR(refuses(speech, wav, engine));
  const auto hearing = FERRY_TRY(converted(argv[3], directory + "/hearing", engine));
  FERRY_RETURN_IF_ERROR(hears(hearing, numbers_in(argv[4]), wav, engine));
  const auto seeing = FERRY_TRY(converted(argv[7], directory + "/seeing", engine));
  return sees_and_hears(seeing, numbers_in(argv[8]), argv[9], argv[10], engine);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 11) return 2;
  const ferry::Status status = run(argv);
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status ? 0 : 1;
}
