// generate() makes the answer to a prompt, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/context.h"
#include "cli/run_options.h"
#include "cli/run_report.h"
#include "core/result.h"
#include "packer/manifest.h"
#include "runner/decoder.h"
#include "runner/sampler.h"
#include "text/answer_end.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::cli {

// Prints generated tokens as they come: their text if there is a tokenizer, else their ids. Keeps
// the text, which ends before the first of the `stops`.
class AnswerOutput {
 public:
  AnswerOutput(const text::Tokenizer* tokenizer, std::vector<std::string> stops,
               std::function<void(std::string_view)> print);

  // `is_text` is false for a token that ends the answer and gives no text.
  Status push(int64_t token, bool is_text);
  // Ends the answer and returns its whole text.
  Result<std::string> finish();
  // Returns the stop text at which the answer ended, if any.
  const std::optional<std::string>& stopped_by() const { return stops_.found(); }

 private:
  void give(std::string_view text);

  std::function<void(std::string_view)> print_;
  std::optional<text::TextStream> stream_;
  text::StopTexts stops_;
  std::string text_;
  bool first_ = true;
};

// Returns a function that prints the parts of an answer. With --json it prints nothing, because the
// document at the end has the answer.
std::function<void(std::string_view)> printer(Context& context);

// An answer in the making: first begin(), then choose() for the logits after each token that the
// decoder has run, then end(). The references must outlive it.
class AnswerMaker {
 public:
  AnswerMaker(runner::Decoder& decoder, const packer::Manifest& manifest, const RunOptions& options,
              runner::Sampler& sampler, AnswerOutput& output, Generation g)
      : decoder_(decoder),
        manifest_(manifest),
        options_(options),
        sampler_(sampler),
        output_(output),
        g_(std::move(g)) {}

  // Runs the prompt without the ids that the decoder has run already, and chooses the first token.
  Result<std::optional<int64_t>> begin();
  // Samples the next token. Returns nullopt if the answer ends with it.
  Result<std::optional<int64_t>> choose(std::span<const float> logits);
  // Ends the answer before its time, because of a signal.
  void interrupt() { g_.stop = kStopInterrupted; }
  Result<Generation> end();

 private:
  runner::Decoder& decoder_;
  const packer::Manifest& manifest_;
  const RunOptions& options_;
  runner::Sampler& sampler_;
  AnswerOutput& output_;
  Generation g_;
  std::optional<runner::LookaheadCounts> before_;  // counts before the answer
};

// Runs `g.prompt` without the first g.kept_tokens ids, which the decoder has run already, and then
// chooses tokens until there is a reason to stop. A signal after the first token ends the answer
// with the tokens so far.
Result<Generation> generate(runner::Decoder& decoder, const packer::Manifest& manifest,
                            const RunOptions& options, runner::Sampler& sampler,
                            AnswerOutput& output, Generation g);

}  // namespace ferry::cli
