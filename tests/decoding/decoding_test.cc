// Bundles of the sample checkpoints, decoded in this process: no memory is allocated per token, and
// inputs and outputs are bound by name and type.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "runner/decoder.h"
#include "runner/decoder_group.h"
#include "runner/program_set.h"
#include "runner/sampler.h"
#include "runner/stateful_decoder.h"
#include "tests/decoding/converted.h"
#include "tests/decoding/counting_new.h"

namespace ferry::decoding_test {
namespace {

struct Decoding {
  std::string checkpoint;
  std::vector<std::string> options;
  runner::KvBits kv_bits = {};
};

void PrintTo(const Decoding& decoding, std::ostream* out) { *out << decoding.checkpoint; }

class DecodingTest : public testing::TestWithParam<Decoding> {};

TEST_P(DecodingTest, ATokenAllocatesNothingAfterTheFirst) {
  for (const size_t threads : {1, 2}) {
    SCOPED_TRACE(threads);
    const TempDir dir;
    ThreadPool pool(threads);
    const packer::Bundle bundle = convert(dir, GetParam().checkpoint, GetParam().options, pool);
    auto decoder = runner::StatefulDecoder::load(bundle, pool, {.kv_bits = GetParam().kv_bits});
    ASSERT_TRUE(decoder) << decoder.error().message;
    const std::vector<int64_t> prompt = {1, 2, 3};
    ASSERT_TRUE(decoder->forward(prompt));
    ASSERT_TRUE(decoder->forward({&prompt[0], 1}));
    for (int token = 0; token < 4; ++token) {
      const uint64_t before = allocations();
      const auto logits = decoder->forward({&prompt[1], 1});
      const uint64_t after = allocations();
      ASSERT_TRUE(logits);
      EXPECT_TRUE(std::isfinite(logits->back()));
      EXPECT_EQ(after - before, 0) << "token " << token;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DecodingTest,
                         testing::Values(Decoding{"qwen3", {}}, Decoding{"qwen3", {}, {8, 4}},
                                         Decoding{"llama", {"--dtype", "bf16"}},
                                         Decoding{"qwen2", {"--shards", "2"}},
                                         Decoding{"qwen3_next_dense", {}}, Decoding{"lfm2", {}}));

struct StaticDecoding {
  std::string checkpoint;
  std::vector<std::string> options;
  runner::DecodeMode mode;
};

void PrintTo(const StaticDecoding& decoding, std::ostream* out) {
  *out << decoding.checkpoint << " " << name_of(decoding.mode);
}

class StaticDecodingTest : public testing::TestWithParam<StaticDecoding> {};

TEST_P(StaticDecodingTest, ATokenAllocatesNothingAfterTheFirst) {
  std::vector<std::string> options = {"--program", "static",           "--context-length",
                                      "64",        "--prefill-length", "8"};
  options.insert(options.end(), GetParam().options.begin(), GetParam().options.end());
  const std::vector<int64_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const runner::Decoder::Choose likeliest =
      [](std::span<const float> logits) -> Result<std::optional<int64_t>> {
    return std::optional(static_cast<int64_t>(runner::argmax(logits)));
  };
  for (const size_t threads : {1, 2}) {
    SCOPED_TRACE(threads);
    const TempDir dir;
    ThreadPool pool(threads);
    const packer::Bundle bundle = convert(dir, GetParam().checkpoint, options, pool);
    auto decoder = runner::load_decoder(bundle, pool, {}, {.mode = GetParam().mode});
    ASSERT_TRUE(decoder) << decoder.error().message;
    // With one thread no turn allocates. On a busy machine the second thread may take its first
    // part of some kernel late, and allocates memory then: with two, one turn of several must be
    // silent.
    int silent = 0, turns = 0;  // turns
    while (threads == 1 ? turns < 2 : silent == 0 && turns < 8) {
      if (turns % 2 == 0) (*decoder)->restart();
      ASSERT_TRUE((*decoder)->forward(prompt));
      auto token = (*decoder)->advance(1, likeliest);
      const uint64_t before = allocations();
      for (int call = 0; call < 4; ++call) {
        ASSERT_TRUE(token && *token);
        token = (*decoder)->advance(**token, likeliest);
      }
      silent += allocations() == before ? 1 : 0;
      ++turns;
    }
    EXPECT_EQ(silent, threads == 1 ? 2 : 1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, StaticDecodingTest,
    testing::Values(
        StaticDecoding{"qwen3", {}, runner::DecodeMode::kHybrid},
        StaticDecoding{"llama", {"--dtype", "bf16"}, runner::DecodeMode::kKv},
        StaticDecoding{
            "gemma3", {"--decode-length", "8", "--shards", "2"}, runner::DecodeMode::kLookahead},
        StaticDecoding{"qwen2",
                       {"--kv-dtype", "u8", "--mask-dtype", "u16", "--logits-dtype", "u16"},
                       runner::DecodeMode::kHybrid},
        StaticDecoding{
            "qwen3", {"--kv-dtype", "u8", "--attention", "sha"}, runner::DecodeMode::kHybrid},
        StaticDecoding{
            "llama", {"--kv-dtype", "f16", "--shards", "2"}, runner::DecodeMode::kHybrid},
        StaticDecoding{"qwen2",
                       {"--kv-dtype", "u8", "--shards", "2", "--shards-in-one-file"},
                       runner::DecodeMode::kKv},
        StaticDecoding{"lfm2", {}, runner::DecodeMode::kHybrid}));

// The runner's shortcuts change no bit of the results of static programs.
TEST_P(StaticDecodingTest, ProgramsAsTheyAreStatedGiveTheSameBits) {
  std::vector<std::string> options = {"--program", "static",           "--context-length",
                                      "64",        "--prefill-length", "8"};
  options.insert(options.end(), GetParam().options.begin(), GetParam().options.end());
  const TempDir dir;
  ThreadPool pool(2);
  const packer::Bundle bundle = convert(dir, GetParam().checkpoint, options, pool);
  auto decoder = runner::load_decoder(bundle, pool, {}, {.mode = GetParam().mode});
  auto stated = runner::load_decoder(bundle, pool, {.literal = true}, {.mode = GetParam().mode});
  ASSERT_TRUE(decoder && stated);
  const std::vector<int64_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  for (const size_t count : {size_t{10}, size_t{1}, size_t{2}, size_t{9}, size_t{1}}) {
    const auto logits = (*decoder)->forward(std::span(tokens).first(count));
    const auto expected = (*stated)->forward(std::span(tokens).first(count));
    ASSERT_TRUE(logits && expected);
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(*logits), std::as_bytes(*expected)));
  }
}

// Decodes 120 tokens. The choice depends on the logits, and repeats a phrase often enough for
// guesses to be right and wrong. Returns every token, and the bits of the logits behind it.
struct Decoded {
  std::vector<int64_t> tokens;
  std::vector<float> logits;
};

// `greedy` takes every token from the logits.
Decoded decode(runner::Decoder& decoder, bool greedy = false) {
  Decoded all;
  const auto choose = [&](std::span<const float> logits) -> Result<std::optional<int64_t>> {
    const auto count = static_cast<int64_t>(all.tokens.size());
    EXPECT_EQ(decoder.position(), 3 + count);
    all.logits.insert(all.logits.end(), logits.begin(), logits.end());
    const auto best = std::ranges::max_element(logits) - logits.begin();
    all.tokens.push_back(!greedy && count % 11 < 8 ? count % 11 + 1 : best);
    return count == 119 ? std::nullopt : std::optional(all.tokens.back());
  };
  const std::vector<int64_t> prompt = {1, 2, 3};
  decoder.restart();
  const auto first = decoder.forward(prompt);
  EXPECT_TRUE(first);
  std::optional<int64_t> token = *choose(first->last(first->size() / 3));
  while (token) {
    auto next = decoder.advance(*token, choose);
    EXPECT_TRUE(next);
    token = next ? *next : std::nullopt;
  }
  return all;
}

TEST(StatefulDecoder, LookupDoesNotChangeTheOutput) {
  for (const std::string checkpoint : {"qwen3", "llama", "gemma3"}) {
    const TempDir dir;
    ThreadPool pool(2);
    const packer::Bundle bundle =
        convert(dir, checkpoint, {"--logits", "all", "--kv-dtype", "i8"}, pool);
    auto plain = runner::load_decoder(bundle, pool, {}, {});
    auto guessing = runner::load_decoder(bundle, pool, {}, {.lookup = 6});
    ASSERT_TRUE(plain && guessing);
    const Decoded expected = decode(**plain), decoded = decode(**guessing);
    EXPECT_EQ(decoded.tokens, expected.tokens) << checkpoint;
    // Sliding windows begin elsewhere in a call of several tokens, so their sums round otherwise.
    const float most = checkpoint == "gemma3" ? 1e-4f : 0;
    ASSERT_EQ(decoded.logits.size(), expected.logits.size());
    for (size_t i = 0; i < expected.logits.size(); ++i) {
      ASSERT_NEAR(decoded.logits[i], expected.logits[i], most) << checkpoint << " " << i;
    }
    const auto counts = (*guessing)->lookahead_counts();
    ASSERT_TRUE(counts);
    EXPECT_EQ(counts->generated, 119);
    EXPECT_GT(counts->accepted, 30);
    EXPECT_FALSE((*plain)->lookahead_counts());
  }
}

// The draft is the same model in 4 bits, with a shorter context. Its logits are so far apart that
// it is sure of every guess, and some guesses are wrong.
TEST(StatefulDecoder, ADraftDoesNotChangeTheOutput) {
  ThreadPool pool(2);
  const TempDir source_dir, dir, small_dir;
  const std::string source =
      changed_config(source_dir, "golden/granite", {{"logits_scaling", 1e-3}});
  const packer::Bundle bundle = convert_path(dir, source, {"--logits", "all"}, pool);
  const packer::Bundle small =
      convert_path(small_dir, source, {"--quantize", "8da4w-g32", "--context-length", "100"}, pool);
  auto plain = runner::load_decoder(bundle, pool, {}, {});
  auto guessing = runner::load_decoder(bundle, pool, {}, {.draft = &small});
  ASSERT_TRUE(plain && guessing);
  for (const bool greedy : {true, false}) {
    const Decoded expected = decode(**plain, greedy), decoded = decode(**guessing, greedy);
    EXPECT_EQ(decoded.tokens, expected.tokens);
    EXPECT_EQ(decoded.logits, expected.logits);
    const auto counts = (*guessing)->lookahead_counts();
    ASSERT_TRUE(counts);
    EXPECT_EQ(counts->generated, 119);
    EXPECT_TRUE(counts->accepted > 40 || !greedy) << counts->accepted;
    EXPECT_LT(counts->accepted, 100);
  }
}

TEST(StatefulDecoder, ADraftMustFitTheModel) {
  ThreadPool pool(1);
  const TempDir dir;
  const packer::Bundle bundle = convert(dir, "qwen3", {"--logits", "all"}, pool);
  const auto error = [&](const std::string& draft, const std::vector<std::string>& options) {
    const TempDir other;
    const packer::Bundle small = convert(other, draft, options, pool);
    const auto decoder = runner::load_decoder(bundle, pool, {}, {.draft = &small});
    return decoder ? std::string() : decoder.error().message;
  };
  EXPECT_NE(error("qwen3_window", {}).find("has 64 tokens, and the model has 352"),
            std::string::npos);
  EXPECT_NE(error("qwen3", {"--program", "static"}).find("static programs"), std::string::npos);
  // Both share the memory.
  uint64_t memory = 1 << 12;
  while (!runner::load_decoder(bundle, pool, {.memory = memory})) memory *= 2;
  EXPECT_FALSE(runner::load_decoder(bundle, pool, {.memory = memory}, {.draft = &bundle}));
  EXPECT_TRUE(runner::load_decoder(bundle, pool, {.memory = 2 * memory}, {.draft = &bundle}));
}

TEST(StatefulDecoder, LookupIsRefusedWhereTokensCannotBeTakenBack) {
  const auto error = [](const std::string& checkpoint, const std::vector<std::string>& options) {
    const TempDir dir;
    ThreadPool pool(1);
    const packer::Bundle bundle = convert(dir, checkpoint, options, pool);
    const auto decoder = runner::load_decoder(bundle, pool, {}, {.lookup = 4});
    return decoder ? std::string() : decoder.error().message;
  };
  EXPECT_NE(error("lfm2", {"--logits", "all"}).find("is a recurrent state"), std::string::npos);
  EXPECT_NE(error("qwen3", {}).find("needs the logits of all tokens"), std::string::npos);
  EXPECT_NE(error("qwen3", {"--program", "static"}).find("mode lookahead"), std::string::npos);
}

// Sequences of several lengths, one of which is left out of some calls, give the bits that they
// give alone. Memory starts with NaN, so that a value that is read without being computed shows.
TEST(DecoderGroup, GivesTheBitsOfEachSequenceAlone) {
  const std::vector<Decoding> cases = {{"qwen3", {}},
                                       {"qwen3", {"--quantize", "8da4w-g32"}},
                                       {"llama", {"--quantize", "8da8w", "--shards", "2"}},
                                       {"gemma3", {"--dtype", "bf16", "--logits", "all"}},
                                       {"qwen3_next_dense", {}},
                                       {"olmo2", {"--prefill-length", "2"}},
                                       {"starcoder2", {"--quantize", "8da4w-g32"}},
                                       {"lfm2", {"--quantize", "8da4w-g32"}},
                                       {"qwen3_moe", {}},
                                       {"phi4_mini", {"--kv-dtype", "i8"}},
                                       {"qwen3", {}, {4, 4}},
                                       {"gemma3", {"--kv-dtype", "f16"}, {8, 8}},
                                       {"gpt_oss", {"--prefill-length", "2"}, {8, 4}},
                                       {"deepseek_v3", {"--shards", "2"}, {8, 8}}};
  for (const Decoding& c : cases) {
    SCOPED_TRACE(c.checkpoint);
    const TempDir dir;
    ThreadPool pool(2);
    const packer::Bundle bundle = convert(dir, c.checkpoint, c.options, pool);
    const runner::MethodOptions poison = {.poison = true, .kv_bits = c.kv_bits};
    auto group = runner::DecoderGroup::load(bundle, pool, poison, 3);
    ASSERT_TRUE(group) << group.error().message;
    std::vector<std::unique_ptr<runner::Decoder>> alone;
    for (size_t i = 0; i < 3; ++i) {
      alone.push_back(std::move(runner::load_decoder(bundle, pool, poison, {}).value()));
      const std::vector<int64_t> prompt(1 + 4 * i, static_cast<int64_t>(7 + i));
      ASSERT_TRUE(group->sequence(i).forward(prompt));
      ASSERT_TRUE(alone[i]->forward(prompt));
    }
    for (int64_t step = 0; step < 20; ++step) {
      std::vector<runner::DecoderGroup::Turn> turns;
      for (size_t i = 0; i < 3; ++i) {
        if ((step + static_cast<int64_t>(i)) % 4 != 0) {
          turns.push_back({i, (step * 5 + static_cast<int64_t>(i) * 3) % 50 + 1});
        }
      }
      const auto done = group->forward(turns);
      ASSERT_TRUE(done) << done.error().message;
      for (const auto& turn : turns) {
        const auto expected = alone[turn.sequence]->forward({&turn.token, 1});
        ASSERT_TRUE(expected);
        ASSERT_TRUE(std::ranges::equal(std::as_bytes(turn.logits), std::as_bytes(*expected)))
            << step << " " << turn.sequence;
      }
    }
  }
}

TEST(DecoderGroup, RefusesWhatItCannotRun) {
  const TempDir dir;
  ThreadPool pool(1);
  const packer::Bundle bundle = convert(dir, "qwen3", {"--program", "static"}, pool);
  const auto refused = runner::DecoderGroup::load(bundle, pool, {}, 2);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("static programs"), std::string::npos);
  const TempDir other;
  const packer::Bundle stateful = convert(other, "qwen3", {}, pool);
  EXPECT_FALSE(runner::DecoderGroup::load(stateful, pool, {}, 0));
  EXPECT_FALSE(runner::DecoderGroup::load(stateful, pool, {}, 65));
  // All sequences share the memory.
  EXPECT_TRUE(runner::DecoderGroup::load(stateful, pool, {.memory = 4'000'000}, 1));
  EXPECT_FALSE(runner::DecoderGroup::load(stateful, pool, {.memory = 4'000'000}, 64));
  auto group = runner::DecoderGroup::load(stateful, pool, {}, 2);
  ASSERT_TRUE(group && group->sequence(0).forward(std::vector<int64_t>{1, 2}));
  runner::DecoderGroup::Turn beyond[] = {{0, 1}, {1, 100'000}};
  EXPECT_FALSE(group->forward(beyond));
}

// So do the shortcuts that need a long context: columns that masks hide are left out.
TEST(StaticDecoder, LeavesOutHiddenColumnsWithoutChangingBits) {
  const std::vector<std::vector<std::string>> styles = {
      {},
      {"--kv-dtype", "bf16", "--mask-dtype", "u16", "--attention", "sha"},
      {"--kv-dtype", "u8", "--mask-dtype", "f16", "--shards", "2"}};
  for (const std::string checkpoint : {"qwen3", "gemma3"}) {
    for (std::vector<std::string> options : styles) {
      options.insert(options.end(),
                     {"--program", "static", "--context-length", "256", "--prefill-length", "70"});
      const TempDir dir;
      ThreadPool pool(2);
      const packer::Bundle bundle = convert(dir, checkpoint, options, pool);
      // Memory starts with NaN, so a column that is read without being computed shows.
      auto decoder = runner::load_decoder(bundle, pool, {.poison = true}, {});
      auto stated = runner::load_decoder(bundle, pool, {.literal = true}, {});
      ASSERT_TRUE(decoder && stated);
      std::vector<int64_t> tokens(140);
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i * 7 % 50 + 1);
      for (const size_t count : {140, 1, 1, 70, 1}) {
        const auto logits = (*decoder)->forward(std::span(tokens).first(count));
        const auto expected = (*stated)->forward(std::span(tokens).first(count));
        ASSERT_TRUE(logits && expected);
        EXPECT_TRUE(std::ranges::equal(std::as_bytes(*logits), std::as_bytes(*expected)));
      }
    }
  }
}

// With caches in encodings of prefill_forward's own, every turn gives the values of f32, up to the
// rounding of both encodings.
TEST(StaticDecoder, TakesTurnsBetweenCachesInTwoEncodings) {
  const TempDir plain_dir, dir;
  ThreadPool pool(2);
  std::string prompts;
  for (int i = 0; i < 120; ++i) {
    prompts += std::to_string(i * i * 7 % 61 + 1) + (i % 40 < 39 ? " " : "\n");
  }
  write_bytes(dir / "prompts", prompts);
  const std::vector<std::string> style = {"--program", "static",           "--context-length",
                                          "64",        "--prefill-length", "8"};
  std::vector<std::string> options = style;
  for (const std::string& option : {std::string("--kv-dtype"), std::string("u16"),
                                    std::string("--calibrate-prefill"), dir / "prompts"}) {
    options.push_back(option);
  }
  const packer::Bundle plain = convert(plain_dir, "llama", style, pool);
  const packer::Bundle bundle = convert(dir, "llama", options, pool);
  auto exact = runner::load_decoder(plain, pool, {}, {});
  auto decoder = runner::load_decoder(bundle, pool, {}, {});
  ASSERT_TRUE(exact && decoder);
  const std::vector<int64_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  std::vector<float> first_turn;
  for (const size_t count : {10, 1, 1, 7, 1, 1, 9, 1}) {
    const auto want = (*exact)->forward(std::span(tokens).first(count));
    const auto logits = (*decoder)->forward(std::span(tokens).first(count));
    ASSERT_TRUE(want && logits);
    double signal = 0, noise = 0;
    for (size_t i = 0; i < want->size(); ++i) {
      signal += std::pow((*want)[i], 2);
      noise += std::pow((*want)[i] - (*logits)[i], 2);
    }
    EXPECT_GT(10 * std::log10(signal / noise), 30) << "at " << (*decoder)->position();
    const auto keys = (*decoder)->buffer("layers.0.attention.kv_cache.k_cache");
    ASSERT_TRUE(keys);
    std::vector<float> values(keys->bytes.size() / sizeof(float));
    std::memcpy(values.data(), keys->bytes.data(), keys->bytes.size());
    if (first_turn.empty()) first_turn = values;
    EXPECT_TRUE(std::equal(first_turn.begin(), first_turn.end(), values.begin()));
  }
}

TEST(AllocationCounter, Counts) {
  const uint64_t before = allocations();
  ::operator delete(::operator new(1));  // a new-expression could be optimised away
  EXPECT_GE(allocations() - before, 1);
}

TEST(ProgramSet, BindsPortsByNameAndType) {
  const TempDir dir;
  ThreadPool pool(1);
  const packer::Bundle bundle = convert(dir, "qwen3", {}, pool);
  auto set = runner::ProgramSet::load(bundle, "text_decoder", pool, {});
  ASSERT_TRUE(set) << set.error().message;
  const packer::Manifest& m = bundle.manifest();
  const runner::PortType tokens = {"tokens", DType::kI64, {1, m.prefill_length}};
  const runner::PortType input_pos = {"input_pos", DType::kI64, {1}};
  const runner::PortType logits = {"logits", DType::kF32, {1, m.vocab_size}};
  struct Case {
    std::vector<runner::PortType> inputs, outputs;
    std::string error;  // a part of the message; empty if there is no error
  };
  const Case cases[] = {
      {{tokens, input_pos}, {logits}, ""},
      {{input_pos, tokens}, {}, ""},
      {{tokens}, {logits}, "no earlier program has an output 'input_pos'"},
      {{tokens, input_pos}, {{"scores", DType::kF32, {1}}}, "no program has an output 'scores'"},
      {{{"tokens", DType::kI32, tokens.shape}, input_pos},
       {logits},
       "input 'tokens' is i64" + to_string(tokens.shape) + ", expected i32"},
      {{tokens, input_pos},
       {{"logits", DType::kF32, {1, m.vocab_size + 1}}},
       "output 'logits' is f32" + to_string(logits.shape) + ", expected f32"},
  };
  for (const Case& c : cases) {
    const auto chain = set->bind("forward", c.inputs, c.outputs);
    EXPECT_EQ(chain.has_value(), c.error.empty());
    const std::string message = chain ? "" : chain.error().message;
    EXPECT_NE(message.find(c.error), std::string::npos) << message;
  }
}

TEST(StatefulDecoder, OutlivesTheBundleObjectThatItWasLoadedFrom) {
  const TempDir dir;
  ThreadPool pool(1);
  auto decoder = [&] {
    return runner::StatefulDecoder::load(convert(dir, "qwen3", {}, pool), pool, {});
  }();
  ASSERT_TRUE(decoder);
  const std::vector<int64_t> prompt = {1, 2, 3};
  EXPECT_TRUE(decoder->forward(prompt));
}

}  // namespace
}  // namespace ferry::decoding_test
