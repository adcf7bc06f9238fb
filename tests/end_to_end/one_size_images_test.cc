// One program of all components whose pictures have one size. Its rows state their own places.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/end_to_end/vision_families.h"

namespace ferry::one_size_images_test {
namespace {

using namespace vision_families;

const Line kOneProgram = {"--layout", "one-program"};

// Families and the size of their pictures. A tower of squares states its own.
struct Family {
  const char* name;
  Line size;
};
const Family kFamilies[] = {{"qwen2_vl", {"--image-size", "40x32"}},
                            {"qwen2_5_vl", {"--image-size", "40x32"}},
                            {"qwen3_vl", {"--image-size", "40x32"}},
                            {"qwen3_5", {"--image-size", "32x40"}},
                            {"gemma4", {"--image-size", "32x32"}},
                            {"lfm2_vl", {"--image-size", "24x24"}},
                            {"mistral3", {"--image-size", "40x32"}},
                            {"mistral3", {"--image-size", "32x8"}},       // one row of blocks
                            {"llava_pixtral", {"--image-size", "4x32"}},  // one column
                            {"llava_pixtral", {"--image-size", "28x32"}},
                            {"gemma3", {}}};

// Returns the path of a picture of noise.
std::string picture(const TempDir& dir, int width, int height) {
  const std::string path = dir / "picture.ppm";
  std::string pixels;
  uint32_t state = 17;
  for (int i = 0; i < 3 * width * height; ++i) {
    state = state * 1664525 + 1013904223;
    pixels += static_cast<char>(state >> 24);
  }
  write_bytes(path,
              "P6 " + std::to_string(width) + " " + std::to_string(height) + " 255\n" + pixels);
  return path;
}

// The picture of the size that the programs take.
std::string picture_for(const TempDir& dir, const Family& family) {
  if (family.size.empty()) return picture(dir, 32, 32);
  const std::string& size = family.size.back();
  return picture(dir, std::stoi(size), std::stoi(size.substr(size.find('x') + 1)));
}

// Returns a copy of the checkpoint without the files of its image processor.
std::string without_processor(const TempDir& dir, const std::string& family) {
  std::filesystem::copy(source_of(family), dir / "bare");
  for (const char* file : {"preprocessor_config.json", "processor_config.json"}) {
    std::filesystem::remove(dir / "bare" + "/" + file);
  }
  return dir / "bare";
}

// The places of the rows come from inputs in one bundle, and from the rows in the other. The text
// behind the picture is long enough to show where positions go on. The bound is several times the
// rounding of f32 in logits of this size.
TEST(OneSizeImages, AnswersAreThoseOfProgramsWithInputsForPlaces) {
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.name);
    const TempDir dir;
    const std::string apart = converted(dir, source_of(family.name), kInputs);
    const std::string one = dir / "one";
    const Outcome outcome = run_ferry(Line{"convert", source_of(family.name), "-o", one} + kInputs +
                                      kOneProgram + family.size);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Line chat = {"--image", picture_for(dir, family), "--chat", "what is in it?", "--max-new",
                       "6"};
    const auto logits_of = [&](const std::string& bundle, const std::string& file) {
      const Outcome run = run_ferry(Line{"run", bundle, "--dump-logits", dir / file} + chat);
      EXPECT_EQ(run.code, 0) << run.err;
      return TensorFile(dir / file).bytes_of("logits");
    };
    const std::string want = logits_of(apart, "apart"), got = logits_of(one, "one_logits");
    ASSERT_EQ(want.size(), got.size());
    for (size_t at = 0; at + sizeof(float) <= want.size(); at += sizeof(float)) {
      float a = 0, b = 0;
      std::memcpy(&a, want.data() + at, sizeof(a));
      std::memcpy(&b, got.data() + at, sizeof(b));
      ASSERT_NEAR(a, b, 2e-5) << at / sizeof(float);
    }
  }
}

// The checkpoint's own model has inputs for places and takes pictures of any shape.
TEST(OneSizeImages, BundlesAreProvedAgainstTheirCheckpoints) {
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.name);
    const TempDir dir;
    const std::string bundle =
        converted(dir, source_of(family.name), kInputs + kOneProgram + family.size);
    verified({bundle, "--checkpoint", source_of(family.name)});
    const std::string coded = dir / "coded";
    const Outcome outcome =
        run_ferry(Line{"convert", source_of(family.name), "-o", coded} + kInputs + kOneProgram +
                  family.size + Line{"--kv-dtype", "i8"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    verified({coded, "--checkpoint", source_of(family.name)});
    const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
    EXPECT_EQ(manifest["version"], 15);
    EXPECT_EQ(manifest["components"].size(), 3u);
  }
}

TEST(OneSizeImages, PicturesOfOtherSizesAreResized) {
  const TempDir dir;
  const std::string bundle =
      converted(dir, source_of("qwen3_vl"), kInputs + kOneProgram + Line{"--image-size", "32x32"});
  const Outcome run = run_ferry({"run", bundle, "--image", fixture("media/images/noise.png"),
                                 "--chat", "a", "--max-new", "1"});
  EXPECT_EQ(run.code, 0) << run.err;
}

