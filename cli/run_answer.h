// generate(): the answer to a prompt, token by token.
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
#include "text/tokenizer/text_stream.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::cli {

// Generated tokens, or their text where there is a tokenizer: given out as they come. The text is
// kept, and ends before the first of the `stops`.
class AnswerOutput {
 public:
  AnswerOutput(const text::Tokenizer* tokenizer, std::vector<std::string> stops,
               std::function<void(std::string_view)> print);

  // `is_text`: the token gives text.
  Status push(int64_t token, bool is_text);
  // The text as a whole.
  Result<std::string> finish();
  // The stop text that the answer has come to.
  const std::optional<std::string>& stopped_by() const { return stops_.found(); }

 private:
  void give(std::string_view text);

  std::function<void(std::string_view)> print_;
  std::optional<text::TextStream> stream_;
  text::StopTexts stops_;
  std::string text_;
  bool first_ = true;
};

// Prints an answer as it comes; nothing where there is a document at the end.
std::function<void(std::string_view)> printer(Context& context);

// Runs the ids of `g.prompt` that the decoder has not run yet (g.kept_tokens says how many it has),
// and chooses tokens until there is a reason to stop. An interrupt ends the answer with what there
// is of it, if there is anything.
Result<Generation> generate(runner::Decoder& decoder, const packer::Manifest& manifest,
                            const RunOptions& options, runner::Sampler& sampler,
                            AnswerOutput& output, Generation g);

}  // namespace ferry::cli
