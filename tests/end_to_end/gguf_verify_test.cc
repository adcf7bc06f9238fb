// `verify` and `run` with GGUF files.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/bf16_linear.h"
#include "tests/cli/ferry_process.h"

namespace ferry::gguf_verify_test {
namespace {

using Json = nlohmann::json;

std::string gguf(const std::string& name) { return fixture("gguf/" + name + ".gguf"); }

// Files of llama.cpp's converter are compared with the checkpoints that they were made of. These
// have no tokenizer, so only keys of the tokenizer may differ.
TEST(GgufVerify, ProvesEveryTensorOfLlamaCppsFiles) {
  for (const auto& [file, checkpoint] :
       {std::pair("llama3_tied_q8_0", "llama3_tied"), std::pair("llama3_tied_f16", "llama3_tied"),
        std::pair("olmo2", "golden/olmo2"), std::pair("granite", "golden/granite")}) {
    SCOPED_TRACE(file);
    const Outcome verified =
        run_ferry({"verify", gguf(file), "--checkpoint", fixture(checkpoint), "--json"});
    ASSERT_LE(verified.code, 1) << verified.err;
    const Json result = verified.json()["result"];
    EXPECT_EQ(verified.code == 0, result["keys"]["different"].empty());
    EXPECT_EQ(result["tensors"]["different"], Json::array());
    EXPECT_GT(result["tensors"]["compared"], 10);
    for (const Json& line : result["keys"]["different"]) {
      EXPECT_NE(line.get<std::string>().find("'tokenizer."), std::string::npos) << line;
    }
  }
}

class GgufVerifyOwn : public testing::Test {
 protected:
  void SetUp() override {
    const Outcome converted = run_ferry({"convert", fixture("llama3_tied"), "--to", "gguf",
                                         "--outtype", "q8_0", "--name", "tiny", "-o", file_});
    ASSERT_EQ(converted.code, 0) << converted.err;
  }
  Outcome verify() {
    return run_ferry({"verify", file_, "--checkpoint", fixture("llama3_tied"), "--json"});
  }

  TempDir dir_;
  std::string file_ = dir_ / "m.gguf";
};

TEST_F(GgufVerifyOwn, IsAtParity) {
  const Outcome verified = verify();
  ASSERT_EQ(verified.code, 0) << verified.err;
  const Json result = verified.json()["result"];
  EXPECT_EQ(result["parity"], true);
  EXPECT_EQ(result["file_type"], "q8_0");
  EXPECT_EQ(result["keys"]["different"], Json::array());
}

TEST_F(GgufVerifyOwn, NamesATensorThatDiffersInOneBit) {
  std::string bytes = read_bytes(file_);
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 1);
  write_bytes(file_, bytes);
  const Outcome verified = verify();
  EXPECT_EQ(verified.code, 1) << verified.err;
  const Json different = verified.json()["result"]["tensors"]["different"];
  ASSERT_EQ(different.size(), 1u);
  EXPECT_NE(different[0].get<std::string>().find("differs at byte"), std::string::npos);
}

TEST_F(GgufVerifyOwn, NamesAKeyThatDiffers) {
  std::string bytes = read_bytes(file_);
  const size_t at = bytes.find("llama.rope.freq_base");
  ASSERT_NE(at, std::string::npos);
  // This changes the value, which comes after the type of the key.
  bytes[at + 20 + 4] = static_cast<char>(bytes[at + 20 + 4] ^ 1);
  write_bytes(file_, bytes);
  const Outcome verified = verify();
  EXPECT_EQ(verified.code, 1) << verified.err;
  const Json result = verified.json()["result"];
  EXPECT_EQ(result["tensors"]["different"], Json::array());
  ASSERT_EQ(result["keys"]["different"].size(), 1u);
  EXPECT_NE(result["keys"]["different"][0].get<std::string>().find("llama.rope.freq_base"),
            std::string::npos);
}

// Several files are one checkpoint. Only the first of them can be named.
TEST(GgufVerify, SplitFilesAreVerifiedAsOne) {
  const TempDir dir;
  const std::string checkpoint = fixture("llama3_tied");
  const Outcome made = run_ferry({"convert", checkpoint, "--to", "gguf", "--outtype", "q8_0", "-o",
                                  dir / "parts", "--max-file-tensors", "8"});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string first = dir / "parts/model-00001-of-00003.gguf";
  const std::string second = dir / "parts/model-00002-of-00003.gguf";
  EXPECT_EQ(run_ferry({"verify", first, "--checkpoint", checkpoint}).code, 0);
  const Outcome later = run_ferry({"verify", second, "--checkpoint", checkpoint});
  EXPECT_EQ(later.code, 4);
  EXPECT_NE(later.err.find("number 2 of 3 files of a split checkpoint"), std::string::npos)
      << later.err;
  // One bit of another file than the named one is changed.
  const std::string bytes = read_bytes(second);
  std::string changed = bytes;
  changed[changed.size() - 40] = static_cast<char>(changed[changed.size() - 40] ^ 1);
  write_bytes(second, changed);
  EXPECT_EQ(run_ferry({"verify", first, "--checkpoint", checkpoint}).code, 1);
  // One part is replaced by another part.
  std::filesystem::copy_file(dir / "parts/model-00003-of-00003.gguf", second,
                             std::filesystem::copy_options::overwrite_existing);
  const Outcome wrong = run_ferry({"verify", first, "--checkpoint", checkpoint});
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.err.find("does not say that it is number 2 of 3"), std::string::npos)
      << wrong.err;
  std::filesystem::remove(second);
  const Outcome missing = run_ferry({"inspect", first});
  EXPECT_NE(missing.code, 0);
  EXPECT_NE(missing.err.find("model-00002-of-00003.gguf: no such file"), std::string::npos)
      << missing.err;
}

