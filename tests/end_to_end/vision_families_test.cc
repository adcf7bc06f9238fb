// Vision-language families whose towers are built on demand: pixels, prompts, every stage and the
// answer are those of transformers (tests/conformance/make_vision_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "tests/end_to_end/vision_families.h"

namespace ferry::vision_families_test {
namespace {

using namespace vision_families;

class VisionFamily : public testing::TestWithParam<const char*> {};

// The processor's inputs, byte for byte.
TEST_P(VisionFamily, PreprocessGivesTheInputsOfTheReference) {
  const TensorFile golden(vision_golden(GetParam()));
  const Json cases = cases_of(GetParam());
  for (const auto& [name, one] : cases.items()) {
    SCOPED_TRACE(name);
    const TempDir dir;
    Line line = {"preprocess", "--checkpoint", source_of(GetParam()), "-o", dir / "i.safetensors"};
    for (const std::string& word : prompt_of(dir, one)) {
      if (word != "--image") line.push_back(word);
    }
    const Outcome outcome = run_ferry(line);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const TensorFile made(dir / "i.safetensors");
    EXPECT_GE(made.header.size(), 2u);
    for (const auto& [tensor, entry] : made.header.items()) {
      const std::string wanted = name + "." + tensor;
      ASSERT_TRUE(golden.header.contains(wanted)) << wanted;
      EXPECT_EQ(entry["shape"], golden.header[wanted]["shape"]) << wanted;
      EXPECT_TRUE(made.bytes_of(tensor) == golden.bytes_of(wanted)) << wanted;
    }
  }
}

struct Style {
  const char* name;
  Line convert, run;
};

const Style kStyles[] = {
    {"stateful", {"--prefill-length", "64"}, {}},
    {"stateful_cut", {"--shards", "2", "--prefill-length", "16"}, {}},
};
const Style kStaticStyles[] = {
    {"static_hybrid",
     {"--program", "static", "--context-length", "160", "--prefill-length", "24"},
     {}},
    {"static_kv",
     {"--program", "static", "--context-length", "160", "--prefill-length", "24", "--shards", "3",
      "--shards-in-one-file"},
     {"--mode", "kv"}},
    {"static_lookahead",
     {"--program", "static", "--context-length", "160", "--prefill-length", "32", "--decode-length",
      "8", "--attention", "sha"},
     {"--mode", "lookahead"}},
};

// Layers of gemma3n and gemma4 pass on more than one tensor. Images of gemma4 have up to 70 rows,
// in one call.
Line options_of(const std::string& family, const Style& style) {
  Line line = style.convert;
  if (family != "gemma3n" && family != "gemma4") return line;
  std::erase(line, "--shards-in-one-file");
  if (family == "gemma3n") return line;
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    if (line[i] == "--context-length") line[i + 1] = "256";
    if (line[i] == "--prefill-length") line[i + 1] = "71";
  }
  return line;
}

class VisionFamilyStyle : public testing::TestWithParam<std::tuple<const char*, Style>> {};

// Tower, connector, merged embeddings, layers, caches, logits and tokens.
TEST_P(VisionFamilyStyle, IsAtParityStageByStageAndAnswersAlike) {
  const auto& [family, style] = GetParam();
  const TempDir dir;
  if (family == std::string("lfm2_vl") && style.name == std::string("static_lookahead")) {
    expect_refused(Line{"convert", source_of(family), "-o", dir / "b"} + style.convert, 2,
                   "recurrent states of lfm2_vl cannot be rolled back");
    return;
  }
  const std::string bundle = convert(dir, family, kInputs + options_of(family, style));
  EXPECT_EQ(run_ferry({"check", bundle}).code, 0);
  Line line = {bundle, "--reference", vision_golden(family)};
  const Json cases = cases_of(family);
  for (const auto& [name, one] : cases.items()) {
    for (const std::string image : one["images"]) {
      line = line + Line{"--image", name + "=" + fixture("media/images/" + image)};
    }
  }
  const Json report = verified(line);
  for (const Json& one : report["cases"]) EXPECT_EQ(one.value("skipped", ""), "");
  EXPECT_LT(report["metrics"]["max_abs"], 1e-4);
  EXPECT_EQ(report["metrics"]["greedy_match"], 16);
  for (const std::string stage : {"vision_hidden_states.1", "vision_last_hidden_state",
                                  "image_features", "hidden_states.0", "hidden_states.3"}) {
    // The features of these are those of layers, without the norm behind the last one.
    constexpr std::string_view kOfLayers[] = {"granite_vision", "llava", "llava_next",
                                              "llava_onevision"};
    const bool earlier = std::ranges::find(kOfLayers, family) != std::end(kOfLayers);
    bool found = earlier && stage == "vision_last_hidden_state";
    for (const Json& layer : report["layers"]) {
      if (layer["name"] != stage) continue;
      found = true;
      EXPECT_GT(layer["sqnr_db"], 100.0) << stage;
    }
    EXPECT_TRUE(found) << stage;
  }
  const TensorFile golden(vision_golden(family));
  for (const auto& [name, one] : cases.items()) {
    SCOPED_TRACE(name);
    const Outcome outcome =
        run_ferry(Line{"--json", "run", bundle, "--max-new", "8", "--ignore-eos", "--greedy"} +
                  prompt_of(dir, one) + style.run);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json document = outcome.json()["result"];
    EXPECT_EQ(document["prompt_tokens"], Json(ids_of(golden, name + ".input_ids")));
    EXPECT_EQ(document["tokens"], Json(ids_of(golden, name + ".greedy_ids")));
  }
}

// All tokens of a prompt of PaliGemma are in one call.
const Style kWholeStyles[] = {
    {"stateful", {"--prefill-length", "160"}, {}},
    {"static_hybrid",
     {"--program", "static", "--context-length", "256", "--prefill-length", "128"},
     {}},
    {"static_kv",
     {"--program", "static", "--context-length", "256", "--prefill-length", "128", "--shards", "2"},
     {"--mode", "kv"}},
};

const char* const kFamilies[] = {
    "gemma3",          "gemma3n",        "gemma4",        "lfm2_vl",      "llava",     "llava_next",
    "llava_onevision", "granite_vision", "llava_pixtral", "mistral3",     "paligemma", "paligemma2",
    "qwen2_5_vl",      "qwen2_vl",       "qwen3_vl",      "qwen3_vl_moe", "qwen3_5"};
const char* const kCutFamilies[] = {
    "gemma3",     "gemma3n",         "gemma4",         "lfm2_vl",       "llava",
    "llava_next", "llava_onevision", "granite_vision", "llava_pixtral", "mistral3",
    "qwen2_5_vl", "qwen2_vl",        "qwen3_vl",       "qwen3_vl_moe",  "qwen3_5"};
const char* const kWholeFamilies[] = {"paligemma", "paligemma2"};
const char* const kStaticFamilies[] = {"gemma3", "gemma3n",    "gemma4",          "lfm2_vl",
                                       "llava",  "llava_next", "llava_onevision", "granite_vision"};
INSTANTIATE_TEST_SUITE_P(Families, VisionFamily, testing::ValuesIn(kFamilies),
                         [](const auto& test) { return std::string(test.param); });
const auto name_of_style = [](const auto& test) {
  return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param).name;
};
INSTANTIATE_TEST_SUITE_P(Families, VisionFamilyStyle,
                         testing::Combine(testing::ValuesIn(kCutFamilies),
                                          testing::ValuesIn(kStyles)),
                         name_of_style);
