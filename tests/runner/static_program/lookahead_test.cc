#include "runner/static_program/lookahead.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runner/static_program/static_sequence.h"
#include "tests/runner/static_program/fake_program.h"

namespace ferry::runner::lookahead_test {
namespace {

// The generated tokens, and why generation ended.
struct Generation {
  std::vector<int64_t> tokens;
  std::vector<int64_t> positions;  // position after the token that each token was chosen after
  LookaheadCounts counts;
  int64_t end = 0;  // final position
};

// Generates as `ferry run` does: until `eos`, `limit` tokens, or a full context.
Generation generate(StaticSequence& sequence, const std::vector<int64_t>& prompt, Sampler sampler,
                    std::optional<int64_t> eos, int64_t limit = 1000) {
  Generation run;
  const auto choose = [&](std::span<const float> logits) -> Result<std::optional<int64_t>> {
    const int64_t token = FERRY_TRY(sampler.sample(logits));
    run.tokens.push_back(token);
    run.positions.push_back(sequence.position());
    const bool ends = token == eos || std::ssize(run.tokens) >= limit ||
                      sequence.position() >= sequence.capacity();
    return ends ? std::nullopt : std::optional(token);
  };
  const auto logits = sequence.forward(prompt);
  EXPECT_TRUE(logits) << logits.error().message;
  Result<std::optional<int64_t>> next = choose(*logits);
  while (next && *next) next = sequence.advance(**next, choose);
  EXPECT_TRUE(next) << next.error().message;
  run.counts = sequence.lookahead_counts().value_or(LookaheadCounts{});
  run.end = sequence.position();
  return run;
}

Sampler sampler(double temperature = 0) {
  return Sampler::make({.temperature = temperature, .seed = 11}).value();
}

StaticSequence make(FakeProgram& program, const DecodeOptions& options) {
  MemoryBudget budget(uint64_t{1} << 24);
  auto sequence = StaticSequence::make(program.methods(), options, budget, "bundle");
  EXPECT_TRUE(sequence) << sequence.error().message;
  return std::move(*sequence);
}

// N, W, G, and the tokens of a call, which may be more than lookahead needs.
struct Shape4 {
  int64_t ngram, window, gcap, ar;
};
constexpr Shape4 kShapes[] = {{3, 2, 2, 8},  {4, 3, 1, 12}, {4, 3, 1, 16}, {3, 3, 3, 12},
                              {3, 3, 3, 16}, {5, 2, 2, 16}, {2, 1, 1, 2},  {2, 4, 3, 8}};

DecodeOptions lookahead(const Shape4& shape, uint64_t seed = 0) {
  return {.mode = DecodeMode::kLookahead,
          .lookahead = {shape.ngram, shape.window, shape.gcap, seed}};
}

TEST(Lookahead, GivesTheTokensOfGreedyDecodingUpToTheEndOfTheContext) {
  int64_t accepted = 0;
  for (const Shape4& shape : kShapes) {
    for (const std::optional<int64_t> window : {std::optional<int64_t>(), {3}, {9}}) {
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        FakeProgram program({.kv_length = shape.ar, .context = 64, .window = window, .seed = seed});
        const std::vector<int64_t> prompt = {1, 5, 9, 2, 2, 7, static_cast<int64_t>(seed)};
        StaticSequence guessing = make(program, lookahead(shape, seed));
        StaticSequence greedy = make(program, {.mode = DecodeMode::kHybrid});
        for (int turn = 0; turn < 2; ++turn) {
          const Generation got = generate(guessing, prompt, sampler(), {});
          const Generation want = generate(greedy, prompt, sampler(), {});
          ASSERT_EQ(got.tokens, want.tokens) << shape.ngram << shape.window << shape.gcap;
          ASSERT_EQ(got.positions, want.positions);
          EXPECT_EQ(got.end, 64 - shape.ar);
          EXPECT_EQ(got.counts.generated, std::ssize(got.tokens) - 1);
          accepted += got.counts.accepted;
          guessing.restart();
          greedy.restart();
        }
      }
    }
  }
  EXPECT_GT(accepted, 100);  // otherwise nothing was tested
}

TEST(Lookahead, TakesFewerCallsWhereGuessesAreRight) {
  FakeProgram program({.kv_length = 8, .context = 128, .seed = 3});
  StaticSequence sequence = make(program, lookahead(kShapes[0]));
  const Generation run = generate(sequence, {1, 5, 9, 2}, sampler(), {});
  const auto calls = std::ranges::count(program.calls(), "kv_forward");
  EXPECT_EQ(calls, run.counts.generated - run.counts.accepted);
  EXPECT_GT(run.counts.accepted, 10);
}

TEST(Lookahead, GivesTheTokensOfSamplingToo) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    FakeProgram program({.kv_length = 8, .context = 64, .seed = seed});
    StaticSequence guessing = make(program, lookahead(kShapes[0]));
    StaticSequence plain = make(program, {.mode = DecodeMode::kKv});
    EXPECT_EQ(generate(guessing, {3, 1}, sampler(0.3), {}).tokens,
              generate(plain, {3, 1}, sampler(0.3), {}).tokens);
  }
}

TEST(Lookahead, SeedsChangeTheCallsAndNotTheTokens) {
  FakeProgram program({.kv_length = 16, .context = 96, .seed = 2});
  std::vector<int64_t> tokens;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto once = [&] {
      StaticSequence sequence = make(program, lookahead({3, 4, 4, 16}, seed));
      return generate(sequence, {1, 2, 3, 4, 5, 6, 7}, sampler(), {});
    };
    const Generation run = once(), again = once();
    if (tokens.empty()) tokens = run.tokens;
    EXPECT_EQ(run.tokens, tokens);
    EXPECT_EQ(run.counts.accepted, again.counts.accepted);
  }
}

