// Generator: runs a bundle as a language model.
#pragma once

#include <ferry/bundle.h>
#include <ferry/engine.h>
#include <ferry/result.h>
#include <ferry/text.h>

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

// How a bundle of static programs decodes. Every mode gives the same tokens.
enum class DecodeMode {
  kDefault,    // kHybrid where the programs have it
  kKv,         // token by token
  kHybrid,     // prompts in chunks
  kLookahead,  // the same, and several tokens from one call
};

struct GeneratorOptions {
  DecodeMode mode = DecodeMode::kDefault;
  // Bytes that planned memory may have; default: what the system has available.
  std::optional<uint64_t> memory = {};
};

// Exactly one of `tokens`, `text`, `messages` and `chat_json` is given.
struct Prompt {
  std::vector<int64_t> tokens = {};
  std::string text = {};                 // for the tokenizer
  std::vector<Message> messages = {};    // for the chat template, with the prompt for an answer
  std::string chat_json = {};            // as ChatTemplate::render_json() takes it
  std::vector<std::string> images = {};  // files, in their order; for a vision-language bundle
};

// In the order of their effect.
struct SamplingOptions {
  double repetition_penalty = 1;  // 1: none
  double temperature = 0;         // 0: always the likeliest token
  int64_t top_k = 0;              // 0: all tokens
  double top_p = 1;
  double min_p = 0;
  uint64_t seed = 0;
};

// Is given each token with the text that it completes, which may be empty. Generation ends with
// StopReason::kCallback if it returns false. Text that was held back, because a stop might have
// begun there, comes at the end with a token of -1.
using OnToken = std::function<bool(int64_t token, std::string_view text)>;

struct GenerateOptions {
  int64_t max_new_tokens = 256;
  SamplingOptions sampling = {};
  std::vector<std::string> stops = {};  // the text ends before the first of them
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
  std::vector<int64_t> tokens;
  std::string text;  // empty for a bundle without a tokenizer
  StopReason stop = StopReason::kMaxNewTokens;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // of them, that the caches had from the call before
};

// One sequence at a time. Move-only; keeps its bundle and its engine.
class Generator {
 public:
  static Result<Generator> load(const Bundle& bundle, const Engine& engine,
                                const GeneratorOptions& options = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  // Answers a prompt. Where the prompt begins with the whole sequence of the call before, as the
  // next message of a chat does, only what is new is computed.
  Result<Generation> generate(const Prompt& prompt, const GenerateOptions& options = {},
                              const OnToken& on_token = {});

  // Runs tokens at the positions that follow position(), and returns the logits behind the last
  // one, which are valid until the next call.
  Result<std::span<const float>> forward(std::span<const int64_t> tokens);
  // Begins a new sequence.
  void restart();
  int64_t position() const;
  int64_t capacity() const;  // positions that a sequence can have

 private:
  struct Impl;
  explicit Generator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace ferry
