#include <ferry/generate.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "library/answer.h"
#include "library/generator_impl.h"
#include "runner/prompt_queue.h"

namespace ferry {
inline namespace v0 {
namespace {

// The answers to prompts whose tokens are known.
class Batch : public runner::PromptAnswers {
 public:
  Batch(const packer::Manifest& manifest, const text::Tokenizer* tokenizer,
        const GenerateOptions& options, const OnAnswer& on_answer,
        std::vector<std::vector<int64_t>> prompts)
      : manifest_(manifest),
        tokenizer_(tokenizer),
        options_(options),
        on_answer_(on_answer),
        prompts_(std::move(prompts)),
        answers_(prompts_.size()) {}

  Result<std::optional<int64_t>> begin(size_t prompt, runner::Decoder& decoder) override {
    if (stopped_) return std::optional<int64_t>();
    const std::vector<int64_t>& tokens = prompts_[prompt];
    runner::Sampler sampler =
        FERRY_TRY(library::make_sampler(options_.sampling, {}, options_.max_new_tokens));
    decoder.restart(std::ssize(tokens));
    auto answer = std::make_unique<library::Answer>(options_, manifest_, decoder, tokenizer_,
                                                    no_tokens_, std::move(sampler), tokens);
    const auto logits = FERRY_TRY(decoder.forward(tokens));
    const auto token = FERRY_TRY(answer->choose(logits));
    making_[prompt] = std::move(answer);
    return token;
  }

  Result<std::optional<int64_t>> choose(size_t prompt, std::span<const float> logits) override {
    if (!stopped_) return making_.at(prompt)->choose(logits);
    making_.at(prompt)->stop(StopReason::kCallback);
    return std::optional<int64_t>();
  }

  Status end(size_t prompt) override {
    // A prompt that the callback has stopped before it was begun has no answer.
    if (!making_.contains(prompt)) return {};
    FERRY_RETURN_IF_ERROR(keep(prompt));
    if (!stopped_ && on_answer_) stopped_ = !on_answer_(prompt, *answers_[prompt]);
    return {};
  }

  // Ends the answers in the making with the tokens that they have.
  Status interrupt() {
    without_answer_ = StopReason::kInterrupted;
    while (!making_.empty()) {
      making_.begin()->second->stop(StopReason::kInterrupted);
      FERRY_RETURN_IF_ERROR(keep(making_.begin()->first));
    }
    return {};
  }

  // Returns the answers in the order of the prompts. Those of prompts that were not begun have no
  // tokens.
  std::vector<Generation> take() {
    std::vector<Generation> all;
    for (std::optional<Generation>& answer : answers_) {
      all.push_back(answer ? *std::move(answer) : Generation{.stop = without_answer_});
    }
    return all;
  }

 private:
  Status keep(size_t prompt) {
    Generation& answer = answers_[prompt].emplace(FERRY_TRY(making_.at(prompt)->finish()));
    answer.prompt_tokens = std::ssize(prompts_[prompt]);
    making_.erase(prompt);
    return {};
  }

  const packer::Manifest& manifest_;
  const text::Tokenizer* tokenizer_;
  const GenerateOptions& options_;
  const OnAnswer& on_answer_;
  const OnToken no_tokens_ = {};
  std::vector<std::vector<int64_t>> prompts_;
  std::map<size_t, std::unique_ptr<library::Answer>> making_;  // by prompt
  std::vector<std::optional<Generation>> answers_;
  bool stopped_ = false;  // by the callback
  StopReason without_answer_ = StopReason::kCallback;
};

Status refuse_rows(const Prompt& prompt) {
  constexpr const char* kWhy = "must be empty where parallel is more than 1";
  if (!prompt.images.empty()) return library::wrong("images", kWhy);
  if (!prompt.videos.empty()) return library::wrong("videos", kWhy);
  return prompt.sounds.empty() ? Status() : library::wrong("sounds", kWhy);
}

}  // namespace

Result<std::vector<std::vector<int64_t>>> Generator::Impl::tokens_of_all(
    std::span<const Prompt> prompts, ThreadPool& pool) {
  std::vector<std::vector<int64_t>> all;
  for (const Prompt& prompt : prompts) {
    const auto read = [&]() -> Result<std::vector<int64_t>> {
      FERRY_RETURN_IF_ERROR(refuse_rows(prompt));
      std::vector<int64_t> tokens = FERRY_TRY(prepare(prompt, pool));
      FERRY_RETURN_IF_ERROR(
          runner::check_tokens(tokens, bundle.manifest().vocab_size, 0, decoder->capacity()));
      return tokens;
    };
    Result<std::vector<int64_t>> tokens = read();
    if (!tokens) {
      tokens.error().message =
          "prompt " + std::to_string(all.size()) + ": " + tokens.error().message;
      return tokens.pass();
    }
    all.push_back(*std::move(tokens));
  }
  return all;
}

Result<std::vector<Generation>> Generator::generate_all(std::span<const Prompt> prompts,
                                                        const GenerateOptions& options,
                                                        const OnAnswer& on_answer) {
  Impl& self = *impl_;
  const auto work = [&](ThreadPool& pool) -> Result<std::vector<Generation>> {
    FERRY_RETURN_IF_ERROR(library::check_options(options));
    self.begin();
    Batch batch(self.bundle.manifest(), self.tokenizer(), options, on_answer,
                FERRY_TRY(self.tokens_of_all(prompts, pool)));
    const Status status = runner::answer_all(*self.group, prompts.size(), batch);
    if (!status && status.error().code != ErrorCode::kInterrupted) return Failure(status.error());
    if (!status) FERRY_RETURN_IF_ERROR(batch.interrupt());
    return batch.take();
  };
  if (self.group) {
    auto answers = library::run(self.engine, self.bundle.path(), work);
    restart();
    return answers;
  }
  std::vector<Generation> answers;
  StopReason rest = StopReason::kMaxNewTokens;
  for (const Prompt& prompt : prompts) {
    if (rest != StopReason::kMaxNewTokens) {
      answers.push_back({.stop = rest});
      continue;
    }
    answers.push_back(FERRY_TRY(generate(prompt, options)));
    if (answers.back().stop == StopReason::kInterrupted) {
      rest = StopReason::kInterrupted;
    } else if (on_answer && !on_answer(answers.size() - 1, answers.back())) {
      rest = StopReason::kCallback;
    }
  }
  return answers;
}

}  // namespace v0
}  // namespace ferry
