// The trained sample, testdata/trained, shows properties that random models do not have: the
// perplexity of text that was not trained on, with right and with wrong codes, and generated text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <sstream>

#include "tests/cli/ferry_process.h"

namespace ferry::trained_sample_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

const std::string kSample = fixture("trained"), kText = fixture("trained/held_out.txt");

// Returns the values that transformers computed (testdata/trained/golden.py).
const Json& expected() {
  static const Json all = Json::parse(read_bytes(kSample + "/expected.json"));
  return all;
}

// Converts the sample to `bundle`. With `wrong`, a program that makes wrong codes in this manner
// converts it.
std::string convert(const std::string& bundle, const Line& options, const std::string& wrong = "") {
  const Line line = Line{"convert", kSample, "-o", bundle} + options;
  const Outcome outcome = wrong.empty()
                              ? run_ferry(line)
                              : run_program(FERRY_WRONG_BINARY, line, {"FERRY_WRONG=" + wrong});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return bundle;
}

Json answer(const Line& line) {
  const Outcome outcome = run_ferry(line + Line{"--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.json()["result"];
}

Json perplexity(const std::string& bundle, const Line& more = {}) {
  return answer(Line{"verify", bundle, "--perplexity", kText, "--text"} + more);
}

// -- text

TEST(TrainedSample, WritesWhatTransformersWrites) {
  for (const Line& style : {Line{}, Line{"--shards", "2"}, Line{"--program", "static"},
                            Line{"--program", "static", "--attention", "sha"}}) {
    SCOPED_TRACE(testing::PrintToString(style));
    const TempDir dir;
    const std::string bundle = convert(dir / "b", Line{"--dtype", "f32"} + style);
    for (const Json& prompt : expected()["prompts"]) {
      const TensorFile golden(kSample + "/golden.safetensors");
      const std::string ids = golden.bytes_of(prompt["name"].get<std::string>() + ".greedy_ids");
      const Json found = answer({"run", bundle, "--prompt", prompt["text"], "--ignore-eos",
                                 "--max-new", std::to_string(ids.size() / sizeof(int64_t))});
      EXPECT_EQ(found["text"], prompt["continuation"]);
    }
  }
}

TEST(TrainedSample, TextsSurviveTheTokenizer) {
  const std::string held_out = read_bytes(kText);
  const Json texts = {held_out, "caf\u00e9 \U0001f600\t 1611\r\n",
                      expected()["prompts"][0]["text"]};
  std::string lines, lists;
  for (const Json& text : texts) lines += text.dump() + "\n";
  const Outcome encoded = run_ferry_on(lines, {"tokenize", kSample});
  ASSERT_EQ(encoded.code, 0) << encoded.err;
  const Outcome decoded = run_ferry_on(encoded.out, {"tokenize", kSample, "--decode"});
  std::istringstream ids(encoded.out), back(decoded.out);
  for (const Json& text : texts) {
    std::string line;
    std::getline(back, line);
    EXPECT_EQ(Json::parse(line), text);
  }
  std::string line;
  std::getline(ids, line);
  EXPECT_EQ(Json::parse(line).size(), expected()["held_out"]["tokens"]);
}

// -- perplexity

TEST(TrainedSample, HasThePerplexityThatTransformersMeasures) {
  for (const Line& style : {Line{"--shards", "2"}, Line{"--logits", "all"}}) {
    SCOPED_TRACE(testing::PrintToString(style));
    const TempDir dir;
    const Json found = perplexity(convert(dir / "b", Line{"--dtype", "f32"} + style));
    const Json& right = expected()["held_out"];
    for (const char* member : {"window", "stride", "tokens", "predicted"}) {
      EXPECT_EQ(found[member], right[member]) << member;
    }
    EXPECT_NEAR(found["nll_mean"], right["nll_mean"], 1e-5);
    EXPECT_NEAR(found["perplexity"], right["perplexity"], 1e-3);
  }
}

class TrainedSampleCodes : public testing::Test {
 protected:
  TrainedSampleCodes() : exact_(convert(dir_ / "f32", {"--dtype", "f32", "--logits", "all"})) {}

  // Compares in windows that do not overlap, which takes half the time.
  Json beside(const std::string& bundle) const {
    return perplexity(bundle, {"--against", exact_, "--window", "128", "--stride", "128"});
  }

  TempDir dir_;
  std::string exact_;
};

// Static programs cannot fill the context, as transformers does for its perplexity. So they are
// compared with the stateful program.
TEST_F(TrainedSampleCodes, StaticProgramsPredictTheSame) {
  const TempDir dir;
  const Json found = beside(convert(dir / "b", {"--dtype", "f32", "--program", "static"}));
  EXPECT_LT(found["kl_max"], 1e-8);
  EXPECT_NEAR(found["nll_difference"], 0, 1e-6);
}

// The limits of the nats per token that a coding may lose, and of its mean KL divergence. They are
// about twice the measured values (docs/quantisation.md).
struct Loss {
  Line options;
  double nll, kl;
};
const Loss kLosses[] = {
    {{"--dtype", "bf16"}, 0.001, 0.00015},
    {{"--quantize", "int8"}, 0.002, 0.0003},
    {{"--quantize", "8da8w"}, 0.004, 0.001},
    {{"--quantize", "8da8w", "--quantize-embedding", "8"}, 0.004, 0.001},
    {{"--quantize", "8da4w"}, 0.04, 0.05},
    {{"--quantize", "8da4w", "--quantize-method", "hqq"}, 0.04, 0.05},
    {{"--quantize", "8da4w", "--quantize-embedding", "8"}, 0.04, 0.05},
    {{"--quantize", "8da4w", "--program", "static", "--shards", "2"}, 0.04, 0.05},
};

TEST_F(TrainedSampleCodes, LoseLittle) {
  for (const Loss& loss : kLosses) {
    SCOPED_TRACE(testing::PrintToString(loss.options));
    const TempDir dir;
    const bool fixed = std::ranges::count(loss.options, "static") > 0;
    const std::string bundle =
        convert(dir / "b", loss.options + (fixed ? Line{} : Line{"--logits", "all"}));
    const Json found = beside(bundle);
    EXPECT_LT(std::abs(found["nll_difference"].get<double>()), loss.nll);
    EXPECT_LT(found["kl_mean"], loss.kl);
  }
}

// tests/mutation proves the other forms, as for all checkpoints with a reference.
TEST(TrainedSample, IsProvedInTheFormsOfTheReadme) {
  const Line small = {"--quantize", "8da4w", "--quantize-embedding", "8"};
  for (const Line& options :
       {small, small + Line{"--shards", "2"},
        Line{"--quantize", "8da4w", "--program", "static", "--attention", "sha", "--shards", "2"},
        Line{"--program", "static", "--kv-dtype", "u8"}}) {
    SCOPED_TRACE(testing::PrintToString(options));
    const TempDir dir;
    const Outcome outcome = run_ferry({"verify", convert(dir / "b", options), "--checkpoint",
                                       kSample, "--reference", kSample + "/golden.safetensors"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

// tests/mutation/wrong_codes.cc makes the errors: scales of the previous group, scales twice as
// large, nibbles in the other order, codes of the previous row.
TEST_F(TrainedSampleCodes, LoseMuchWhereTheyAreWrong) {
  for (const char* scheme : {"8da4w", "8da8w"}) {
    for (const char* wrong : {"codes_shifted_scales", "codes_doubled_scales",
                              "codes_swapped_columns", "codes_shifted_rows"}) {
      SCOPED_TRACE(std::string(scheme) + ' ' + wrong);
      const TempDir dir;
      const Line options = {"--quantize", scheme, "--logits", "all"};
      const Json found = beside(convert(dir / "b", options, wrong));
      EXPECT_GT(found["nll_difference"], 1);
      EXPECT_GT(found["kl_mean"], 1);
      EXPECT_LT(found["top1_agreement"], 0.5);
    }
  }
}

// -- sampling

struct Row {
  double nll, entropy, variance;  // of the chosen token; of the distribution that it was drawn from
};

Row row_of(const float* logits, size_t vocabulary, size_t chosen, double temperature) {
  const double most = *std::max_element(logits, logits + vocabulary);
  std::vector<double> p(vocabulary);
  for (size_t v = 0; v < vocabulary; ++v) p[v] = std::exp((logits[v] - most) / temperature);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  Row row{-std::log(p[chosen] / sum), 0, 0};
  for (double& x : p) {
    x /= sum;
    if (x > 0) row.entropy -= x * std::log(x);
  }
  for (const double x : p) {
    if (x > 0) row.variance += x * std::pow(std::log(x) + row.entropy, 2);
  }
  return row;
}

// Returns the difference between the NLL of the chosen tokens and the entropy of their
// distributions, in standard deviations. For samples of the distribution it is about 1, whatever
// the model.
double surprise(const std::string& bundle, const std::string& logits, const Line& options,
                double temperature) {
  const Json found = answer(Line{"run", bundle, "--prompt", "And it came to pass", "--max-new",
                                 "240", "--ignore-eos", "--dump-logits", logits} +
                            options);
  const std::string bytes = TensorFile(logits).bytes_of("logits");
  std::vector<float> rows(bytes.size() / sizeof(float));
  std::memcpy(rows.data(), bytes.data(), bytes.size());
  const auto tokens = found["tokens"].get<std::vector<size_t>>();
  const size_t vocabulary = rows.size() / tokens.size();
  double difference = 0, variance = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Row row = row_of(&rows[i * vocabulary], vocabulary, tokens[i], temperature);
    difference += row.nll - row.entropy;
    variance += row.variance;
  }
  return difference / std::sqrt(variance);
}

TEST(TrainedSample, IsSampledAsItPredicts) {
  const TempDir dir;
  const std::string bundle = convert(dir / "b", {"--shards", "2"});
  for (const std::string temperature : {"0.7", "1", "1.3"}) {
    for (const std::string seed : {"1", "2", "3"}) {
      const double found =
          surprise(bundle, dir / (temperature + seed),
                   {"--temperature", temperature, "--seed", seed}, std::stod(temperature));
      EXPECT_LT(std::abs(found), 4) << temperature << " seed " << seed;
    }
  }
  // Choosing the likeliest token, or one of the likeliest, is not sampling from the distribution.
  EXPECT_LT(surprise(bundle, dir / "greedy", {}, 1), -8);
  EXPECT_LT(surprise(bundle, dir / "top_p", {"--temperature", "1", "--top-p", "0.6"}, 1), -4);
}

}  // namespace
}  // namespace ferry::trained_sample_test
