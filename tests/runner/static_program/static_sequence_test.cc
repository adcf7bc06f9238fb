#include "runner/static_program/static_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/runner/static_program/fake_program.h"

namespace ferry::runner::static_sequence_test {
namespace {

Result<StaticSequence> make(FakeProgram& program, const DecodeOptions& options = {}) {
  MemoryBudget budget(uint64_t{1} << 24);
  return StaticSequence::make(program.methods(), options, budget, "bundle");
}

std::vector<int64_t> some_tokens(int64_t count, uint64_t seed, int64_t vocab = 13) {
  Random random(seed);
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int64_t>(random.next() % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

void expect_row(std::span<const float> got, const std::vector<float>& want, int64_t position,
                float tolerance = 1e-5f) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance) << "position " << position << ", token " << i;
  }
}

// Feeds `tokens` in parts of these lengths, and compares every row with the result of all tokens at
// once.
void expect_parity(FakeProgram& program, StaticSequence& sequence,
                   const std::vector<int64_t>& tokens, const std::vector<size_t>& parts,
                   float tolerance = 1e-5f) {
  const auto want = program.all_at_once(tokens);
  int64_t rows_seen = 0;
  sequence.set_logits_sink([&](int64_t position, int64_t rows, std::span<const float> values) {
    EXPECT_EQ(position, rows_seen);
    rows_seen += rows;
    const size_t vocab = values.size() / static_cast<size_t>(rows);
    for (int64_t r = 0; r < rows; ++r) {
      expect_row(values.subspan(static_cast<size_t>(r) * vocab, vocab),
                 want[static_cast<size_t>(position + r)], position + r, tolerance);
    }
  });
  size_t at = 0;
  for (const size_t part : parts) {
    const auto logits = sequence.forward(std::span(tokens).subspan(at, part));
    ASSERT_TRUE(logits) << logits.error().message;
    at += part;
    ASSERT_NO_FATAL_FAILURE(
        expect_row(*logits, want[at - 1], static_cast<int64_t>(at) - 1, tolerance));
    EXPECT_EQ(sequence.position(), static_cast<int64_t>(at));
  }
  EXPECT_EQ(rows_seen, static_cast<int64_t>(at));
  sequence.set_logits_sink({});
}

template <class T>
std::string message_of(const Result<T>& result) {
  return result ? "" : result.error().message;
}

TEST(StaticSequence, PromptsOfEveryLengthEqualAttentionOverAllOfThem) {
  for (const DecodeMode mode : {DecodeMode::kKv, DecodeMode::kHybrid}) {
    for (const auto& [kv, prefill] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {1, 4}, {1, 8}, {1, 23}, {4, 8}, {8, 4}}) {
      SCOPED_TRACE(testing::Message() << "AR " << kv << " and " << prefill);
      FakeProgram program({.kv_length = kv, .prefill_length = prefill});
      auto sequence = make(program, {.mode = mode});
      ASSERT_TRUE(sequence) << sequence.error().message;
      EXPECT_EQ(sequence->capacity(), 24 - kv);
      for (int64_t length = 1; length <= 24 - kv; ++length) {
        sequence->restart();
        ASSERT_NO_FATAL_FAILURE(expect_parity(program, *sequence, some_tokens(length, 5),
                                              {static_cast<size_t>(length)}));
      }
      sequence->restart();
      const auto rejected = sequence->forward(some_tokens(24 - kv + 1, 5));
      ASSERT_FALSE(rejected);
      EXPECT_EQ(rejected.error().code, ErrorCode::kUsage);
      EXPECT_EQ(sequence->position(), 0);
    }
  }
}

TEST(StaticSequence, WindowsOfEveryLengthEqualWindowedAttention) {
  for (const int64_t window : {1, 2, 3, 4, 5, 7, 8, 9, 12, 23, 24, 40}) {
    for (const auto& [kv, prefill] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 8}, {1, 4}, {4, 8}, {8, 3}}) {
      SCOPED_TRACE(testing::Message() << "W " << window << ", AR " << kv << " and " << prefill);
      FakeProgram program({.kv_length = kv, .prefill_length = prefill, .window = window});
      StaticSequence sequence = make(program).value();
      ASSERT_NO_FATAL_FAILURE(expect_parity(program, sequence, some_tokens(24 - kv, 6),
                                            {static_cast<size_t>(24 - kv)}));
      sequence.restart();
      ASSERT_NO_FATAL_FAILURE(
          expect_parity(program, sequence, some_tokens(16, 7), {9, 1, 1, 4, 1}));
    }
  }
}

