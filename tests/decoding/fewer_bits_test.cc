// Decoders with keys and values in fewer bits (MethodOptions::kv_bits).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "runner/decoder.h"
#include "tests/decoding/converted.h"

namespace ferry::fewer_bits_test {
namespace {

using decoding_test::convert;

// In 8 bits the logits are nearly those of f32, in 4 bits further from them; a prompt in one call
// has the bits of its tokens one by one.
TEST(FewerBits, StandForKeysAndValues) {
  for (const std::string checkpoint : {"qwen3", "gemma3", "mistral", "gpt_oss", "deepseek_v3"}) {
    SCOPED_TRACE(checkpoint);
    const TempDir dir;
    ThreadPool pool(2);
    const packer::Bundle bundle = convert(dir, checkpoint, {}, pool);
    const std::vector<int64_t> prompt = {1, 9, 4, 33, 7, 2, 50, 13, 21, 40, 17};
    const auto logits = [&](runner::KvBits bits, bool one_by_one) {
      auto decoder = runner::load_decoder(bundle, pool, {.poison = true, .kv_bits = bits}, {});
      EXPECT_TRUE(decoder) << decoder.error().message;
      std::vector<float> last;
      for (size_t i = 0; i < prompt.size(); i += one_by_one ? 1 : prompt.size()) {
        const auto call = std::span(prompt).subspan(i, one_by_one ? 1 : prompt.size());
        const auto result = (*decoder)->forward(call);
        EXPECT_TRUE(result);
        last.assign(result->begin(), result->end());
      }
      return last;
    };
    const std::vector<float> stated = logits({}, false);
    const auto distance = [&](const std::vector<float>& other) {
      double squares = 0, size = 0;
      for (size_t i = 0; i < stated.size(); ++i) {
        squares += (other[i] - stated[i]) * (other[i] - stated[i]);
        size += stated[i] * stated[i];
      }
      return std::sqrt(squares / size);
    };
    const std::vector<float> in8 = logits({8, 8}, false), in4 = logits({4, 4}, false);
    EXPECT_LT(distance(in8), 0.03);
    EXPECT_GT(distance(in4), distance(in8));
    EXPECT_GT(distance(in8), 0);
    // Attention with sinks is stated as bmm and softmax, which do not keep bits, in f32 either.
    if (checkpoint == "gpt_oss") continue;
    EXPECT_EQ(logits({}, true), stated);
    EXPECT_EQ(logits({8, 8}, true), in8);
    EXPECT_EQ(logits({4, 4}, true), in4);
  }
}

TEST(FewerBits, AreRefusedWhereThereAreNoCaches) {
  ThreadPool pool(1);
  const auto refused = [&](const std::string& checkpoint, const std::vector<std::string>& options,
                           const std::string& why) {
    const TempDir dir;
    const packer::Bundle bundle = convert(dir, checkpoint, options, pool);
    const auto decoder = runner::load_decoder(bundle, pool, {.kv_bits = {8, 8}}, {});
    ASSERT_FALSE(decoder);
    EXPECT_NE(decoder.error().message.find(why), std::string::npos) << decoder.error().message;
  };
  refused("qwen3", {"--program", "static"}, "for stateful programs");
  refused("qwen3", {"--kv-dtype", "i8"}, "is not in f32, f16 or bf16");
  refused("mamba", {}, "have no caches");
  refused("granite", {}, "a multiple of 4");
}

}  // namespace
}  // namespace ferry::fewer_bits_test
