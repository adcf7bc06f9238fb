// The output of `ferry run` beside the text of an answer: the statistics, in the lines and the
// object of ExecuTorch's runners, and the thresholds that it misses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/context.h"
#include "core/result.h"
#include "report/generation_stats.h"
#include "report/thresholds.h"
#include "runner/decoder.h"

namespace ferry::cli {

inline constexpr std::string_view kStopEos = "eos";
inline constexpr std::string_view kStopContext = "context";
inline constexpr std::string_view kStopText = "stop_text";
inline constexpr std::string_view kStopInterrupted = "interrupted";

struct Generation {
  std::string bundle;  // its path, as given; of loose programs that of the text decoder
  std::vector<int64_t> prompt, tokens;
  std::string text;           // of the tokens; only with a tokenizer
  std::vector<float> logits;  // (tokens, vocab): the row that each token was chosen from
  // Why there are no more: "eos", "stop_text" (one of --stop), "max_new", "context" (it is full) or
  // "interrupted".
  std::string_view stop;
  std::optional<std::string> stop_text;  // the one before which the text ends
  // In a chat: how many ids of the prompt had been run before.
  std::optional<int64_t> kept_tokens;
  std::optional<runner::LookaheadCounts> lookahead;
  report::RunClock clock;
  report::GenerationStats stats;
  std::vector<report::Judgement> judgements;  // none without thresholds
};

// With --json the document; otherwise the end of the line of text or tokens, and on stderr the
// statistics.
void print_result(Context& context, const Generation& generation, bool with_text);
// The exit code, and on stderr why it is not 0.
int conclude(Context& context, const Generation& generation);

// The object of --stats-json as a new file; kIo where `path` exists.
Status write_stats(const Generation& generation, const std::string& path);

}  // namespace ferry::cli