TEST(StaticSequence, TurnsOfAnyLengthsEqualOneSequence) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const int64_t kv = random.next() % 2 == 0 ? 1 : 3;
    FakeOptions options{.kv_length = kv,
                        .prefill_length = static_cast<int64_t>(random.next() % 9) + 1};
    if (random.next() % 2 == 0) options.window = static_cast<int64_t>(random.next() % 10) + 1;
    FakeProgram program(options);
    StaticSequence sequence = make(program).value();
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<size_t> parts;
      int64_t left = sequence.capacity();
      while (left > 0) {
        const auto most = static_cast<uint64_t>(std::min<int64_t>(left, 10));
        parts.push_back(random.next() % 3 == 0 ? 1 : static_cast<size_t>(random.next() % most) + 1);
        left -= static_cast<int64_t>(parts.back());
      }
      ASSERT_NO_FATAL_FAILURE(
          expect_parity(program, sequence, some_tokens(sequence.capacity(), seed), parts))
          << "seed " << seed;
      EXPECT_FALSE(sequence.forward(some_tokens(1, 0)));
      sequence.restart();
    }
  }
}

TEST(StaticSequence, PrefillTakesWhatFitsAndKvForwardTheRest) {
  FakeProgram program({.prefill_length = 8, .context = 20});
  StaticSequence sequence = make(program).value();
  const auto calls = [&](int64_t tokens) {
    program.calls().clear();
    EXPECT_TRUE(sequence.forward(some_tokens(tokens, 1)));
    std::string line;
    for (const std::string& call : program.calls()) line += call[0];
    return line;
  };
  EXPECT_EQ(calls(1), "k");
  EXPECT_EQ(calls(9), "pk");    // 10 of the 12 positions that prefill_forward can cache
  EXPECT_EQ(calls(5), "pkkk");  // up to position 12, then one by one
  EXPECT_EQ(calls(4), "kkkk");
  EXPECT_EQ(sequence.position(), sequence.capacity());
}

TEST(StaticSequence, EveryDtypeOfCachesGivesTheSameLogits) {
  const auto tokens = some_tokens(20, 3);
  std::vector<std::vector<float>> first;
  for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16, DType::kU16, DType::kU8}) {
    for (const DType mask : {DType::kF32, DType::kF16, DType::kBF16, DType::kU16, DType::kU8}) {
      FakeProgram program({.window = 6, .kv = kv, .mask = mask});
      StaticSequence sequence = make(program).value();
      std::vector<std::vector<float>> rows;
      for (const auto& part : {std::pair(0, 9), {9, 1}, {10, 1}, {11, 6}}) {
        const auto logits = sequence.forward(std::span(tokens).subspan(part.first, part.second));
        ASSERT_TRUE(logits) << logits.error().message;
        rows.emplace_back(logits->begin(), logits->end());
      }
      if (first.empty()) first = rows;
      EXPECT_EQ(rows, first) << dtype_name(kv) << " " << dtype_name(mask);
    }
  }
}

TEST(StaticSequence, LogitsAreDecoded) {
  const std::pair<DType, float> kinds[] = {
      {DType::kF16, 0.01f}, {DType::kBF16, 0.05f}, {DType::kU16, 0.0006f}, {DType::kU8, 0.126f}};
  for (const auto& [dtype, tolerance] : kinds) {
    FakeProgram program({.logits = dtype});
    StaticSequence sequence = make(program).value();
    ASSERT_NO_FATAL_FAILURE(
        expect_parity(program, sequence, some_tokens(12, 2), {6, 1, 5}, tolerance))
        << dtype_name(dtype);
  }
}

// Multiples of 1/8 are exact in both encodings, so the results are those of one encoding.
TEST(StaticSequence, NewColumnsOfAnotherEncodingAreEncodedAsTheCacheIs) {
  FakeProgram program({.kv = DType::kU16, .prefill_output = Encoding{1.0 / 16, 5000}});
  StaticSequence sequence = make(program).value();
  ASSERT_NO_FATAL_FAILURE(expect_parity(program, sequence, some_tokens(20, 8), {7, 1, 1, 6, 1, 4}));
}

