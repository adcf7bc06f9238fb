// Rows of images replace embeddings, in decoders of stateful and of static programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "runner/decoder.h"
#include "tests/decoding/counting_new.h"
#include "tests/decoding/vision_testing.h"

namespace ferry::image_rows_test {
namespace {

const Line kStatic = {"--program", "static", "--context-length", "96", "--prefill-length", "8"};
const Line kStateful = {"--context-length", "96", "--prefill-length", "40"};

struct Style {
  std::string name;
  Line options;
  std::optional<runner::DecodeMode> mode = {};  // for static bundles
};

void PrintTo(const Style& style, std::ostream* out) { *out << style.name; }

Line with_shards(Line line) {
  line.insert(line.end(), {"--shards", "2"});
  return line;
}

const Style kStyles[] = {
    {"stateful", kStateful},
    {"stateful_in_two_parts", with_shards(kStateful)},
    {"static_hybrid", kStatic},
    {"static_kv", kStatic, runner::DecodeMode::kKv},
    {"static_in_two_parts", with_shards(kStatic)},
};

class ImageRows : public testing::TestWithParam<Style> {
 protected:
  std::unique_ptr<runner::Decoder> load(const std::string& source,
                                        const std::string& name = "bundle") {
    return load(source, name, pool_);
  }
  std::unique_ptr<runner::Decoder> load(const std::string& source, const std::string& name,
                                        ThreadPool& pool) {
    bundles_.push_back(converted(dir_, source, GetParam().options, pool, name));
    auto decoder =
        runner::load_decoder(bundles_.back(), pool, {.poison = true}, {.mode = GetParam().mode});
    EXPECT_TRUE(decoder) << decoder.error().message;
    return *std::move(decoder);
  }
  // Records the embeddings that the decoder's programs get, by position.
  void record(runner::Decoder& decoder) {
    EXPECT_TRUE(decoder.set_probe_sink([this](const std::string& name, int64_t position,
                                              int64_t rows, std::span<const float> values) {
      if (name != runner::kEmbeddingsProbe) return;
      const size_t width = values.size() / static_cast<size_t>(rows);
      for (int64_t row = 0; row < rows; ++row) {
        const auto part = values.subspan(static_cast<size_t>(row) * width, width);
        embedded[position + row] = Floats(part.begin(), part.end());
      }
    }));
  }

  std::map<int64_t, Floats> embedded;
  TempDir dir_;
  ThreadPool pool_{2};
  std::vector<packer::Bundle> bundles_;
};

std::vector<int64_t> counting_ids(int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(3 + i * 7 % 300);
  return ids;
}

Floats last_row(Result<std::span<const float>> logits) {
  EXPECT_TRUE(logits) << logits.error().message;
  return logits ? Floats(logits->end() - 360, logits->end()) : Floats();
}

// Runs of rows begin, end and touch inside calls, at the borders of calls, and across them.
TEST_P(ImageRows, TakeThePlaceOfEmbeddingsAcrossCallsOfAnyLength) {
  const std::string source = fixture("vision/smolvlm");
  const TensorFile weights(source + "/model.safetensors");
  const Floats table = floats_of(weights.bytes_of("model.text_model.embed_tokens.weight"));
  const std::vector<int64_t> ids = counting_ids(30);
  const Floats values = randoms(64 * 20, 11);
  const std::span<const float> all = values;
  const runner::EmbeddingRows rows[] = {{0, all.first(64)},
                                        {3, all.subspan(64, 64 * 9)},
                                        {12, all.subspan(640, 64 * 4)},
                                        {29, all.subspan(896, 64)}};
  std::map<int64_t, Floats> expected;
  for (int64_t i = 0; i < 30; ++i) {
    const float* at = table.data() + ids[static_cast<size_t>(i)] * 64;
    expected[i] = Floats(at, at + 64);
  }
  for (const runner::EmbeddingRows& run : rows) {
    for (size_t row = 0; row < run.values.size() / 64; ++row) {
      const auto part = run.values.subspan(row * 64, 64);
      expected[run.first + static_cast<int64_t>(row)] = Floats(part.begin(), part.end());
    }
  }
  const auto decoder = load(source);
  record(*decoder);
  Floats whole;
  for (const size_t length : {30, 1, 5, 8, 12}) {
    SCOPED_TRACE(length);
    decoder->restart();
    embedded.clear();
    ASSERT_TRUE(decoder->set_image_rows(rows));
    Floats logits;
    for (size_t at = 0; at < ids.size(); at += length) {
      const auto part = std::span(ids).subspan(at, std::min(length, ids.size() - at));
      logits = last_row(decoder->forward(part));
    }
    for (const auto& [position, row] : expected) {
      EXPECT_EQ(embedded.at(position), row) << "position " << position;
    }
    if (whole.empty()) whole = logits;
    EXPECT_LT(furthest(logits, whole), 1e-4F);
  }
  // Without image rows, the tokens have their own embeddings again.
  decoder->restart();
  embedded.clear();
  ASSERT_TRUE(decoder->set_image_rows({}));
  EXPECT_GT(furthest(last_row(decoder->forward(ids)), whole), 1e-2F);
  for (const auto& [position, row] : embedded) {
    if (position >= 30) continue;  // padding of a call that is not full
    const float* at = table.data() + ids[static_cast<size_t>(position)] * 64;
    EXPECT_EQ(row, Floats(at, at + 64)) << "position " << position;
  }
}

// Returns one entry for each run of placeholders in the reference's short prompt.
std::vector<runner::EmbeddingRows> golden_rows(const std::vector<int64_t>& ids, int64_t placeholder,
                                               std::span<const float> features) {
  std::vector<runner::EmbeddingRows> rows;
  size_t used = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] != placeholder) continue;
    rows.push_back({static_cast<int64_t>(i), features.subspan(64 * used++, 64)});
  }
  EXPECT_EQ(used * 64, features.size());
  return rows;
}

