// What ExecuTorch's runners say about the time of an answer: the counts, moments and rates of
// extension/llm/runner/stats.h, with its keys and formulas.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/json_writer.h"

namespace ferry::report {

using Nanoseconds = std::chrono::nanoseconds;

// Moments since 1970 that setting the system's clock does not move.
class RunClock {
 public:
  Nanoseconds now() const;

 private:
  std::chrono::steady_clock::time_point steady_start_ = std::chrono::steady_clock::now();
  Nanoseconds start_ = std::chrono::system_clock::now().time_since_epoch();
};

// Tokens per second; 0 where there are no tokens or no time.
double token_rate(int64_t tokens, double seconds);
double seconds(Nanoseconds time);

// What was measured.
struct GenerationStats {
  int64_t prompt_tokens = 0;
  // Tokens after the first. The first comes with the prompt and takes no time after
  // prompt_eval_end.
  int64_t generated_tokens = 0;
  Nanoseconds load_start{0}, load_end{0};
  Nanoseconds inference_start{0};  // before the prompt, text and images, is encoded
  Nanoseconds prompt_eval_end{0};  // there is a first token
  Nanoseconds inference_end{0};
  Nanoseconds sampling{0};
  // The most memory that the process has had at once, in bytes: until prompt_eval_end, and at all.
  int64_t prompt_peak_rss = 0, peak_rss = 0;
};

// What runners say of it: whole milliseconds, and rates made of them.
struct RunnerStats {
  static constexpr int64_t kUnitsPerSecond = 1000;

  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t model_load_start_ms = 0, model_load_end_ms = 0;
  int64_t inference_start_ms = 0, inference_end_ms = 0;
  int64_t prompt_eval_end_ms = 0, first_token_ms = 0;
  int64_t aggregate_sampling_time_ms = 0;

  RunnerStats() = default;
  explicit RunnerStats(const GenerationStats& measured);

  // Seconds.
  double model_load() const;
  double inference() const;
  double prompt_eval() const;
  double generation() const;
  double first_token() const;
  double sampling() const;
  // Tokens per second.
  double inference_rate() const { return token_rate(generated_tokens, inference()); }
  double prefill_rate() const { return token_rate(prompt_tokens, prompt_eval()); }
  double decode_rate() const { return token_rate(generated_tokens, generation()); }

  // The members of the object that is open.
  void write(JsonWriter& json) const;
  // Such an object in one line, without its end. Runners precede it with "PyTorchObserver ".
  std::string json() const;
  // The lines that follow it, tabs included.
  std::string report() const;
};

// The most memory that this process has had at once, in bytes; 0 if the system does not say.
int64_t peak_rss();

}  // namespace ferry::report
