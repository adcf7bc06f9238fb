// Prints the results of `ferry run`, its statistics (in one line, or in the lines and the JSON
// object of ExecuTorch's runners), and the thresholds that a run misses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/context.h"
#include "core/json_writer.h"
#include "core/result.h"
#include "report/generation_stats.h"
#include "report/thresholds.h"
#include "runner/decoder.h"
#include "runner/sampler.h"

namespace ferry::cli {

inline constexpr std::string_view kStopEos = "eos";
inline constexpr std::string_view kStopContext = "context";
inline constexpr std::string_view kStopText = "stop_text";
inline constexpr std::string_view kStopInterrupted = "interrupted";

struct Generation {
  std::string bundle;  // path of the bundle, or of the text decoder of loose programs, as given
  std::string adapter = {};  // name of the adapter; empty for none
  std::vector<int64_t> prompt, tokens;
  std::string text;     // text of `tokens`; empty without a tokenizer
  int64_t max_new = 0;  // tokens of the answer at most
  // How the tokens are chosen; the seed is there if they are drawn.
  runner::SamplingOptions sampling;
  std::vector<float> logits;  // (tokens, vocab): the row from which each token was chosen
  // The reason why the answer ended: "eos", "stop_text" (a text of --stop), "max_new", "context"
  // (the context is full) or "interrupted".
  std::string_view stop;
  std::optional<std::string> stop_text;  // the text of --stop before which `text` ends
  // In a chat, the number of ids of the prompt that earlier turns have run.
  std::optional<int64_t> kept_tokens;
  std::optional<runner::LookaheadCounts> lookahead;
  runner::Profile* profile = nullptr;  // of --profile
  report::RunClock clock;
  report::GenerationStats stats;
  std::vector<report::Judgement> judgements;  // empty without thresholds
};

// Prints the document with --json; otherwise ends the line of the answer and prints a line of
// statistics to stderr, behind those of ExecuTorch's runners if `all_stats`.
void print_result(Context& context, const Generation& generation, bool with_text, bool all_stats);
// Writes the object of an answer. `line` is that of the prompt in the file of --prompts.
void write_answer(JsonWriter& json, const Generation& generation, bool with_text,
                  std::optional<size_t> line = {});
// Ends the line of the answer and prints its statistics.
void print_stats(Context& context, const Generation& generation, bool all_stats);
// Returns the error for the signal that ended the answer, if one did.
std::optional<Error> interruption(const Generation& generation);
// Returns the exit code, and prints to stderr why it is not 0.
int conclude(Context& context, const Generation& generation);

// Writes the object of --stats-json to a new file. Returns kExists if `path` exists.
Status write_stats(const Generation& generation, const std::string& path);
// Writes where the time of the answer went: a page for a name that ends with .html, else folded
// stacks. Time between executions is that of the sampler and of the caller.
Status write_profile(const Generation& generation, const std::string& path);

}  // namespace ferry::cli