TEST_P(ImageRows, GiveTheLogitsOfTheReference) {
  const auto decoder = load(fixture("vision/smolvlm"));
  const std::vector<int64_t> ids = golden_ids("smolvlm", "short.input_ids");
  const Floats features = golden("smolvlm", "short.image_features");
  ASSERT_TRUE(decoder->set_image_rows(golden_rows(ids, 358, features)));
  const Floats logits = last_row(decoder->forward(ids));
  const Floats all = golden("smolvlm", "short.logits");
  EXPECT_LT(furthest(logits, Floats(all.end() - 360, all.end())), 1e-4F);
}

// The program reads no embedding of a placeholder: with NaN there, no bit of the result changes.
TEST_P(ImageRows, EmbeddingsOfPlaceholdersDoNotLeak) {
  const std::string poisoned = changed_checkpoint(dir_, "vision/smolvlm", [](TensorFile& file) {
    const std::string key = "model.text_model.embed_tokens.weight";
    Floats table = floats_of(file.bytes_of(key));
    std::fill_n(table.begin() + 358 * 64, 64, std::numeric_limits<float>::quiet_NaN());
    file.set_bytes(key, bytes_of(table));
  });
  const auto decoder = load(fixture("vision/smolvlm"));
  const auto other = load(poisoned, "poisoned");
  const std::vector<int64_t> ids = golden_ids("smolvlm", "short.input_ids");
  const Floats features = golden("smolvlm", "short.image_features");
  const auto rows = golden_rows(ids, 358, features);
  for (const size_t length : {ids.size(), size_t{1}, size_t{5}}) {
    SCOPED_TRACE(length);
    for (runner::Decoder* one : {decoder.get(), other.get()}) {
      one->restart();
      ASSERT_TRUE(one->set_image_rows(rows));
    }
    for (size_t at = 0; at < ids.size(); at += length) {
      const auto part = std::span(ids).subspan(at, std::min(length, ids.size() - at));
      const Floats logits = last_row(other->forward(part));
      EXPECT_TRUE(std::ranges::all_of(logits, [](float v) { return std::isfinite(v); }));
      EXPECT_EQ(logits, last_row(decoder->forward(part)));
    }
    const std::vector<int64_t> next = {7};
    EXPECT_EQ(last_row(other->forward(next)), last_row(decoder->forward(next)));
  }
}

TEST_P(ImageRows, ThatDoNotFitAreRefused) {
  const auto decoder = load(fixture("vision/smolvlm"));
  const Floats values(64 * 200);
  const std::span<const float> all = values;
  const int64_t capacity = decoder->capacity();
  const int64_t most = std::numeric_limits<int64_t>::max();
  const std::vector<std::pair<std::vector<runner::EmbeddingRows>, std::string>> cases = {
      {{{0, all.first(63)}}, "63 values of image features are not whole rows of 64"},
      {{{0, all.first(65)}}, "65 values of image features are not whole rows of 64"},
      {{{-1, all.first(64)}}, "1 rows of image features at position -1 do not fit"},
      {{{4, all.first(128)}, {5, all.first(64)}}, "at position 5 do not fit behind position 6"},
      {{{4, all.first(64)}, {4, all.first(64)}}, "at position 4 do not fit behind position 5"},
      {{{8, all.first(64)}, {2, all.first(64)}}, "at position 2 do not fit behind position 9"},
      {{{capacity, all.first(64)}}, "do not fit behind position 0 in a context of"},
      {{{capacity - 1, all.first(128)}}, "2 rows of image features"},
      {{{most, all.first(64)}}, "1 rows of image features at position 9223372036854775807"},
      {{{1, all}}, "200 rows of image features"},
  };
  const Floats before = last_row(decoder->forward(counting_ids(4)));
  for (const auto& [rows, message] : cases) {
    const Status status = decoder->set_image_rows(rows);
    ASSERT_FALSE(status) << message;
    EXPECT_EQ(status.error().code, ErrorCode::kUsage);
    EXPECT_NE(status.error().message.find(message), std::string::npos) << status.error().message;
  }
  // A refused list of rows leaves nothing in the decoder.
  decoder->restart();
  EXPECT_EQ(last_row(decoder->forward(counting_ids(4))), before);
  const runner::EmbeddingRows last[] = {{0, {}}, {0, all.first(64)}, {capacity - 1, all.first(64)}};
  EXPECT_TRUE(decoder->set_image_rows(last));
}

