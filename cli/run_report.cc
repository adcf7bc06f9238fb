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
#include "core/result.h"
#include "core/text.h"
#include "report/flame_page.h"

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

// Times in seconds and rates in tokens per second, from a clock that counts nanoseconds.
struct Speeds {
  explicit Speeds(const report::GenerationStats& s)
      : load(report::seconds(s.load_end - s.load_start)),
        first_token(report::seconds(s.prompt_eval_end - s.inference_start)),
        decoding(report::seconds(s.inference_end - s.prompt_eval_end)),
        sampling(report::seconds(s.sampling)),
        prompt_rate(report::token_rate(s.prompt_tokens, first_token)),
        new_rate(report::token_rate(s.generated_tokens, decoding)) {}
  double load, first_token, decoding, sampling;
  double prompt_rate, new_rate;  // 0 where nothing was measured
};

std::string sampling_line(const runner::SamplingOptions& s) {
  std::string line = s.temperature == 0
                         ? "greedy"
                         : fmt::format("temperature {}, top k {}, top p {}, min p {}",
                                       s.temperature, s.top_k, s.top_p, s.min_p);
  if (s.repetition_penalty != 1)
    line += fmt::format(", repetition penalty {}", s.repetition_penalty);
  if (s.temperature != 0) line += fmt::format(", seed {}", s.seed);
  return fmt::format("Sampling: {}\n", line);
}

void write_sampling(JsonWriter& json, const runner::SamplingOptions& s) {
  json.begin_object();
  json.member("repetition_penalty", s.repetition_penalty).member("temperature", s.temperature);
  if (s.temperature != 0) {
    json.member("top_k", s.top_k).member("top_p", s.top_p).member("min_p", s.min_p);
    json.member("seed", s.seed);
  }
  json.end_object();
}

void write_rate(JsonWriter& json, std::string_view key, double rate) {
  json.key(key);
  rate > 0 ? json.value(rate) : json.null();
}

void write_speeds(JsonWriter& json, const Generation& g) {
  const Speeds speeds(g.stats);
  json.begin_object();
  json.member("evaluated_tokens", g.stats.prompt_tokens);
  json.member("load_seconds", speeds.load).member("first_token_seconds", speeds.first_token);
  json.member("decode_seconds", speeds.decoding).member("sampling_seconds", speeds.sampling);
  write_rate(json, "prompt_tokens_per_second", speeds.prompt_rate);
  write_rate(json, "new_tokens_per_second", speeds.new_rate);
  json.member("prompt_peak_rss_bytes", g.stats.prompt_peak_rss);
  json.member("peak_rss_bytes", g.stats.peak_rss);
  if (g.lookahead) {
    json.member("lookahead_generated", g.lookahead->generated);
    json.member("lookahead_accepted", g.lookahead->accepted);
  }
  json.end_object();
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

// Returns the lines of ExecuTorch's runners, and what Ferry has beside them.
std::string runner_lines(const Generation& g) {
  const report::RunnerStats stats(g.stats);
  return rss_lines(g.stats) + fmt::format("PyTorchObserver {}\n", stats.json()) + stats.report() +
         kept_line(g) + lookahead_line(g) + sampling_line(g.sampling) +
         fmt::format("Stopped by: {}, after {} tokens; the first came with the prompt\n", g.stop,
                     g.tokens.size());
}

// Returns a number with at least three digits that count.
std::string short_number(double value) {
  const int digits = value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3;
  return fmt::format("{:.{}f}", value, digits);
}

std::string duration_text(double seconds) {
  return seconds < 1 ? short_number(seconds * 1e3) + " ms" : short_number(seconds) + " s";
}

std::string token_count(int64_t count, std::string_view what) {
  return fmt::format("{} {}token{}", count, what, count == 1 ? "" : "s");
}

// Returns "24 prompt tokens (812 tokens/s)", or the count alone where nothing can be measured.
std::string rated(const std::string& what, double rate) {
  return rate > 0 ? fmt::format("{} ({} tokens/s)", what, short_number(rate)) : what;
}

std::string stats_line(const Generation& g) {
  const Speeds speeds(g.stats);
  return fmt::format("{}, {}, first token after {}, at most {:.0f} MiB of memory, end: {}",
                     rated(token_count(g.stats.prompt_tokens, "prompt "), speeds.prompt_rate),
                     rated(token_count(std::ssize(g.tokens), "new "), speeds.new_rate),
                     duration_text(speeds.first_token), mebibytes(g.stats.peak_rss), g.stop);
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

// Returns 1 if a threshold is missed or a conversation does not fit into the context, else 0.
int answer(const Generation& g) {
  const bool met = std::ranges::all_of(g.judgements, &report::Judgement::met);
  return met && !(g.stop == kStopContext && g.tokens.empty()) ? 0 : 1;
}

}  // namespace

std::optional<Error> interruption(const Generation& g) {
  const Status status = check_interrupt();
  return g.stop == kStopInterrupted && !status ? std::optional(status.error()) : std::nullopt;
}

void write_answer(JsonWriter& json, const Generation& g, bool with_text,
                  std::optional<size_t> line) {
  json.begin_object();
  if (line) {
    json.member("line", *line);
  } else {
    json.member("path", g.bundle);
  }
  if (!g.adapter.empty()) json.member("adapter", g.adapter);
  json.member("prompt_tokens", g.prompt).member("tokens", g.tokens);
  if (with_text) json.member("text", g.text);
  if (g.kept_tokens) json.member("kept_tokens", *g.kept_tokens);
  json.member("stop", g.stop);
  if (g.stop_text) json.member("stop_text", *g.stop_text);
  json.key("sampling");
  write_sampling(json, g.sampling);
  json.key("stats");
  write_speeds(json, g);
  write_judgements(json, g.judgements);
  json.end_object();
}

void print_stats(Context& context, const Generation& g, bool all_stats) {
  context.print("\n");
  context.flush();  // the answer must come before the lines on stderr
  if (all_stats) context.aside(runner_lines(g));
  context.note(stats_line(g));
}

void print_result(Context& context, const Generation& g, bool with_text, bool all_stats) {
  if (!context.json) return print_stats(context, g, all_stats);
  const std::optional<Error> error = interruption(g);
  JsonWriter json;
  write_answer(json, g, with_text);
  context.print_result(json.take(), error ? exit_code(*error) : answer(g),
                       error ? &*error : nullptr);
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

Status write_profile(const Generation& g, const std::string& path) {
  std::vector<report::FlameRow> rows;
  double measured = 0;
  for (const runner::Profile::Row& row : g.profile->rows()) {
    rows.push_back({{row.stage, row.method, row.op, row.weight}, row.seconds, row.calls});
    measured += row.seconds;
  }
  const double whole =
      std::chrono::duration<double>(g.stats.inference_end - g.stats.inference_start).count();
  rows.push_back({{"between instructions"}, std::max(0.0, whole - measured), 1});
  const bool page = path.ends_with(".html");
  const std::string text =
      page ? report::flame_page(fmt::format("Time of {}: {} prompt and {} new tokens", g.bundle,
                                            g.prompt.size(), g.tokens.size()),
                                rows)
           : report::folded_stacks(rows);
  return write_atomically(path, text, IfExists::kRefuse);
}

}  // namespace ferry::cli