INSTANTIATE_TEST_SUITE_P(WholeFamilies, VisionFamilyStyle,
                         testing::Combine(testing::ValuesIn(kWholeFamilies),
                                          testing::ValuesIn(kWholeStyles)),
                         name_of_style);
INSTANTIATE_TEST_SUITE_P(StaticFamilies, VisionFamilyStyle,
                         testing::Combine(testing::ValuesIn(kStaticFamilies),
                                          testing::ValuesIn(kStaticStyles)),
                         name_of_style);

// Expects that no comparison leaves out what the tower computes of the pixels. Some towers do not
// compute the states behind their features.
void expect_towers_compared(const Json& report) {
  const Json flat = report.flatten();
  for (const auto& [place, value] : flat.items()) {
    if (place.find("/not_compared/") == std::string::npos) continue;
    const std::string name = value;
    EXPECT_TRUE(name != "vision_hidden_states.1" && name != "image_features") << place;
  }
}

TEST_P(VisionFamily, TheCheckpointIsProvedWithAndWithoutAReference) {
  const TempDir dir;
  const std::string bundle =
      convert(dir, GetParam(), {"--inputs", "images", "--dtype", "bf16", "--shards", "2"});
  const Json report = verified(
      {bundle, "--checkpoint", source_of(GetParam()), "--reference", vision_golden(GetParam())});
  EXPECT_TRUE(report["does_not_prove"].empty()) << report["does_not_prove"];
  expect_towers_compared(report);
  const Json alone = verified({bundle, "--checkpoint", source_of(GetParam())});
  EXPECT_EQ(alone["does_not_prove"].size(), 1u) << alone["does_not_prove"];
}

TEST_P(VisionFamily, TowersInEightBitsAreProved) {
  const TempDir dir;
  const std::string bundle =
      convert(dir, GetParam(), {"--inputs", "images", "--quantize", "8da8w"});
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  EXPECT_EQ(manifest["components"][0]["role"], "vision_encoder");
  EXPECT_NE(manifest["components"][0]["quantization"], "");
  verified({bundle, "--checkpoint", source_of(GetParam())});
}

// A bundle with images becomes its checkpoint again, with equal weights.
TEST_P(VisionFamily, ABundleBecomesItsCheckpointAgain) {
  const TempDir dir;
  const std::string bundle = convert(dir, GetParam(), {"--inputs", "images"});
  ASSERT_EQ(run_ferry({"convert", bundle, "-o", dir / "hf", "--to", "hf"}).code, 0);
  ASSERT_EQ(run_ferry({"convert", dir / "hf", "-o", dir / "again", "--inputs", "images"}).code, 0);
  for (const char* name :
       {"vision_encoder.ptd", "token_embedding.ptd", "decoder-00001-of-00001.ptd"}) {
    EXPECT_TRUE(read_bytes(bundle + "/" + name) == read_bytes(dir / ("again/" + std::string(name))))
        << name;
  }
}

}  // namespace
}  // namespace ferry::vision_families_test
