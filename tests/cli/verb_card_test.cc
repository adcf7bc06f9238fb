// ferry card, and convert --sign.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_card_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFrontMatter =
    "---\n"
    "license: apache-2.0\n"
    "base_model: org/base\n"
    "datasets:\n- org/some-data\n"
    "language: [en, 'no']\n"
    "tags:\n- tiny\n"
    "---\n# A model\n";

class Card : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(source_);
    for (const auto& entry : fs::directory_iterator(fixture("llama3_tied"))) {
      fs::copy_file(entry.path(), source_ / entry.path().filename());
    }
    write_bytes(source_ / "README.md", kFrontMatter);
    write_bytes(key_, read_bytes(fixture("signing_keys/p256.pem")));
    fs::permissions(key_, fs::perms(0600));
    const Outcome made =
        run_ferry({"convert", source_.string(), "-o", bundle_, "--dtype", "f32", "--sign", key_,
                   "--reference", fixture("llama3_tied/golden.safetensors")});
    ASSERT_EQ(made.code, 0) << made.err;
  }
  Outcome card(std::vector<std::string> more) {
    std::vector<std::string> words = {"card", bundle_, "-o", out_};
    words.insert(words.end(), more.begin(), more.end());
    return run_ferry(words);
  }
  json file(const char* name) { return json::parse(read_bytes(out_ + "/" + name)); }

  TempDir dir_;
  const fs::path source_ = dir_ / "checkpoint";
  const std::string bundle_ = dir_ / "a_bundle", out_ = dir_ / "card", key_ = dir_ / "key.pem";
  const std::string public_key_ = fixture("signing_keys/p256.pub.pem");
};

TEST_F(Card, ASignedConversionIsVerified) {
  const Outcome checked = run_ferry({"check", bundle_, "--public-key", public_key_});
  EXPECT_EQ(checked.code, 0) << checked.err;
  const Outcome refused = run_ferry({"convert", source_.string(), "-o", dir_ / "other", "--sign",
                                     fixture("signing_keys/p256.pub.pem")});
  EXPECT_NE(refused.code, 0);
  EXPECT_FALSE(fs::exists(dir_ / "other"));
}

