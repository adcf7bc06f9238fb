#include "cli/run_report.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <span>

#include "cli/envelope.h"
#include "core/atomic_file.h"
#include "core/interrupt.h"
#include "core/json_writer.h"
#include "core/os_error.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string rss_lines(const report::GenerationStats& stats) {
  return fmt::format("RSS after prompt prefill: {:.6f} MiB\n", mebibytes(stats.prompt_peak_rss)) +
         fmt::format("RSS after finishing text generation: {:.6f} MiB\n",
                     mebibytes(stats.peak_rss));
}

// Returns the line that ExecuTorch's runners log for lookahead decoding.
std::string lookahead_line(const Generation& g) {
  if (!g.lookahead) return {};
  return fmt::format("Lookahead Decoding: n_generated = {} / n_accept = {}\n",
                     g.lookahead->generated, g.lookahead->accepted);
}

// Writes the members that ExecuTorch's runners write, and then those that only Ferry has.
void write_stats_members(JsonWriter& json, const Generation& g) {
  report::RunnerStats(g.stats).write(json);
  if (g.lookahead) {
    json.member("lookahead_generated", g.lookahead->generated);
    json.member("lookahead_accepted", g.lookahead->accepted);
  }
  json.member("prompt_peak_rss_bytes", g.stats.prompt_peak_rss);
  json.member("peak_rss_bytes", g.stats.peak_rss);
}

void write_judgement(JsonWriter& json, const report::Judgement& judgement) {
  json.begin_object();
  json.member("field", judgement.field).member("met", judgement.met);
  if (judgement.unit.empty()) {
    json.member("text", judgement.text);
  } else {
    json.member("measured", judgement.measured).member("threshold", judgement.limit);
    json.member("unit", judgement.unit);
  }
  json.end_object();
}

void write_judgements(JsonWriter& json, const std::vector<report::Judgement>& judgements) {
  if (judgements.empty()) return;
  json.member("thresholds_met", std::ranges::all_of(judgements, &report::Judgement::met));
  json.key("thresholds").begin_array();
  for (const report::Judgement& judgement : judgements) write_judgement(json, judgement);
  json.end_array();
}

std::string json_number(double value) {
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.6f}", value);
}

std::string missed_line(const report::Judgement& j) {
  if (j.unit.empty()) {
    return fmt::format("ferry: missed: {}: {} is not in the text\n", j.field, quoted(j.text));
  }
  return fmt::format("ferry: missed: {}: measured {} {}, threshold {} {} {}\n", printable(j.field),
                     json_number(j.measured), j.unit, j.at_least ? "at least" : "at most",
                     json_number(j.limit), j.unit);
}

std::string kept_line(const Generation& g) {
  if (!g.kept_tokens) return {};
  return fmt::format("Tokens of the conversation that had been run before: {}\n", *g.kept_tokens);
}

// Returns the lines of statistics for stderr.
std::string stats_lines(const Generation& g) {
  const report::RunnerStats stats(g.stats);
  return rss_lines(g.stats) + fmt::format("PyTorchObserver {}\n", stats.json()) + stats.report() +
         kept_line(g) + lookahead_line(g) +
         fmt::format("Stopped by: {}, after {} tokens; the first came with the prompt\n", g.stop,
                     g.tokens.size());
}

// Prints a line to stderr for each threshold that is missed. Returns false if none is missed.
bool print_missed(const std::vector<report::Judgement>& judgements) {
  std::string lines;
  for (const report::Judgement& judgement : judgements) {
    if (!judgement.met) lines += missed_line(judgement);
  }
  std::fwrite(lines.data(), 1, lines.size(), stderr);
  return !lines.empty();
}

// Returns the error for the signal that ended the answer, if one did.
std::optional<Error> interruption(const Generation& g) {
  const Status status = check_interrupt();
  return g.stop == kStopInterrupted && !status ? std::optional(status.error()) : std::nullopt;
}

// Returns 1 if a threshold is missed or a conversation does not fit into the context, else 0.
int answer(const Generation& g) {
  const bool met = std::ranges::all_of(g.judgements, &report::Judgement::met);
  return met && !(g.stop == kStopContext && g.tokens.empty()) ? 0 : 1;
}

// Returns the result of --json.
std::string run_document(const Generation& g, bool with_text) {
  JsonWriter json;
  json.begin_object();
  json.member("path", g.bundle).member("prompt_tokens", g.prompt).member("tokens", g.tokens);
  if (with_text) json.member("text", g.text);
  if (g.kept_tokens) json.member("kept_tokens", *g.kept_tokens);
  json.member("stop", g.stop).member("stopped_by_eos", g.stop == kStopEos);
  if (g.stop_text) json.member("stop_text", *g.stop_text);
  json.key("stats").begin_object();
  write_stats_members(json, g);
  json.end_object();
  write_judgements(json, g.judgements);
  json.end_object();
  return json.take();
}

}  // namespace

void print_result(Context& context, const Generation& g, bool with_text) {
  if (context.json) {
    const std::optional<Error> error = interruption(g);
    context.print_result(run_document(g, with_text), error ? exit_code(*error) : answer(g),
                         error ? &*error : nullptr);
    return;
  }
  context.print("\n");
  context.flush();  // the answer must come before the lines on stderr
  context.aside(stats_lines(g));
}

int conclude(Context& context, const Generation& g) {
  if (const std::optional<Error> error = interruption(g)) {
    print_error(*error, /*with_details=*/false);
    return exit_code(*error);
  }
  if (print_missed(g.judgements)) return 1;
  if (!g.judgements.empty()) {
    context.note(fmt::format("no threshold of {} is missed", g.judgements.size()));
  }
  return 0;
}

Status write_stats(const Generation& g, const std::string& path) {
  JsonWriter json;
  json.begin_object();
  write_stats_members(json, g);
  const std::string text = json.end_object().take();
  return write_atomically(path, text, IfExists::kRefuse);
}

}  // namespace ferry::cli