TEST_P(ImageRows, AreRefusedWhereTheDecoderTakesTokens) {
  const auto decoder = load(fixture("golden/qwen3"));
  const Floats values(64);
  const runner::EmbeddingRows rows[] = {{0, values}};
  const Status status = decoder->set_image_rows(rows);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  EXPECT_NE(status.error().message.find("takes tokens, not rows of images"), std::string::npos)
      << status.error().message;
  EXPECT_TRUE(decoder->set_image_rows({}));
}

// A token whose embedding is a row of an image allocates no memory either.
TEST_P(ImageRows, ATokenAllocatesNothingAfterTheFirst) {
  const std::vector<int64_t> ids = counting_ids(12);
  const Floats values = randoms(64 * 7, 2);
  const runner::EmbeddingRows rows[] = {{2, std::span(values).first(64 * 4)},
                                        {15, std::span(values).last(64 * 3)}};
  const runner::Decoder::Choose likeliest = [](std::span<const float> logits) {
    const auto best = std::ranges::max_element(logits);
    return Result<std::optional<int64_t>>(std::optional<int64_t>(best - logits.begin()));
  };
  for (const size_t threads : {1, 2}) {
    SCOPED_TRACE(threads);
    ThreadPool pool(threads);
    const auto decoder = load(fixture("vision/smolvlm"), std::to_string(threads), pool);
    // With one thread no turn allocates. The second thread may take its first part of some kernel
    // late, and allocates memory then: with two, one turn of several must be silent.
    int silent = 0, turns = 0;
    while (threads == 1 ? turns < 2 : silent == 0 && turns < 8) {
      decoder->restart();
      ASSERT_TRUE(decoder->set_image_rows(rows));
      ASSERT_TRUE(decoder->forward(ids));
      auto token = decoder->advance(1, likeliest);
      const uint64_t before = allocations();
      for (int call = 0; call < 8; ++call) {
        ASSERT_TRUE(token && *token);
        token = decoder->advance(**token, likeliest);
      }
      silent += allocations() == before ? 1 : 0;
      ++turns;
    }
    EXPECT_EQ(silent, threads == 1 ? 2 : 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, ImageRows, testing::ValuesIn(kStyles),
                         [](const auto& test) { return test.param.name; });

// Stateful and static programs, in all modes, choose the same tokens after an image.
TEST(ImageDecoding, StylesAndModesAgree) {
  const TempDir dir;
  ThreadPool pool(2);
  Line longer = kStatic;
  longer.insert(longer.end(), {"--decode-length", "8"});
  const packer::Bundle stateful =
      converted(dir, fixture("vision/internvl3_hf"), kStateful, pool, "a");
  const packer::Bundle fixed = converted(dir, fixture("vision/internvl3_hf"), longer, pool, "b");
  const std::vector<int64_t> ids = golden_ids("internvl3_hf", "short.input_ids");
  const Floats features = golden("internvl3_hf", "short.image_features");
  const auto generate = [&](const packer::Bundle& bundle, std::optional<runner::DecodeMode> mode) {
    auto decoder = runner::load_decoder(bundle, pool, {.poison = true}, {.mode = mode}).value();
    EXPECT_TRUE(decoder->set_image_rows(golden_rows(ids, 385, features)));
    std::vector<int64_t> tokens;
    const runner::Decoder::Choose choose =
        [&](std::span<const float> logits) -> Result<std::optional<int64_t>> {
      tokens.push_back(std::ranges::max_element(logits.last(388)) - logits.last(388).begin());
      return tokens.size() < 16 ? std::optional(tokens.back()) : std::nullopt;
    };
    auto token = choose(decoder->forward(ids).value());
    while (token && *token) token = decoder->advance(**token, choose);
    EXPECT_TRUE(token) << token.error().message;
    return tokens;
  };
  const std::vector<int64_t> expected = golden_ids("internvl3_hf", "short.greedy_ids");
  EXPECT_EQ(generate(stateful, std::nullopt), expected);
  EXPECT_EQ(generate(fixed, runner::DecodeMode::kKv), expected);
  EXPECT_EQ(generate(fixed, runner::DecodeMode::kHybrid), expected);
  EXPECT_EQ(generate(fixed, runner::DecodeMode::kLookahead), expected);
}

}  // namespace
}  // namespace ferry::image_rows_test