TEST_F(Card, HasWhatTheCheckpointsCardSays) {
  const Outcome made = card({"--checkpoint", source_.string(), "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const json result = made.json()["result"];
  EXPECT_EQ(result["signed"], true);
  EXPECT_EQ(result["checkpoint"]["licenses"], json({"apache-2.0"}));
  EXPECT_EQ(result["checkpoint"]["base_models"], json({"org/base"}));
  const std::string readme = read_bytes(out_ + "/README.md");
  for (const char* line : {"\nlicense: apache-2.0\n", "\n- org/some-data\n", "\n- \"no\"\n"}) {
    EXPECT_NE(readme.find(line), std::string::npos) << line << readme;
  }
}

// The bill of materials, the provenance, model.sig and the files themselves state one digest.
TEST_F(Card, DigestsAreThoseOfTheSignature) {
  ASSERT_EQ(card({"--checkpoint", source_.string()}).code, 0);
  const json bom = file("bom.cdx.json"), statement = file("provenance.json");
  EXPECT_EQ(bom["specVersion"], "1.7");
  const json signed_model = run_ferry({"sign", bundle_, "--key", key_, "--json"}).json()["result"];
  EXPECT_EQ(bom["metadata"]["component"]["hashes"][0]["content"], signed_model["sha256"]);
  EXPECT_EQ(statement["subject"][0]["digest"]["sha256"], signed_model["sha256"]);
  std::map<std::string, std::string> digests;
  for (const json& part : signed_model["resources"]) digests[part["name"]] = part["sha256"];
  size_t found = 0;
  for (const json& part : bom["metadata"]["component"]["components"]) {
    if (!digests.contains(part["name"])) continue;
    EXPECT_EQ(part["hashes"][0]["content"], digests[part["name"]]) << part["name"];
    ++found;
  }
  EXPECT_EQ(found, digests.size());
  EXPECT_EQ(statement["predicateType"], "https://slsa.dev/provenance/v1");
}

TEST_F(Card, EqualInputGivesEqualBytes) {
  ASSERT_EQ(card({}).code, 0);
  const auto first = files_in(out_);
  EXPECT_EQ(card({}).code, 6) << "the files exist";
  ASSERT_EQ(card({"--overwrite", "--threads", "1"}).code, 0);
  EXPECT_TRUE(files_in(out_) == first);
}

TEST_F(Card, FiguresAreThoseOfAnAttestationOfThisBundle) {
  const std::string parity = dir_ / "parity.json";
  const Outcome verified = run_ferry(
      {"verify", bundle_, "--checkpoint", source_.string(), "--attest", parity, "--key", key_});
  ASSERT_EQ(verified.code, 0) << verified.err;
  const Outcome made = card({"--attestation", parity, "--public-key", public_key_});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_NE(read_bytes(out_ + "/README.md").find("bit for bit"), std::string::npos);
  EXPECT_EQ(read_bytes(out_ + "/parity.json"), read_bytes(parity));
  const Outcome other = card({"--overwrite", "--attestation", parity, "--public-key",
                              fixture("signing_keys/p384.pub.pem")});
  EXPECT_EQ(other.code, 3) << other.err;
  ASSERT_EQ(run_ferry({"convert", fixture("golden/llama"), "-o", dir_ / "b"}).code, 0);
  const Outcome another = run_ferry({"card", dir_ / "b", "--attestation", parity});
  EXPECT_EQ(another.code, 3) << another.err;
}

TEST_F(Card, HostileFrontMatterIsRefusedWithItsLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"---\nlicense: a\nlicense: b\n---\n", "line 3: "},
      {"---\n- a list\n---\n", "line 2: "},
      {"---\nlicense: [a\n---\n", ":"},
      {"---\nlicense: {a: b}\n---\n", "license"},
      {"---\na: &x [1]\nb: *x\nlicense: *x\n---\n", "license"},
      {"---\ntags: " + std::string(1000, '[') + "\n---\n", "line 2: "},
      {"---\n" + std::string((1 << 20) + 10, 'a') + "\n---\n", "README.md"},
  };
  for (const auto& [text, part] : cases) {
    write_bytes(source_ / "README.md", text);
    const Outcome refused = card({"--checkpoint", source_.string()});
    EXPECT_EQ(refused.code, 3) << text.substr(0, 60) << refused.err;
    EXPECT_EQ(refused.error_lines(), 1u) << refused.err;
    EXPECT_NE(refused.err.find(part), std::string::npos) << refused.err;
    EXPECT_FALSE(fs::exists(out_));
  }
}

TEST_F(Card, ALinkOutOfTheCheckpointIsRefused) {
  write_bytes(dir_ / "private", kFrontMatter);
  fs::remove(source_ / "README.md");
  fs::create_symlink(dir_ / "private", source_ / "README.md");
  const Outcome refused = card({"--checkpoint", source_.string()});
  EXPECT_NE(refused.code, 0);
  EXPECT_EQ(refused.error_lines(), 1u) << refused.err;
  EXPECT_NE(refused.err.find("README.md"), std::string::npos) << refused.err;
  EXPECT_FALSE(fs::exists(out_));
  fs::rename(dir_ / "private", source_ / "CARD.md");
  fs::remove(source_ / "README.md");
  fs::create_symlink("CARD.md", source_ / "README.md");
  EXPECT_EQ(card({"--checkpoint", source_.string()}).code, 0);
  EXPECT_NE(read_bytes(out_ + "/README.md").find("apache-2.0"), std::string::npos);
}

TEST_F(Card, UntrustedTextStaysText) {
  write_bytes(source_ / "README.md",
              "---\nlicense: other\nlicense_name: '<script>alert(1)</script> | [x](http://y)'\n"
              "tags: ['a: b', '# c', \"d\\ne\"]\n---\n");
  ASSERT_EQ(card({"--checkpoint", source_.string()}).code, 0);
  const std::string readme = read_bytes(out_ + "/README.md");
  EXPECT_EQ(readme.find("<script>", readme.find("\n---\n")), std::string::npos) << readme;
  EXPECT_NE(readme.find("\n- \"a: b\"\n"), std::string::npos) << readme;
  EXPECT_NE(readme.find("\n- \"d\\u000Ae\"\n"), std::string::npos) << readme;
}

}  // namespace
}  // namespace ferry::verb_card_test