TEST(GgufVerify, TakesAReferenceOrACheckpoint) {
  const std::string file = gguf("llama3_tied_q8_0");
  const std::string golden = fixture("gguf/llama3_tied_q8_0.golden.safetensors");
  const Outcome verified = run_ferry({"verify", file, "--reference", golden, "--json"});
  ASSERT_EQ(verified.code, 0) << verified.err;
  EXPECT_EQ(verified.json()["result"]["path"], file);
  EXPECT_EQ(run_ferry({"verify", file}).code, 2);
  EXPECT_EQ(
      run_ferry({"verify", file, "--checkpoint", fixture("llama3_tied"), "--reference", golden})
          .code,
      2);
  // Options of --attest and --perplexity mean nothing here.
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--key", "k.pem"}, {"--text"}, {"--stride", "4"}}) {
    std::vector<std::string> line = {"verify", file, "--checkpoint", fixture("llama3_tied")};
    line.insert(line.end(), more.begin(), more.end());
    EXPECT_EQ(run_ferry(line).code, 2) << more.front();
  }
}

// GGUF files of this family do not state the length of an MLP.
// Files of Qwen 3.5 with experts state no width of MLPs, and need no config for it.
TEST(GgufRun, TakesAConfigAlthoughTheFileNeedsNone) {
  const TempDir dir;
  const std::string source = fixture("golden/qwen3_5_moe"), file = dir / "m.gguf";
  const std::string config = source + "/config.json";
  ASSERT_EQ(run_ferry({"convert", source, "--to", "gguf", "-o", file}).code, 0);
  const std::vector<std::string> run = {"run", file, "--tokens", "1,2,3", "--config", config};
  EXPECT_EQ(run_ferry(run).code, 0);
  EXPECT_EQ(run_ferry({"run", file, "--tokens", "1,2,3"}).code, 0);
  const std::string golden = source + "/golden.safetensors";
  EXPECT_EQ(run_ferry({"verify", file, "--reference", golden}).code, 0);
  EXPECT_EQ(run_ferry({"verify", file, "--reference", golden, "--config", config}).code, 0);
  // Bundles have a config of their own.
  ASSERT_EQ(run_ferry({"convert", source, "-o", dir / "b"}).code, 0);
  for (const char* verb : {"run", "verify"}) {
    std::vector<std::string> line = {verb, dir / "b", "--config", config};
    if (line[0] == "run") line.insert(line.end(), {"--tokens", "1"});
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find("--config"), std::string::npos) << outcome.err;
  }
}

TEST(GgufRun, HasNoDigestsToSkip) {
  EXPECT_EQ(run_ferry({"run", gguf("llama3_tied_q8_0"), "--tokens", "1", "--skip-digests"}).code,
            2);
}