// An accepted guess may contain an end token. Generation stops after it, and the next turn
// continues from it.
TEST(Lookahead, StopsAtAnEndTokenAmongGuessesAndGoesOnFromThere) {
  int64_t inside = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    FakeProgram program({.kv_length = 8, .context = 96, .window = 11, .seed = seed});
    StaticSequence plain = make(program, {.mode = DecodeMode::kHybrid});
    const std::vector<int64_t> prompt = {1, 5, 9, 2};
    const std::vector<int64_t> all = generate(plain, prompt, sampler(), {}).tokens;
    for (const size_t length : {3, 8, 17, 30}) {
      plain.restart();
      StaticSequence guessing = make(program, lookahead(kShapes[0], seed));
      const auto limit = static_cast<int64_t>(length);
      const Generation got = generate(guessing, prompt, sampler(), {}, limit);
      const Generation want = generate(plain, prompt, sampler(), {}, limit);
      ASSERT_EQ(got.tokens, want.tokens);
      ASSERT_EQ(got.end, want.end);
      inside += got.counts.accepted;
      const std::vector<int64_t> next = {all[length - 1], 3, 8};
      ASSERT_EQ(generate(guessing, next, sampler(), {}, 12).tokens,
                generate(plain, next, sampler(), {}, 12).tokens);
    }
    const int64_t eos = all[10];
    plain.restart();
    StaticSequence guessing = make(program, lookahead(kShapes[0], seed));
    ASSERT_EQ(generate(guessing, prompt, sampler(), eos).tokens,
              generate(plain, prompt, sampler(), eos).tokens);
  }
  EXPECT_GT(inside, 20);
}

TEST(Lookahead, APromptOfOneTokenIsEnough) {
  FakeProgram program({.kv_length = 8, .context = 40, .has_prefill = false});
  StaticSequence guessing = make(program, lookahead(kShapes[0]));
  StaticSequence plain = make(program, {.mode = DecodeMode::kKv});
  EXPECT_EQ(generate(guessing, {4}, sampler(), {}).tokens,
            generate(plain, {4}, sampler(), {}).tokens);
}

TEST(Lookahead, ErrorsOfTheChoiceKeepTheSequence) {
  FakeProgram program({.kv_length = 8, .context = 40});
  StaticSequence sequence = make(program, lookahead(kShapes[0]));
  ASSERT_TRUE(sequence.forward(std::vector<int64_t>{1, 2, 3}));
  const auto refuse = [](std::span<const float>) -> Result<std::optional<int64_t>> {
    return bad_input("no choice");
  };
  const auto refused = sequence.advance(4, refuse);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "no choice");
  EXPECT_EQ(sequence.position(), 3);
  const auto logits = sequence.forward(std::vector<int64_t>{4});
  ASSERT_TRUE(logits);
  const auto want = program.all_at_once({1, 2, 3, 4}).back();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR((*logits)[i], want[i], 1e-5f);
}

TEST(Lookahead, ACallerThatDoesNotStopIsStoppedByTheContext) {
  FakeProgram program({.kv_length = 8, .context = 30});
  StaticSequence sequence = make(program, lookahead(kShapes[0]));
  const auto likeliest = [](std::span<const float> logits) -> Result<std::optional<int64_t>> {
    return std::optional(static_cast<int64_t>(argmax(logits)));
  };
  Result<std::optional<int64_t>> next = std::optional<int64_t>(1);
  while (next && *next) next = sequence.advance(**next, likeliest);
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().message, "1 tokens from position 22 exceed the context of 22");
}

TEST(Lookahead, RefusesOptionsThatMakeNoSense) {
  const std::pair<LookaheadOptions, const char*> cases[] = {
      {{1, 2, 2}, "lookahead 1,2,2: expected N,W,G with n-grams"},
      {{3, 0, 2}, "lookahead 3,0,2: expected N,W,G"},
      {{3, 2, 0}, "lookahead 3,2,0: expected N,W,G"},
      {{3, -1, 2}, "lookahead 3,-1,2: expected N,W,G"},
      {{INT64_MAX, INT64_MAX, 2}, "expected N,W,G"},
      {{3, 3, 2},
       "lookahead 3,3,2 needs calls of 10 tokens, (W + G) * (N - 1); those of this "
       "bundle have 8"}};
  for (const auto& [options, message] : cases) {
    const auto made = Lookahead::make(options, 8, 100);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kUsage);
    EXPECT_NE(made.error().message.find(message), std::string::npos) << made.error().message;
  }
  const auto large = Lookahead::make({3, 2, 1 << 20}, int64_t{1} << 31, int64_t{1} << 31);
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message.find("4 GiB"), std::string::npos);
}

TEST(Lookahead, LaysOutDiagonalsAndGuesses) {
  const auto made = Lookahead::make({4, 3, 2}, 16, 10).value();
  const std::vector<int32_t> parents(made.parents().begin(), made.parents().end());
  const std::vector<int32_t> offsets(made.offsets().begin(), made.offsets().end());
  EXPECT_EQ(parents, (std::vector<int32_t>{-1, 0, 1, 0, 1, 2, 3, 4, 5, 0, 9, 10, 0, 12, 13}));
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 1, 2, 1, 2, 3, 2, 3, 4, 1, 2, 3, 1, 2, 3}));
}

}  // namespace
}  // namespace ferry::runner::lookahead_test
