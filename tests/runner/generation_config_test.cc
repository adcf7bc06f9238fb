#include "runner/generation_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/cli/ferry_process.h"

namespace ferry::runner::generation_config_test {
namespace {

using Json = nlohmann::json;

template <class T>
std::vector<T> values(const TensorFile& file, const std::string& tensor) {
  const std::string bytes = file.bytes_of(tensor);
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

GenerationDefaults parsed(const std::string& text) {
  auto defaults = parse_generation_config(text, "g.json");
  EXPECT_TRUE(defaults) << (defaults ? "" : defaults.error().message);
  return defaults ? *defaults : GenerationDefaults();
}

// transformers computed the distributions with the processors of generate() for these files.
TEST(GenerationConfig, GivesTheDistributionsOfTransformers) {
  const Json cases = Json::parse(read_bytes(fixture("sampling/cases.json")));
  const TensorFile file(fixture("sampling/distributions.safetensors"));
  const auto logits = values<float>(file, "logits");
  const auto ids = values<int64_t>(file, "ids");
  constexpr size_t kVocabulary = 256, kPrompt = 16;
  for (size_t n = 0; n < cases.size(); ++n) {
    auto sampler = Sampler::make(parsed(cases[n].dump()).sampling);
    ASSERT_TRUE(sampler);
    for (size_t row = 0; row < logits.size() / kVocabulary; ++row) {
      SCOPED_TRACE(cases[n].dump() + ", row " + std::to_string(row));
      const auto want = values<double>(file, "p." + std::to_string(n) + "." + std::to_string(row));
      const auto got =
          sampler->distribution(std::span(logits).subspan(row * kVocabulary, kVocabulary),
                                std::span(ids).first(kPrompt), std::span(ids).subspan(kPrompt));
      ASSERT_TRUE(got);
      std::vector<double> dense(kVocabulary);
      for (const TokenProbability& one : *got) dense[static_cast<size_t>(one.id)] = one.probability;
      for (size_t id = 0; id < kVocabulary; ++id) {
        EXPECT_EQ(dense[id] > 0, want[id] > 0) << id;
        // transformers divides by the temperature in f32, which is 2^-24 of logits up to 60.
        EXPECT_NEAR(dense[id], want[id], 8e-6 * want[id]) << id;
      }
    }
  }
}

TEST(GenerationConfig, SettingsWithoutDoSampleAreGreedy) {
  for (const char* text : {"{}", R"({"temperature": 0.6, "top_p": 0.9})",
                           R"({"do_sample": false, "top_k": 5})", R"({"do_sample": null})"}) {
    EXPECT_EQ(parsed(text).sampling.temperature, 0) << text;
  }
  const SamplingOptions drawn = parsed(R"({"do_sample": true, "temperature": null})").sampling;
  EXPECT_EQ(drawn.temperature, 1);
  EXPECT_EQ(drawn.top_k, 50);
  EXPECT_EQ(parsed(R"({"repetition_penalty": 1.05})").sampling.repetition_penalty, 1.05);
}

TEST(GenerationConfig, LengthsAreRead) {
  const GenerationDefaults defaults = parsed(R"({"max_new_tokens": 7, "max_length": 90})");
  EXPECT_EQ(defaults.max_new_tokens, 7);
  EXPECT_EQ(defaults.max_length, 90);
  EXPECT_FALSE(parsed("{}").max_length);
}

TEST(GenerationConfig, WhatTheSamplerDoesNotHaveIsRefusedByName) {
  for (const char* text :
       {R"({"no_repeat_ngram_size": 3})", R"({"num_beams": 4})", R"({"suppress_tokens": [1]})",
        R"({"min_new_tokens": 2})", R"({"stop_strings": "x"})", R"({"num_beams": "many"})"}) {
    const GenerationDefaults defaults = parsed(text);
    const Status status = check_supported(defaults, defaults.sampling);
    ASSERT_FALSE(status) << text;
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    const std::string name = Json::parse(text).begin().key();
    EXPECT_EQ(
        status.error().message,
        "g.json: '" + name + "' is " + Json::parse(text)[name].dump() + ", which is not supported");
  }
  // These have no effect where the likeliest token is taken.
  const GenerationDefaults drawing =
      parsed(R"({"do_sample": true, "typical_p": 0.9, "eta_cutoff": 0.001})");
  EXPECT_FALSE(check_supported(drawing, drawing.sampling));
  EXPECT_TRUE(check_supported(drawing, {}));
  for (const char* text :
       {R"({"num_beams": 1, "typical_p": 1.0, "no_repeat_ngram_size": 0, "min_length": 0})",
        R"({"do_sample": true, "epsilon_cutoff": 0.0, "eta_cutoff": 1.0, "bad_words_ids": null})",
        R"({"suppress_tokens": [], "mirostat": 0, "xtc_probability": 0.0, "num_beams": null})"}) {
    const GenerationDefaults defaults = parsed(text);
    EXPECT_TRUE(check_supported(defaults, defaults.sampling)) << text;
  }
}

// Values are those of GenerationConfig.from_model_config() of transformers 5.23.
TEST(GenerationConfig, AModelConfigStatesThemToo) {
  const auto config = [](const std::string& text) {
    auto defaults = parse_model_config(text, "c.json");
    EXPECT_TRUE(defaults) << (defaults ? "" : defaults.error().message);
    return defaults ? *defaults : GenerationDefaults();
  };
  EXPECT_EQ(config(R"({"model_type": "gpt2", "max_length": 20})").max_length, std::nullopt);
  const auto plain = config(R"({"do_sample": true, "temperature": 0.5, "max_length": 40})");
  EXPECT_EQ(plain.sampling.temperature, 0.5);
  EXPECT_EQ(plain.max_length, 40);
  const auto part = config(R"({"do_sample": true, "top_k": null, "repetition_penalty": 1.5,
      "text_config": {"top_k": 7, "repetition_penalty": 2.0, "num_beams": 4}})");
  EXPECT_EQ(part.sampling.top_k, 7);
  EXPECT_EQ(part.sampling.repetition_penalty, 1.5);
  ASSERT_EQ(part.unsupported.size(), 1u);
  EXPECT_EQ(part.unsupported[0].name, "num_beams");
  // The first part that has members counts alone.
  const auto decoder = config(R"({"decoder": {"repetition_penalty": 1.2}, "generator": {},
      "text_config": {"num_beams": 4}})");
  EXPECT_EQ(decoder.sampling.repetition_penalty, 1.2);
  EXPECT_TRUE(decoder.unsupported.empty());
  EXPECT_FALSE(parse_model_config(R"({"text_config": {"do_sample": 1}})", "c.json"));
  EXPECT_FALSE(parse_model_config("[]", "c.json"));
}

TEST(GenerationConfig, BadValuesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "g.json: is no JSON object"},
      {R"({"do_sample": 1})", "g.json: 'do_sample' is neither true nor false: 1"},
      {R"({"temperature": "hot"})", "g.json: 'temperature' is no number: \"hot\""},
      {R"({"do_sample": true, "top_k": -1})", "g.json: 'top_k' is no count: -1"},
      {R"({"top_k": 2.5})", "g.json: 'top_k' is no count: 2.5"},
      {R"({"do_sample": true, "temperature": -1})", "g.json: temperature must be from 0 to 100"},
      {R"({"max_new_tokens": 1e3})", "g.json: 'max_new_tokens' is no count: 1000.0"},
  };
  for (const auto& [text, message] : cases) {
    const auto defaults = parse_generation_config(text, "g.json");
    ASSERT_FALSE(defaults) << text;
    EXPECT_EQ(defaults.error().code, ErrorCode::kBadInput);
    EXPECT_EQ(defaults.error().message, message);
  }
}

}  // namespace
}  // namespace ferry::runner::generation_config_test
