// generate(): the answer to a prompt, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cli/context.h"
#include "cli/run_options.h"
#include "cli/run_report.h"
#include "core/result.h"
#include "packer/manifest.h"
#include "runner/decoder.h"
#include "runner/sampler.h"
#include "text/tokenizer/text_stream.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::cli {

// The text of generated tokens: given out as it comes, and kept.
class TextOutput {
 public:
  // nullptr: no text is wanted.
  TextOutput(const text::Tokenizer* tokenizer, std::function<void(std::string_view)> print)
      : print_(std::move(print)) {
    if (tokenizer != nullptr) stream_.emplace(*tokenizer);
  }
  Status push(int64_t token) {
    if (stream_) give(FERRY_TRY(stream_->push(token)));
    return {};
  }
  Result<std::string> finish() {
    if (stream_) give(FERRY_TRY(stream_->finish()));
    return std::move(text_);
  }

 private:
  void give(const std::string& text) {
    text_ += text;
    if (print_ && !text.empty()) print_(text);
  }
  std::function<void(std::string_view)> print_;
  std::optional<text::TextStream> stream_;
  std::string text_;
};

// What gives out text as it comes, unless there is a document at the end.
std::function<void(std::string_view)> printer(Context& context);

// Runs the ids of `g.prompt` that the decoder has not run yet (g.kept_tokens says how many it has),
// and chooses tokens until there is a reason to stop. An interrupt ends the answer with what there
// is of it, if there is anything.
Result<Generation> generate(runner::Decoder& decoder, const packer::Manifest& manifest,
                            const RunOptions& options, runner::Sampler& sampler, TextOutput& text,
                            Generation g);

}  // namespace ferry::cli
