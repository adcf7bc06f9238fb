// Generator runs a bundle as a language model.
#pragma once

#include <ferry/bundle.h>
#include <ferry/engine.h>
#include <ferry/result.h>
#include <ferry/sound.h>
#include <ferry/text.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {
inline namespace v0 {

// Selects how a bundle of static programs decodes. All modes give equal tokens.
enum class DecodeMode {
  kDefault,    // kHybrid if the programs have it
  kKv,         // token by token
  kHybrid,     // prompts in chunks, then token by token
  kLookahead,  // as kHybrid, but several tokens from one call
};

struct GeneratorOptions {
  DecodeMode mode = DecodeMode::kDefault;
  // Guesses of the next tokens, which change the speed and not the answers. One of two: the most
  // tokens that are guessed at a time from earlier ones, 1 to 64 (0: none), or a smaller model of
  // the same vocabulary that guesses them. They are for stateful programs with the logits of all
  // tokens (ConvertOptions::all_logits, OpenOptions::all_logits).
  int64_t lookup = 0;
  std::optional<Bundle> draft = {};
  // Sequences that generate_all() decodes at a time, 1 to 64; each has caches of its own. More than
  // 1 is for stateful programs of decoders, without `mode`, `lookup` and `draft`.
  int64_t parallel = 1;
  // The bits in which keys and values are held, as in `ferry run --kv-bits`: "8", "4", or "8,4" for
  // keys and values. Empty: as the program states them. For stateful programs.
  std::string kv_bits = {};
  // The most bytes of planned memory; default: the memory that the system has available.
  std::optional<uint64_t> memory = {};
};

// A video: a folder with its frames as pictures, in the order of their names, and how many of them
// a second has.
struct Video {
  std::string path;
  double fps = 0;
};

// A prompt has exactly one of `tokens`, `text`, `messages` and `chat_json`. An encoder-decoder
// takes `tokens` or `text`, which its encoder reads.
struct Prompt {
  std::vector<int64_t> tokens = {};
  std::string text = {};  // encoded by the tokenizer
  // Rendered by the chat template, followed by the prompt for an answer.
  std::vector<Message> messages = {};
  std::string chat_json = {};  // see ChatTemplate::render_json()
  // Paths of image files in order; for vision-language bundles.
  std::vector<std::string> images = {};
  // Sounds in order; for bundles whose text decoder hears (docs/audio.md). With `text` they come
  // before it; with `chat_json` they stand where a content has {"type": "audio"}.
  std::vector<Sound> sounds = {};
  // Videos in order; for vision-language bundles (docs/video.md). They stand where sounds do, and
  // where a content has {"type": "video"}.
  std::vector<Video> videos = {};
};

// The steps of sampling, in the order in which they are applied.
struct SamplingOptions {
  double repetition_penalty = 1;  // 1: no penalty
  double temperature = 0;         // 0: always the likeliest token
  int64_t top_k = 0;              // 0: all tokens
  double top_p = 1;
  double min_p = 0;
  uint64_t seed = 0;
};

// Receives each token with the text that it completes, which may be empty. If the callback returns
// false, generation ends with StopReason::kCallback. Text that could be the beginning of a stop
// text is held back; the last of it comes at the end with a token of -1.
using OnToken = std::function<bool(int64_t token, std::string_view text)>;

struct GenerateOptions {
  int64_t max_new_tokens = 256;
  SamplingOptions sampling = {};
  std::vector<std::string> stops = {};  // the text ends before the first stop text
  bool ignore_end_tokens = false;
};

enum class StopReason {
  kEndToken,
  kMaxNewTokens,
  kStopText,
  kContextFull,
  kCallback,
  kInterrupted,
};

struct Generation {
  std::vector<int64_t> tokens = {};
  std::string text = {};  // empty if the bundle has no tokenizer
  StopReason stop = StopReason::kMaxNewTokens;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // prompt tokens that were still in the caches from the previous call
};

// Receives each answer of generate_all() when it is whole, with the number of its prompt. If the
// callback returns false, the other answers end with StopReason::kCallback and the tokens that they
// have.
using OnAnswer = std::function<bool(size_t prompt, const Generation& answer)>;

// Generates one sequence at a time, generate_all() several. Move-only. Holds its bundle and its
// engine. Answers of an encoder-decoder obey the tokens that its generation_config.json forbids or
// forces.
class Generator {
 public:
  static Result<Generator> load(const Bundle& bundle, const Engine& engine,
                                const GeneratorOptions& options = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  // Answers a prompt. If the prompt begins with the whole sequence of the previous call, as the
  // next message of a chat does, only the new tokens are computed.
  Result<Generation> generate(const Prompt& prompt, const GenerateOptions& options = {},
                              const OnToken& on_token = {});

  // Answers prompts, GeneratorOptions::parallel at a time: one pass over the weights serves a token
  // of each. Returns the answers in the order of the prompts; they are those of generate(). After
  // Engine::interrupt() answers have the tokens that were made, and StopReason::kInterrupted.
  // Where `parallel` is more than 1, prompts have no images, sounds and videos, and one that is
  // wrong is refused before any is answered, with its number.
  Result<std::vector<Generation>> generate_all(std::span<const Prompt> prompts,
                                               const GenerateOptions& options = {},
                                               const OnAnswer& on_answer = {});

  // Executes tokens at the positions from position() on. Returns the logits after the last token,
  // which are valid until the next call.
  Result<std::span<const float>> forward(std::span<const int64_t> tokens);
  // Begins a new sequence at position 0.
  void restart();
  // Returns the sampling that the model's generation_config.json asks for, or its config.json where
  // it has no such file: temperature 0 without `do_sample`. GenerateOptions do not have it by
  // default.
  // kUnsupported if the file asks for what SamplingOptions do not have.
  Result<SamplingOptions> sampling_defaults() const;
  int64_t position() const;
  int64_t capacity() const;  // number of positions that a sequence can have

 private:
  struct Impl;
  explicit Generator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace ferry
