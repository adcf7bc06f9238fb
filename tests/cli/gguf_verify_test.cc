// GGUF files as the thing that is verified and run.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/ferry_process.h"

namespace ferry {
namespace {

using Json = nlohmann::json;

std::string gguf(const std::string& name) { return fixture("gguf/" + name + ".gguf"); }

// Files of llama.cpp's converter and the checkpoints that they were made of. Those have no
// tokenizer, so that the keys about it differ where the file has one, and no others may.
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
  bytes[at + 20 + 4] = static_cast<char>(bytes[at + 20 + 4] ^ 1);  // the value behind its type
  write_bytes(file_, bytes);
  const Outcome verified = verify();
  EXPECT_EQ(verified.code, 1) << verified.err;
  const Json result = verified.json()["result"];
  EXPECT_EQ(result["tensors"]["different"], Json::array());
  ASSERT_EQ(result["keys"]["different"].size(), 1u);
  EXPECT_NE(result["keys"]["different"][0].get<std::string>().find("llama.rope.freq_base"),
            std::string::npos);
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
}

}  // namespace
}  // namespace ferry