// -- caches of prefill_forward in encodings of their own

const Encoding kFine{1.0 / 16, 5000}, kCoarse{0.75, 40};

// Multiples of 1/8 are exact in both encodings, so every turn gives the results of one encoding.
TEST(StaticSequence, CachesInTwoEncodingsGiveTheSameLogitsInEveryTurn) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    FakeOptions options{.kv_length = seed % 2 == 0 ? 1 : 3,
                        .prefill_length = static_cast<int64_t>(random.next() % 9) + 1,
                        .kv = DType::kU16,
                        .prefill_cache = kFine};
    if (seed % 3 == 0) options.prefill_output = Encoding{1.0 / 32, 20000};
    if (seed % 5 == 0) options.window = 5;
    FakeProgram program(options);
    StaticSequence sequence = make(program).value();
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<size_t> parts;
      int64_t left = sequence.capacity();
      while (left > 0) {
        const auto most = static_cast<uint64_t>(std::min<int64_t>(left, 8));
        parts.push_back(random.next() % 3 == 0 ? 1 : static_cast<size_t>(random.next() % most) + 1);
        left -= static_cast<int64_t>(parts.back());
      }
      ASSERT_NO_FATAL_FAILURE(
          expect_parity(program, sequence, some_tokens(sequence.capacity(), seed), parts))
          << "seed " << seed;
      sequence.restart();
    }
  }
}

// Returns the cached values of layer 0, which depend on tokens and positions only.
std::vector<float> first_values(StaticSequence& sequence) {
  return sequence.cache(0, /*is_key=*/false)->values;
}

float through(const Encoding& encoding, float value) {
  return static_cast<float>(encoding.real(encoding.code(value, DType::kU16)));
}

// kv_forward sees the columns of prefill_forward encoded anew, once: a second prompt changes no
// column of the first. Columns of kv_forward are encoded by it alone.
TEST(StaticSequence, EveryColumnIsEncodedAnewOnce) {
  const Encoding prefill{0.3, 1000};
  FakeProgram exact({}),
      program({.kv = DType::kU16, .prefill_cache = prefill, .kv_cache = kCoarse});
  StaticSequence plain = make(exact).value(), sequence = make(program).value();
  const auto tokens = some_tokens(20, 8);
  std::vector<bool> by_prefill;
  size_t at = 0;
  for (const size_t part : {7, 1, 1, 6, 1, 4}) {
    const std::vector<float> before = first_values(sequence);
    program.calls().clear();
    ASSERT_TRUE(plain.forward(std::span(tokens).subspan(at, part)));
    ASSERT_TRUE(sequence.forward(std::span(tokens).subspan(at, part)));
    at += part;
    for (const std::string& call : program.calls()) {
      const bool prefilled = call == "prefill_forward";
      const size_t columns = prefilled ? std::min<size_t>(4, at - by_prefill.size()) : 1;
      by_prefill.insert(by_prefill.end(), columns, prefilled);
    }
    ASSERT_EQ(by_prefill.size(), at);
    const std::vector<float> values = first_values(sequence), want = first_values(plain);
    const size_t width = values.size() / at;
    for (size_t i = 0; i < values.size(); ++i) {
      const float given = by_prefill[i / width] ? through(prefill, want[i]) : want[i];
      ASSERT_EQ(values[i], through(kCoarse, given)) << "position " << i / width;
    }
    ASSERT_TRUE(std::equal(before.begin(), before.end(), values.begin()));
  }
}

// prefill_forward reads its own columns, which never had the encoding of kv_forward.
TEST(StaticSequence, LaterPromptsReadWhatPrefillHasCachedItself) {
  FakeProgram program({.kv = DType::kU16, .prefill_cache = kFine, .kv_cache = kCoarse});
  StaticSequence sequence = make(program).value();
  ASSERT_NO_FATAL_FAILURE(expect_parity(program, sequence, some_tokens(20, 8), {7, 6, 3, 4}));
}

