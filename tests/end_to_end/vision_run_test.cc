// ferry run --image: image files and a prompt give the tokens of the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "tests/cli/checkpoints.h"

namespace ferry::vision_run_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

std::string image(const std::string& name) {
  const std::string small = fixture("media/images/" + name);
  return std::filesystem::exists(small) ? small : fixture("vision/prompts/" + name);
}

template <class T>
std::vector<T> values_of(const TensorFile& file, const std::string& tensor) {
  const std::string bytes = file.bytes_of(tensor);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

struct Style {
  const char* name;
  Line convert, run;
};

const Style kStyles[] = {
    {"stateful", {"--shards", "2"}, {}},
    {"static_hybrid",
     {"--program", "static", "--context-length", "256", "--prefill-length", "32"},
     {}},
    {"static_kv",
     {"--program", "static", "--context-length", "256", "--prefill-length", "1"},
     {"--mode", "kv"}},
    {"static_lookahead",
     {"--program", "static", "--context-length", "256", "--prefill-length", "32", "--decode-length",
      "8"},
     {"--mode", "lookahead"}},
};

class VisionRunStyle : public testing::TestWithParam<Style> {};

// The reference computed ids, logits and tokens from the same files.
TEST_P(VisionRunStyle, GivesTheTokensOfTheReference) {
  const Json cases = Json::parse(read_bytes(fixture("vision/prompts/cases.json")));
  const TensorFile expected(fixture("vision/prompts/greedy.safetensors"));
  for (const std::string processor : {"smolvlm", "internvl"}) {
    const TempDir dir;
    const std::string name = processor == "smolvlm" ? "smolvlm" : "internvl3_hf";
    const std::string source = vision_checkpoint(dir, name);
    ASSERT_EQ(
        run_ferry(Line{"convert", source, "-o", dir / "b", "--dtype", "f32"} + GetParam().convert)
            .code,
        0);
    for (const Json& one : cases[processor]) {
      const std::string prefix = processor + "_" + one["case"].get<std::string>() + ".";
      SCOPED_TRACE(prefix);
      Line line = {"--json",    "run", dir / "b",      "--prompt",      one["rendered"],
                   "--max-new", "16",  "--ignore-eos", "--dump-logits", dir / (prefix + "logits")};
      for (const std::string file : one["images"]) line = line + Line{"--image", image(file)};
      const Outcome outcome = run_ferry(line + GetParam().run);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json document = outcome.json()["result"];
      EXPECT_EQ(document["prompt_tokens"],
                Json(values_of<int64_t>(expected, prefix + "input_ids")));
      EXPECT_EQ(document["tokens"], Json(values_of<int64_t>(expected, prefix + "greedy_ids")));
      const auto logits = values_of<float>(TensorFile(dir / (prefix + "logits")), "logits");
      const auto golden = values_of<float>(expected, prefix + "greedy_logits");
      ASSERT_EQ(logits.size(), golden.size());
      for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], golden[i], 1e-4) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, VisionRunStyle, testing::ValuesIn(kStyles),
                         [](const auto& test) { return test.param.name; });

class VisionRun : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    convert("smolvlm", vision_checkpoint(*dir_, "smolvlm", "smolvlm_source"));
    convert("internvl", vision_checkpoint(*dir_, "internvl3_opengvlab", "internvl_source"));
  }
  static void TearDownTestSuite() { delete dir_; }

  static std::string convert(const std::string& name, const std::string& source) {
    const Outcome outcome = run_ferry({"convert", source, "-o", *dir_ / name, "--dtype", "f32"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return *dir_ / name;
  }
  static Json run(const Line& args) {
    const Outcome outcome = run_ferry(Line{"--json", "run"} + args + Line{"--ignore-eos"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.json()["result"] : Json{{"tokens", Json::array()}};
  }
  static void expect_refused(const Line& args, int code, const std::string& message) {
    const Outcome outcome = run_ferry(Line{"run"} + args);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }

  static TempDir* dir_;
};

TempDir* VisionRun::dir_ = nullptr;

// --chat gives the chat that preprocess and the reference make of it.
TEST_F(VisionRun, AChatWithAnImageIsThatOfTheReference) {
  const TensorFile expected(fixture("vision/prompts/greedy.safetensors"));
  const Json document = run({*dir_ / "smolvlm", "--image", image("photo_444.jpg"), "--chat",
                             "Is there text?", "--max-new", "16"});
  EXPECT_EQ(document["prompt_tokens"],
            Json(values_of<int64_t>(expected, "smolvlm_multi.input_ids")));
  EXPECT_EQ(document["tokens"], Json(values_of<int64_t>(expected, "smolvlm_multi.greedy_ids")));
  EXPECT_EQ(document["stats"]["evaluated_tokens"], 121);
}

// In OpenGVLab's layout only the processor files state the placeholder.
TEST_F(VisionRun, BothLayoutsOfInternVlAnswerAlike) {
  const TensorFile expected(fixture("vision/prompts/greedy.safetensors"));
  const Json cases = Json::parse(read_bytes(fixture("vision/prompts/cases.json")));
  Line line = {*dir_ / "internvl", "--prompt", cases["internvl"][1]["rendered"], "--max-new", "16"};
  for (const std::string file : cases["internvl"][1]["images"]) {
    line = line + Line{"--image", image(file)};
  }
  EXPECT_EQ(run(line)["tokens"], Json(values_of<int64_t>(expected, "internvl_two.greedy_ids")));
}

TEST_F(VisionRun, TheOrderOfImagesAndTheirPlaceCount) {
  const std::string a = image("alpha.png"), b = image("palette.png");
  const auto answer = [&](const Line& images, const std::string& text) {
    Line line = {*dir_ / "internvl", "--chat", text, "--max-new", "8"};
    for (const std::string& one : images) line = line + Line{"--image", one};
    return run(line);
  };
  const std::string mark = "<IMG_CONTEXT>";
  const Json first = answer({a, b}, mark + " and " + mark);
  EXPECT_NE(first["tokens"], answer({b, a}, mark + " and " + mark)["tokens"]);
  // Without placeholders the images come before the text.
  const Json before = answer({a}, "Why?");
  EXPECT_NE(before["prompt_tokens"], answer({a}, "Why?" + mark)["prompt_tokens"]);
}

TEST_F(VisionRun, PromptsWithoutImagesAreAnsweredToo) {
  EXPECT_EQ(run({*dir_ / "smolvlm", "--chat", "Why?", "--max-new", "3"})["tokens"].size(), 3u);
  EXPECT_EQ(run({*dir_ / "smolvlm", "--prompt", "Why?", "--max-new", "3"})["tokens"].size(), 3u);
  EXPECT_EQ(run({*dir_ / "smolvlm", "--tokens", "5,6", "--max-new", "3"})["tokens"].size(), 3u);
}

TEST_F(VisionRun, PlaceholdersAndImagesMustBeEqualInNumber) {
  const std::string bundle = *dir_ / "smolvlm", square = image("square.png");
  expect_refused({bundle, "--image", square, "--chat", "<image> and <image>"}, 3,
                 "--chat: 2 placeholders '<image>' in the prompt for 1 image");
  expect_refused({bundle, "--image", square, "--image", square, "--chat", "one <image>"}, 3,
                 "--chat: 1 placeholder '<image>' in the prompt for 2 images");
  expect_refused({bundle, "--prompt", "one <image>"}, 3,
                 "--prompt: 1 placeholder '<image>' in the prompt for 0 images");
  expect_refused({*dir_ / "internvl", "--chat", "one <IMG_CONTEXT>"}, 3,
                 "--chat: 1 placeholder '<IMG_CONTEXT>' in the prompt for 0 images");
}

TEST_F(VisionRun, ImagesThatCannotBeReadAreNamed) {
  const std::string damaged = fixture("media/damaged/"), bundle = *dir_ / "smolvlm";
  const auto refused = [&](const std::string& path, int code, const std::string& message) {
    // The bad image is the second of two, so that the error must name it.
    expect_refused({bundle, "--image", image("tiny.png"), "--image", path, "--chat", "a"}, code,
                   path + ": " + message);
  };
  refused(damaged + "truncated.jpg", 3, "damaged JPEG");
  refused(damaged + "huge_60000.png", 3, "the image is too large: 60000 x 60000 pixels");
  refused(damaged + "bad_crc.png", 3, "");
  refused(damaged + "empty.jpg", 3, "the file is empty");
  refused(fixture("media/unsupported/text.txt"), 4, "not a JPEG, PNG, WebP, GIF, BMP");
  refused(*dir_ / "none.png", 5, "cannot open");
}

TEST_F(VisionRun, OptionsThatDoNotFitAreRefused) {
  const std::string bundle = *dir_ / "smolvlm", square = image("square.png");
  expect_refused({bundle, "--image", square, "--tokens", "1,2"}, 2,
                 "--image needs a prompt of text");
  expect_refused(
      {bundle, "--image", square}, 2,
      "one of --prompt, --prompt-file, --prompts, --chat, --messages, --tokens and --interactive");
  expect_refused({bundle, "--image", square, "--chat", "\xff"}, 2, "--chat: not UTF-8");
  const std::string text = convert("text", fixture("golden/qwen3"));
  for (const char* option : {"--prompt", "--chat"}) {
    expect_refused({text, "--image", square, option, "a"}, 2,
                   text + ": this bundle takes no images: it has no component vision_encoder");
  }
}

TEST_F(VisionRun, APromptThatDoesNotFitTheContextIsRefused) {
  const std::string source = *dir_ / "smolvlm_source";
  const std::string bundle = *dir_ / "short";
  ASSERT_EQ(run_ferry({"convert", source, "-o", bundle, "--context-length", "64"}).code, 0);
  expect_refused({bundle, "--image", image("photo_444.jpg"), "--chat", "Is there text?"}, 2,
                 "context of 64");
}

// A checkpoint without these files can be converted. The error comes when the files are needed.
TEST_F(VisionRun, ProcessorFilesThatAreMissingAreNamed) {
  const Line images = {"--image", image("square.png"), "--chat", "a"};
  const auto without = [&](const std::string& name, const std::string& file) {
    const std::string source = vision_checkpoint(*dir_, "smolvlm", name + "_source");
    std::filesystem::remove(source + "/" + file);
    return convert(name, source);
  };
  const std::string pixels = without("no_pixels", "preprocessor_config.json");
  expect_refused(Line{pixels} + images, 5,
                 pixels + "/preprocessor_config.json: no such file; it says how images become");
  EXPECT_EQ(run({pixels, "--chat", "a", "--max-new", "2"})["tokens"].size(), 2u);
  const std::string words = without("no_words", "tokenizer.json");
  expect_refused(Line{words} + images, 5, "tokenizer.json");
  EXPECT_EQ(run({words, "--tokens", "1,2", "--max-new", "2"})["tokens"].size(), 2u);
  const std::string lengths = without("no_lengths", "processor_config.json");
  expect_refused(Line{lengths} + images, 3,
                 "the processor has 169 tokens for a tile, the vision encoder 16");
}

TEST_F(VisionRun, AProcessorOfAnotherModelIsRefused) {
  const Line images = {"--image", image("square.png"), "--chat", "a"};
  const std::string source = vision_checkpoint(*dir_, "smolvlm", "other_source");
  Json preprocessor = Json::parse(read_bytes(source + "/preprocessor_config.json"));
  preprocessor["max_image_size"]["longest_edge"] = 48;
  write_bytes(source + "/preprocessor_config.json", preprocessor.dump());
  expect_refused(Line{convert("tiles", source)} + images, 3,
                 "makes tiles of 48 pixels a side, the vision encoder takes 32");
  const std::string wrong = vision_checkpoint(*dir_, "smolvlm", "wrong_source");
  Json config = Json::parse(read_bytes(wrong + "/config.json"));
  config["image_token_id"] = 357;
  write_bytes(wrong + "/config.json", config.dump());
  expect_refused(Line{convert("token", wrong)} + images, 3,
                 "the processor's placeholder is token 358, the config's image_token_id is 357");
}

// Thresholds apply to the files of each component.
TEST_F(VisionRun, ThresholdsCountTheFilesOfEachComponent) {
  const std::string bundle = *dir_ / "smolvlm";
  const auto size = [&](const std::string& name) {
    return std::filesystem::file_size(bundle + "/" + name + ".pte") +
           std::filesystem::file_size(bundle + "/" + name + ".ptd");
  };
  Json most = {{"vision_encoder", size("vision_encoder")},
               {"token_embedding", size("token_embedding")},
               {"text_decoder", size("decoder-00001-of-00001")}};
  const std::string path = *dir_ / "thresholds.json";
  const Line line = {"run",          bundle, "--image",   image("square.png"),
                     "--chat",       "a",    "--max-new", "2",
                     "--thresholds", path,   "--quiet"};
  write_bytes(path, Json{{"max_bytes", most}}.dump());
  EXPECT_EQ(run_ferry(line).code, 0);
  for (const auto& [role, bytes] : most.items()) {
    Json less = most;
    less[role] = bytes.get<size_t>() - 1;
    write_bytes(path, Json{{"max_bytes", less}}.dump());
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.err, "ferry: missed: max_bytes." + role + ": measured " +
                               std::to_string(bytes.get<size_t>()) + " bytes, threshold at most " +
                               less[role].dump() + " bytes\n");
  }
}

}  // namespace
}  // namespace ferry::vision_run_test
