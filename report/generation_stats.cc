#include "report/generation_stats.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <string_view>

namespace ferry::report {
namespace {

int64_t milliseconds(Nanoseconds time) {
  return std::chrono::floor<std::chrono::milliseconds>(time).count();
}

std::string timed(std::string_view what, double seconds) {
  return fmt::format("\t{}{:.6f} (seconds)", what, seconds);
}

std::string rated(std::string_view what, double seconds, double rate) {
  return fmt::format("{}\t\t Rate: \t{:.6f} (tokens/second)\n", timed(what, seconds), rate);
}

double seconds_between(int64_t start_ms, int64_t end_ms) {
  return static_cast<double>(end_ms - start_ms) / RunnerStats::kUnitsPerSecond;
}

}  // namespace

Nanoseconds RunClock::now() const {
  return start_ + (std::chrono::steady_clock::now() - steady_start_);
}

double token_rate(int64_t tokens, double time) {
  return tokens > 0 && time > 0 ? static_cast<double>(tokens) / time : 0;
}

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

RunnerStats::RunnerStats(const GenerationStats& measured)
    : prompt_tokens(measured.prompt_tokens),
      generated_tokens(measured.generated_tokens),
      model_load_start_ms(milliseconds(measured.load_start)),
      model_load_end_ms(milliseconds(measured.load_end)),
      inference_start_ms(milliseconds(measured.inference_start)),
      inference_end_ms(milliseconds(measured.inference_end)),
      prompt_eval_end_ms(milliseconds(measured.prompt_eval_end)),
      first_token_ms(prompt_eval_end_ms),
      aggregate_sampling_time_ms(milliseconds(measured.sampling)) {}

double RunnerStats::model_load() const {
  return seconds_between(model_load_start_ms, model_load_end_ms);
}
double RunnerStats::inference() const {
  return seconds_between(inference_start_ms, inference_end_ms);
}
double RunnerStats::prompt_eval() const {
  return seconds_between(inference_start_ms, prompt_eval_end_ms);
}
double RunnerStats::generation() const {
  return seconds_between(prompt_eval_end_ms, inference_end_ms);
}
double RunnerStats::first_token() const {
  return seconds_between(inference_start_ms, first_token_ms);
}
double RunnerStats::sampling() const { return seconds_between(0, aggregate_sampling_time_ms); }

void RunnerStats::write(JsonWriter& json) const {
  json.member("prefill_token_per_sec", prefill_rate());
  json.member("decode_token_per_sec", decode_rate());
  json.member("prompt_tokens", prompt_tokens).member("generated_tokens", generated_tokens);
  json.member("model_load_start_ms", model_load_start_ms);
  json.member("model_load_end_ms", model_load_end_ms);
  json.member("inference_start_ms", inference_start_ms);
  json.member("inference_end_ms", inference_end_ms);
  json.member("prompt_eval_end_ms", prompt_eval_end_ms);
  json.member("first_token_ms", first_token_ms);
  json.member("aggregate_sampling_time_ms", aggregate_sampling_time_ms);
  json.member("SCALING_FACTOR_UNITS_PER_SECOND", kUnitsPerSecond);
}

std::string RunnerStats::json() const {
  JsonWriter json;
  json.begin_object();
  write(json);
  std::string text = json.end_object().take();
  text.pop_back();
  return text;
}

std::string RunnerStats::report() const {
  return fmt::format("\tPrompt Tokens: {}    Generated Tokens: {}\n", prompt_tokens,
                     generated_tokens) +
         timed("Model Load Time:\t\t", model_load()) + "\n" +
         rated("Total inference time:\t\t", inference(), inference_rate()) +
         rated("\tPrompt evaluation:\t", prompt_eval(), prefill_rate()) +
         rated(fmt::format("\tGenerated {} tokens:\t", generated_tokens), generation(),
               decode_rate()) +
         timed("Time to first generated token:\t", first_token()) + "\n" +
         timed(fmt::format("Sampling time over {} tokens:\t", prompt_tokens + generated_tokens),
               sampling()) +
         "\n";
}

int64_t peak_rss() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace ferry::report
