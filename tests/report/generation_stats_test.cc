#include "report/generation_stats.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace ferry::report::generation_stats_test {
namespace {

// The numbers are from a log of ExecuTorch's QNN llama runner (Qwen3 0.6B, May 2026).
RunnerStats logged() {
  RunnerStats stats;
  stats.prompt_tokens = 23;
  stats.generated_tokens = 1000;
  stats.model_load_start_ms = 1778256716039;
  stats.model_load_end_ms = 1778256719007;
  stats.inference_start_ms = 1778256719007;
  stats.inference_end_ms = 1778256791547;
  stats.prompt_eval_end_ms = 1778256719182;
  stats.first_token_ms = 1778256719182;
  stats.aggregate_sampling_time_ms = 1580;
  return stats;
}

TEST(RunnerStats, LinesAreThoseOfTheOfficialRunner) {
  EXPECT_EQ(logged().report(),
            "\tPrompt Tokens: 23    Generated Tokens: 1000\n"
            "\tModel Load Time:\t\t2.968000 (seconds)\n"
            "\tTotal inference time:\t\t72.540000 (seconds)\t\t Rate: \t13.785498 (tokens/second)\n"
            "\t\tPrompt evaluation:\t0.175000 (seconds)\t\t Rate: \t131.428571 (tokens/second)\n"
            "\t\tGenerated 1000 tokens:\t72.365000 (seconds)\t\t Rate: \t13.818835 "
            "(tokens/second)\n"
            "\tTime to first generated token:\t0.175000 (seconds)\n"
            "\tSampling time over 1023 tokens:\t1.580000 (seconds)\n");
}

TEST(RunnerStats, ObjectHasTheKeysOfTheOfficialRunner) {
  const RunnerStats stats = logged();
  // The runner prints six digits of the rates: 131.429 and 13.8188.
  EXPECT_EQ(fmt::format("{:.6g} {:.6g}", stats.prefill_rate(), stats.decode_rate()),
            "131.429 13.8188");
  EXPECT_EQ(stats.json(),
            fmt::format("{{\"prefill_token_per_sec\":{},\"decode_token_per_sec\":{},",
                        stats.prefill_rate(), stats.decode_rate()) +
                R"("prompt_tokens":23,"generated_tokens":1000,)"
                R"("model_load_start_ms":1778256716039,"model_load_end_ms":1778256719007,)"
                R"("inference_start_ms":1778256719007,"inference_end_ms":1778256791547,)"
                R"("prompt_eval_end_ms":1778256719182,"first_token_ms":1778256719182,)"
                R"("aggregate_sampling_time_ms":1580,"SCALING_FACTOR_UNITS_PER_SECOND":1000})");
}

// The numbers are those of ExecuTorch's demonstration of SmolVLM in static llama.
TEST(RunnerStats, RatesAreThoseOfTheDemonstration) {
  RunnerStats stats;
  stats.prompt_tokens = 81;
  stats.generated_tokens = 454;
  stats.inference_start_ms = 5000;
  stats.prompt_eval_end_ms = 5117;
  stats.inference_end_ms = 13935;
  EXPECT_EQ(fmt::format("{:.3f}", stats.inference_rate()), "50.811");
  EXPECT_EQ(fmt::format("{:.2f}", stats.prefill_rate()), "692.31");
  EXPECT_EQ(fmt::format("{:.3f}", stats.decode_rate()), "51.486");
}

TEST(RunnerStats, NoTimeAndNoTokensAreRateZero) {
  RunnerStats stats;
  stats.prompt_tokens = 3;
  stats.generated_tokens = 7;
  EXPECT_EQ(stats.prefill_rate(), 0);
  EXPECT_EQ(stats.decode_rate(), 0);
  EXPECT_EQ(stats.inference_rate(), 0);
  stats.inference_end_ms = 20;
  stats.generated_tokens = 0;
  EXPECT_EQ(stats.decode_rate(), 0);
  EXPECT_EQ(stats.inference_rate(), 0);
}

TEST(RunnerStats, MomentsAreRoundedDownToMilliseconds) {
  GenerationStats measured;
  measured.load_start = Nanoseconds(1'999'999);
  measured.load_end = Nanoseconds(2'000'000);
  measured.inference_start = Nanoseconds(3'400'000);
  measured.prompt_eval_end = Nanoseconds(5'999'999);
  measured.inference_end = Nanoseconds(9'000'001);
  measured.sampling = Nanoseconds(1'600'000);
  const RunnerStats stats(measured);
  EXPECT_EQ(stats.model_load_start_ms, 1);
  EXPECT_EQ(stats.model_load_end_ms, 2);
  EXPECT_EQ(stats.inference_start_ms, 3);
  EXPECT_EQ(stats.prompt_eval_end_ms, 5);
  EXPECT_EQ(stats.first_token_ms, 5);
  EXPECT_EQ(stats.inference_end_ms, 9);
  EXPECT_EQ(stats.aggregate_sampling_time_ms, 1);
}

TEST(RunClock, NeverGoesBack) {
  const RunClock clock;
  const Nanoseconds first = clock.now(), second = clock.now();
  EXPECT_LE(first, second);
  EXPECT_GT(first, std::chrono::years(50));
}

}  // namespace
}  // namespace ferry::report::generation_stats_test
