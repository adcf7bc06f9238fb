// GenerationStats has the times of an answer as ExecuTorch's runners report them: the counts, times
// and rates of extension/llm/runner/stats.h, with its keys and formulas.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/json_writer.h"

namespace ferry::report {

using Nanoseconds = std::chrono::nanoseconds;

// A clock that counts from 1970, but is not moved when the system's clock is set.
class RunClock {
 public:
  Nanoseconds now() const;

 private:
  std::chrono::steady_clock::time_point steady_start_ = std::chrono::steady_clock::now();
  Nanoseconds start_ = std::chrono::system_clock::now().time_since_epoch();
};

// Returns tokens per second; 0 if there are no tokens or no time.
double token_rate(int64_t tokens, double seconds);
double seconds(Nanoseconds time);

// The measured values.
struct GenerationStats {
  int64_t prompt_tokens = 0;
  // Tokens after the first one. The first token comes from the prefill and takes no time after
  // prompt_eval_end.
  int64_t generated_tokens = 0;
  Nanoseconds load_start{0}, load_end{0};
  Nanoseconds inference_start{0};  // before the prompt, text and images, is encoded
  Nanoseconds prompt_eval_end{0};  // when the first token is known
  Nanoseconds inference_end{0};
  Nanoseconds sampling{0};
  // Peak resident memory of the process in bytes: until prompt_eval_end, and until the end.
  int64_t prompt_peak_rss = 0, peak_rss = 0;
};

// The values that runners report: times in whole milliseconds, and rates computed from them.
struct RunnerStats {
  static constexpr int64_t kUnitsPerSecond = 1000;

  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t model_load_start_ms = 0, model_load_end_ms = 0;
  int64_t inference_start_ms = 0, inference_end_ms = 0;
  int64_t prompt_eval_end_ms = 0, first_token_ms = 0;
  int64_t aggregate_sampling_time_ms = 0;

  RunnerStats() = default;
  explicit RunnerStats(const GenerationStats& measured);

  // Returns seconds.
  double model_load() const;
  double inference() const;
  double prompt_eval() const;
  double generation() const;
  double first_token() const;
  double sampling() const;
  // Returns tokens per second.
  double inference_rate() const { return token_rate(generated_tokens, inference()); }
  double prefill_rate() const { return token_rate(prompt_tokens, prompt_eval()); }
  double decode_rate() const { return token_rate(generated_tokens, generation()); }

  // Writes the members into the object that is open.
  void write(JsonWriter& json) const;
  // Returns one line with a JSON object, without the line end. Runners put "PyTorchObserver "
  // before it.
  std::string json() const;
  // Returns the lines that runners print after json(), with their tabs.
  std::string report() const;
};

// Returns the peak resident memory of this process in bytes; 0 if the system does not tell.
int64_t peak_rss();

}  // namespace ferry::report
