// generate() makes the answer to a prompt, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

// Runs `g.prompt` without the first g.kept_tokens ids, which the decoder has run already, and then
// chooses tokens until there is a reason to stop. A signal after the first token ends the answer
// with the tokens so far.
Result<Generation> generate(runner::Decoder& decoder, const packer::Manifest& manifest,
                            const RunOptions& options, runner::Sampler& sampler,
                            AnswerOutput& output, Generation g);

}  // namespace ferry::cli