TEST(GgufRun, GivesTheTokensOfItsBundleAndLeavesNothing) {
  const TempDir dir;
  const std::string file = gguf("llama3_tied_q8_0");
  ASSERT_EQ(run_ferry({"convert", file, "-o", dir / "b"}).code, 0);
  const std::vector<std::string> prompt = {"--tokens", "1,5,9,20",     "--max-new",
                                           "6",        "--ignore-eos", "--json"};
  std::vector<std::string> words = {"run", dir / "b"};
  words.insert(words.end(), prompt.begin(), prompt.end());
  const Outcome bundle = run_ferry(words);
  ASSERT_EQ(bundle.code, 0) << bundle.err;
  words[1] = file;
  std::filesystem::create_directory(dir / "tmp");
  const Outcome ran = run_program(FERRY_BINARY, words, {"TMPDIR=" + (dir / "tmp")});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.json()["result"]["tokens"], bundle.json()["result"]["tokens"]);
  EXPECT_TRUE(std::filesystem::is_empty(dir / "tmp"));
  // No folder for temporary files is needed.
  const Outcome nowhere = run_program(FERRY_BINARY, words, {"TMPDIR=" + (dir / "absent")});
  EXPECT_EQ(nowhere.code, 0) << nowhere.err;
  EXPECT_FALSE(std::filesystem::exists(dir / "absent"));
}

// Returns the logits after a prompt, as `run` computes them.
std::vector<float> logits_of(const TempDir& dir, const std::string& file,
                             const std::vector<std::string>& more) {
  const std::string out = dir / "logits.safetensors";
  std::filesystem::remove(out);
  std::vector<std::string> line = {
      "run", file, "--tokens", "5,6,7,8,9,3", "--max-new", "1", "--greedy", "--dump-logits", out};
  line.insert(line.end(), more.begin(), more.end());
  const Outcome ran = run_ferry(line);
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string bytes = TensorFile(out).bytes_of("logits");
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Returns the root of the mean square of the difference, divided by that of `exact`.
double distance(const std::vector<float>& values, const std::vector<float>& exact) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += std::pow(static_cast<double>(values.at(i)) - exact[i], 2);
    size += std::pow(static_cast<double>(exact[i]), 2);
  }
  return std::sqrt(difference / size);
}

// `run` multiplies the blocks of a file as they are, with activations in 8 bits. --exact computes
// with f32, as `verify` does.
TEST(GgufRun, MultipliesBlocksAsTheyAre) {
  const TempDir dir;
  for (const char* type : {"q4_0", "q5_1", "q8_0", "q2_k", "q3_k_m", "q4_k_m", "q6_k", "iq4_xs"}) {
    SCOPED_TRACE(type);
    const std::string file = dir / (std::string(type) + ".gguf");
    const Outcome made = run_ferry({"convert", fixture("trained"), "--to", "gguf",
                                    "--tokenizer-pre", "gpt-2", "--outtype", type, "-o", file});
    ASSERT_EQ(made.code, 0) << made.err;
    const double far = distance(logits_of(dir, file, {}), logits_of(dir, file, {"--exact"}));
    EXPECT_GT(far, 0) << "the blocks were not used";
    EXPECT_LT(far, 0.02);  // activations of 8 bits cost this sample up to 0.7 %
  }
}

// The rows of some projections are no whole blocks. Those have floats.
TEST(GgufRun, MultipliesBlocksOfExperts) {
  const TempDir dir;
  for (const auto& [name, type] :
       {std::pair("gpt_oss", "q8_0"), {"glm4_moe", "q8_0"}, {"gpt_oss_mxfp4", "auto"}}) {
    SCOPED_TRACE(name);
    const std::string file = dir / (std::string(name) + ".gguf");
    const Outcome made = run_ferry({"convert", fixture(std::string("golden/") + name), "--to",
                                    "gguf", "--outtype", type, "-o", file});
    ASSERT_EQ(made.code, 0) << made.err;
    const double far = distance(logits_of(dir, file, {}), logits_of(dir, file, {"--exact"}));
    EXPECT_GT(far, 0);
    EXPECT_LT(far, 0.05);
  }
}

// A processor without products of bf16 computes both in f32.
TEST(BundleRun, ExactComputesProductsOfBf16InF32) {
  const TempDir dir;
  ASSERT_EQ(run_ferry({"convert", fixture("golden/qwen3_moe_bf16"), "-o", dir / "b"}).code, 0);
  const double far =
      distance(logits_of(dir, dir / "b", {}), logits_of(dir, dir / "b", {"--exact"}));
  if (kernels::bf16_instructions() == kernels::Bf16Instructions::kNone) {
    EXPECT_EQ(far, 0);
  }
  EXPECT_LT(far, 0.02);
}

}  // namespace
}  // namespace ferry::gguf_verify_test