TEST(OneSizeImages, SizesThatTheTowerDoesNotTakeAreRefused) {
  const TempDir dir;
  const auto refused = [&](const std::string& family, const Line& options,
                           const std::string& message) {
    expect_refused(Line{"convert", source_of(family), "-o", dir / "b"} + kInputs + options, 2,
                   message);
  };
  const Line size = {"--image-size", "32x32"};
  refused("qwen3_vl", size, "--image-size: is for --layout one-program");
  refused("smolvlm", size + kOneProgram, "--image-size: is for vision towers");
  refused("qwen3_vl", kOneProgram + Line{"--image-size", "30x32"},
          "--image-size 30x32: the image processor makes 32x32 of such a picture");
  refused("qwen3_vl", kOneProgram + size + Line{"--max-patches", "64"}, "not with max-patches");
  refused("qwen3_vl", kOneProgram + size + Line{"--prefill-length", "15"},
          "--prefill-length 15: the 16 rows of an image of qwen3_vl are tokens of one call");
  const std::string bare = without_processor(dir, "qwen3_vl");
  expect_refused(Line{"convert", bare, "-o", dir / "b"} + kInputs + kOneProgram +
                     Line{"--image-size", "30x32"},
                 2, "the sides of pictures of qwen3_vl are multiples of 8 pixels");
  refused("lfm2_vl", kOneProgram + Line{"--image-size", "8x8"},
          "--image-size 8x8: the image processor makes 16x16 of such a picture");
  for (const char* text : {"32", "32x", "x32", "0x32", "32x-1", "32x8193", "32x32x"}) {
    refused("qwen3_vl", kOneProgram + Line{"--image-size", text}, "expected WIDTHxHEIGHT");
  }
}

// A caller that gives a picture as a whole puts no tokens between its rows.
TEST(OneSizeImages, EncodersGiveTheTokensBehindRowsOfAPicture) {
  const TempDir dir;
  const Line options = Line{"--inputs", "images"} + kOneProgram + Line{"--image-size", "40x32"};
  const std::string bundle = converted(dir, source_of("mistral3"), options);
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  // 4 rows of 5 blocks, and a token behind each; 20 rows and 4 tokens are one call.
  expect_refused(Line{"convert", source_of("mistral3"), "-o", dir / "short"} + options +
                     Line{"--prefill-length", "23"},
                 2, "--prefill-length 23: the 24 rows of an image of ");
  for (const Json& component : manifest["components"]) {
    if (component["role"] != "vision_encoder") continue;
    const Json& outputs = component["programs"][0]["methods"][0]["outputs"];
    EXPECT_EQ(outputs[0]["shape"], Json::parse("[1,24,48]"));
  }
  const auto marks = std::ranges::find_if(manifest["tensors"], [](const Json& tensor) {
    return tensor["name"] == "vision.row_marks.weight";
  });
  ASSERT_NE(marks, manifest["tensors"].end());
  EXPECT_EQ((*marks)["shape"], Json::parse("[2,48]"));
  // The ids of [IMG_BREAK] and [IMG_END] are 4 and 5; the table is of bf16.
  const size_t row = 48 * 2;
  const TensorFile stored(source_of("mistral3") + "/model.safetensors");
  const std::string table = stored.bytes_of("language_model.model.embed_tokens.weight");
  const std::string data = read_bytes(bundle + "/model.ptd");
  EXPECT_TRUE(data.substr((*marks)["offset"].get<size_t>(), 2 * row) ==
              table.substr(4 * row, 2 * row));
}

TEST(OneSizeImages, TokenizersWithoutTheTokensBehindRowsAreRefused) {
  const TempDir dir;
  const std::string bare = dir / "bare";
  std::filesystem::copy(source_of("mistral3"), bare);
  std::filesystem::permissions(bare + "/processor_config.json", std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  std::string processor = read_bytes(bare + "/processor_config.json");
  const std::string token = "[IMG_BREAK]";
  processor.replace(processor.find(token), token.size(), "[NONE]");
  write_bytes(bare + "/processor_config.json", processor);
  expect_refused(Line{"convert", bare, "-o", dir / "b"} + kInputs + kOneProgram +
                     Line{"--image-size", "40x32"},
                 4, "needs the token '[NONE]' behind rows of a picture");
}

// The rows of these tokens are copies, so the checkpoint is the same without them.
TEST(OneSizeImages, ABundleWithTokensBehindRowsBecomesItsCheckpoint) {
  const TempDir dir;
  const std::string bundle =
      converted(dir, source_of("mistral3"), kInputs + kOneProgram + Line{"--image-size", "40x32"});
  const auto exported = [&](const std::string& source, const std::string& name) {
    const Outcome made = run_ferry({"convert", source, "--to", "hf", "-o", dir / name});
    EXPECT_EQ(made.code, 0) << made.err;
    return read_bytes(dir / name + "/model.safetensors");
  };
  EXPECT_TRUE(exported(bundle, "back") == exported(source_of("mistral3"), "there"));
}

// The steps between positions are kept like keys and values, so that tokens can be taken back.
TEST(OneSizeImages, GuessedTokensAreTakenBack) {
  const TempDir dir;
  const std::string bundle =
      converted(dir, source_of("qwen3_vl"),
                kInputs + kOneProgram + Line{"--image-size", "32x32", "--logits", "all"});
  const Line chat = {"run",     bundle,      "--image",   fixture("media/images/noise.png"),
                     "--chat",  "a b a b a", "--max-new", "12",
                     "--greedy"};
  const Outcome plain = run_ferry(chat);
  const Outcome guessed = run_ferry(chat + Line{"--lookup", "3"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(guessed.code, 0) << guessed.err;
  EXPECT_EQ(plain.out, guessed.out);
}

// A reference with another picture is not one of this program.
TEST(OneSizeImages, ReferencesWithPicturesOfOtherShapesAreRefused) {
  const TempDir dir;
  const std::string bundle =
      converted(dir, source_of("qwen2_vl"), kInputs + kOneProgram + Line{"--image-size", "40x32"});
  expect_refused({"verify", bundle, "--reference", source_of("qwen2_vl") + "/golden.safetensors"},
                 3, "an image of 8 x 8 patches, where the vision encoder takes 8 x 10 alone");
}

}  // namespace
}  // namespace ferry::one_size_images_test