TEST(StaticSequence, ModeKvHasNoCachesOfPrefill) {
  FakeProgram one({.kv = DType::kU16}), two({.kv = DType::kU16, .prefill_cache = kFine});
  const auto bytes = [](FakeProgram& program, DecodeMode mode) {
    return make(program, {.mode = mode})->cache_bytes();
  };
  EXPECT_EQ(bytes(two, DecodeMode::kKv), bytes(one, DecodeMode::kKv));
  EXPECT_GT(bytes(two, DecodeMode::kHybrid), bytes(one, DecodeMode::kHybrid));
  StaticSequence sequence = make(two, {.mode = DecodeMode::kKv}).value();
  ASSERT_NO_FATAL_FAILURE(expect_parity(two, sequence, some_tokens(20, 8), {7, 6, 3, 4}));
}

TEST(StaticSequence, StatesGetWholeChunksOnly) {
  for (const DecodeMode mode : {DecodeMode::kKv, DecodeMode::kHybrid}) {
    FakeProgram program({.prefill_length = 4, .recurrent = true});
    StaticSequence sequence = make(program, {.mode = mode}).value();
    for (int turn = 0; turn < 2; ++turn) {  // the second turn begins with zeros again
      program.calls().clear();
      ASSERT_NO_FATAL_FAILURE(
          expect_parity(program, sequence, some_tokens(20, 8), {3, 1, 10, 4, 2}));
      const auto prefills = std::ranges::count(program.calls(), "prefill_forward");
      EXPECT_EQ(prefills, mode == DecodeMode::kHybrid ? 3 : 0);
      sequence.restart();
    }
  }
}

TEST(StaticSequence, AFailedCallChangesNothing) {
  FakeProgram program({.recurrent = true});
  StaticSequence sequence = make(program).value();
  const auto tokens = some_tokens(9, 4);
  ASSERT_TRUE(sequence.forward(std::span(tokens).first(5)));
  program.fail_once();
  EXPECT_EQ(message_of(sequence.forward(std::span(tokens).subspan(5, 1))), "it failed");
  EXPECT_EQ(sequence.position(), 5);
  const auto logits = sequence.forward(std::span(tokens).subspan(5));
  ASSERT_TRUE(logits);
  expect_row(*logits, program.all_at_once(tokens).back(), 8);
}

TEST(StaticSequence, TokensAreChecked) {
  FakeProgram program({});
  StaticSequence sequence = make(program).value();
  EXPECT_EQ(message_of(sequence.forward({})), "no tokens to run");
  for (const int64_t id : {int64_t{-1}, int64_t{13}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(message_of(sequence.forward({&id, 1})),
              "token " + std::to_string(id) + " is outside of the vocabulary of 13");
  }
  const auto many = some_tokens(24, 1);
  EXPECT_EQ(message_of(sequence.forward(many)),
            "24 tokens from position 0 exceed the context of 23");
}

TEST(StaticSequence, ModesThatTheProgramDoesNotHaveAreRefused) {
  FakeProgram plain({.has_prefill = false}), recurrent({.recurrent = true}),
      long_steps({.kv_length = 4, .recurrent = true});
  EXPECT_EQ(make(plain)->mode(), DecodeMode::kKv);
  EXPECT_EQ(message_of(make(plain, {.mode = DecodeMode::kHybrid})),
            "bundle: mode hybrid needs a method prefill_forward");
  EXPECT_EQ(message_of(make(recurrent, {.mode = DecodeMode::kLookahead})),
            "bundle: mode lookahead needs guesses to be undone, which the state recurrent_state_1 "
            "does not allow");
  EXPECT_EQ(message_of(make(long_steps)),
            "bundle: kv_forward has calls of 4 tokens: a program with the state recurrent_state_1 "
            "takes them one by one");
  EXPECT_EQ(message_of(make(plain, {.mode = DecodeMode::kLookahead})),
            "bundle: lookahead 3,2,2 needs calls of 8 tokens, (W + G) * (N - 1); those of this "
            "bundle have 1");
}

TEST(StaticSequence, MemoryIsTakenFromTheBudget) {
  FakeProgram program({});
  MemoryBudget budget(uint64_t{1000});
  const auto sequence = StaticSequence::make(program.methods(), {}, budget, "bundle");
  ASSERT_FALSE(sequence);
  EXPECT_EQ(sequence.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace ferry::runner::static_sequence_test
