// Signing models and checking the signatures: contents of statements, differences, refusals.
#include "signing/sign_model.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/sha256.h"
#include "tests/signing/signing_testing.h"

namespace ferry::signing::sign_model_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string sha256_of(const std::string& bytes) {
  return to_hex(sha256(std::as_bytes(std::span(bytes))));
}

json statement_in(const std::string& signature) {
  const json bundle = json::parse(read_file(signature));
  return json::parse(decode(bundle["dsseEnvelope"]["payload"].get<std::string>()));
}

class SignModel : public testing::Test {
 protected:
  SignModel() {
    dir.write("model/config.json", "{}");
    dir.write("model/weights.bin", std::string(250, 'w'));
    dir.write("model/a-b.txt", "1");
    dir.write("model/a/b.txt", "2");
    dir.write("model/empty", "");
    dir.write("model/.git/HEAD", "x");
    dir.write("model/sub/.git/HEAD", "y");
    key.private_key = private_copy(dir, "p256.pem");
    trust.public_key = key_file("p256.pub.pem");
    trust.at = kThen;
  }

  Result<SignedModel> sign(const DigestOptions& options = {}) {
    return sign_model(model, key, signature, options, pool);
  }
  void must_sign(const DigestOptions& options = {}) {
    const auto done = sign(options);
    ASSERT_TRUE(done) << done.error().message;
  }
  Result<ModelCheck> check(const CheckOptions& options = {}) {
    return check_model(model, signature, trust, options, pool);
  }
  // Returns "STATUS NAME" for every file that is not in order.
  std::vector<std::string> differences() {
    const auto checked = check();
    std::vector<std::string> found;
    if (!checked) return {checked.error().message};
    for (const CheckedFile& file : checked->files) {
      if (file.status == FileStatus::kOk || file.status == FileStatus::kIgnored) continue;
      found.push_back(std::string(name_of(file.status)) + " " + file.name);
    }
    return found;
  }
  void expect_refused(const Result<SignedModel>& result, ErrorCode code, const std::string& word) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, code);
    EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
    EXPECT_FALSE(fs::exists(signature));
  }

  using Names = std::vector<std::string>;
  TempDir dir;
  const std::string model = dir / "model";
  const std::string signature = model + "/model.sig";
  ThreadPool pool{2};
  SigningKey key;
  Trust trust;
};

TEST_F(SignModel, StatementIsWhatTheSpecificationSays) {
  const auto done = sign();
  ASSERT_TRUE(done) << done.error().message;
  const json statement = statement_in(signature);
  EXPECT_EQ(statement["_type"], "https://in-toto.io/Statement/v1");
  EXPECT_EQ(statement["predicateType"], "https://model_signing/signature/v1.0");
  const json& predicate = statement["predicate"];
  EXPECT_EQ(
      predicate["serialization"],
      json({{"method", "files"},
            {"hash_type", "sha256"},
            {"allow_symlinks", false},
            {"ignore_paths", {".git", ".gitattributes", ".github", ".gitignore", "model.sig"}}}));
  Names names;
  std::string raw;
  for (const json& resource : predicate["resources"]) {
    names.push_back(resource["name"]);
    EXPECT_EQ(resource["algorithm"], "sha256");
    const std::string bytes = read_file(model + "/" + names.back());
    EXPECT_EQ(resource["digest"], sha256_of(bytes));
    const Digest digest = sha256(std::as_bytes(std::span(bytes)));
    raw.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  // Names are ordered by their bytes, not by path components: '-' is before '/'.
  EXPECT_EQ(names,
            (Names{"a-b.txt", "a/b.txt", "config.json", "empty", "sub/.git/HEAD", "weights.bin"}));
  EXPECT_EQ(statement["subject"],
            json::array({{{"name", "model"}, {"digest", {{"sha256", sha256_of(raw)}}}}}));
  EXPECT_EQ(done->digest.root, sha256_of(raw));
  EXPECT_EQ(done->digest.files, 6u);
  EXPECT_EQ(done->digest.ignored, Names{".git"});
}

TEST_F(SignModel, SignedModelIsVerified) {
  must_sign();
  const auto checked = check();
  EXPECT_EQ(verdict_of(checked), "accept");
  EXPECT_EQ(checked->count(FileStatus::kOk), 6u);
  EXPECT_EQ(checked->count(FileStatus::kIgnored), 1u);
  EXPECT_EQ(checked->hashed_bytes, 255u);
  EXPECT_EQ(checked->signer->key, sha256_of(read_file(key_file("p256.pub.pem"))));
}

TEST_F(SignModel, PayloadDoesNotDependOnThreads) {
  must_sign();
  const json first = json::parse(read_file(signature));
  ThreadPool one(1);
  ASSERT_TRUE(sign_model(model, key, signature, {}, one));
  const json second = json::parse(read_file(signature));
  EXPECT_EQ(first["dsseEnvelope"]["payload"], second["dsseEnvelope"]["payload"]);
}

TEST_F(SignModel, EveryDifferenceIsReported) {
  must_sign();
  dir.write("model/weights.bin", std::string(249, 'w') + "x");
  dir.write("model/empty", "no longer");
  dir.write("model/extra", "");
  dir.write("model/sub/.git/new", "");
  fs::remove(model + "/a/b.txt");
  fs::remove(model + "/config.json");
  fs::create_symlink("a-b.txt", model + "/config.json");
  EXPECT_EQ(differences(), (Names{"missing a/b.txt", "changed config.json", "changed empty",
                                  "extra extra", "extra sub/.git/new", "changed weights.bin"}));
  EXPECT_TRUE(verdict_of(check()).starts_with("reject manifest"));
}

TEST_F(SignModel, UnsignedFilesAreAllowedOnlyWhenAskedFor) {
  must_sign();
  dir.write("model/extra", "");
  EXPECT_TRUE(verdict_of(check()).starts_with("reject manifest"));
  const CheckOptions lenient{true, {}};
  EXPECT_EQ(verdict_of(check(lenient)), "accept");
  EXPECT_EQ(check(lenient)->count(FileStatus::kUnsigned), 1u);
  fs::create_symlink("a-b.txt", model + "/link");
  EXPECT_TRUE(verdict_of(check(lenient)).starts_with("reject manifest"));
  fs::remove(model + "/link");
  ASSERT_EQ(::mkfifo((model + "/pipe").c_str(), 0600), 0);
  EXPECT_TRUE(verdict_of(check(lenient)).starts_with("reject manifest"));
}

TEST_F(SignModel, OnlyOneNameOfTheSignatureIsLeftOut) {
  must_sign();
  fs::create_hard_link(signature, model + "/zz.bin");
  EXPECT_TRUE(verdict_of(check()).starts_with("reject manifest"));
}

TEST_F(SignModel, IgnoredPathsAreRecordedAndReported) {
  must_sign({{"sub/", "a-b.txt"}, 0, {}});
  dir.write("model/sub/more", "x");
  dir.write("model/a-b.txt", "changed");
  const auto checked = check();
  EXPECT_EQ(verdict_of(checked), "accept");
  EXPECT_EQ(checked->count(FileStatus::kIgnored), 3u);
  EXPECT_EQ(checked->ignore_paths, (Names{".git", ".gitattributes", ".github", ".gitignore",
                                          "a-b.txt", "model.sig", "sub"}));
  dir.write("model/subway", "x");
  EXPECT_EQ(differences(), Names{"extra subway"});
}

TEST_F(SignModel, PathsToIgnoreArePlain) {
  for (const char* path : {"", ".", "/", "../x", "a/../b", "/etc", "a//b", "*.bin", "[ab]"}) {
    expect_refused(sign({{path}, 0, {}}), ErrorCode::kUsage, "cannot ignore");
  }
}

TEST_F(SignModel, ShardsAreSignedAndTraced) {
  must_sign({{}, 100, {}});
  const json statement = statement_in(signature);
  EXPECT_EQ(statement["predicate"]["serialization"]["shard_size"], 100);
  Names names;
  for (const json& resource : statement["predicate"]["resources"])
    names.push_back(resource["name"]);
  EXPECT_EQ(names, (Names{"a-b.txt:0:1", "a/b.txt:0:1", "config.json:0:2", "sub/.git/HEAD:0:1",
                          "weights.bin:0:100", "weights.bin:100:200", "weights.bin:200:250"}));
  EXPECT_EQ(verdict_of(check()), "accept");
  dir.write("model/weights.bin", std::string(249, 'w') + "x");
  const auto changed = check();
  ASSERT_TRUE(changed);
  EXPECT_EQ(changed->files.back().what, "differs from what was signed (first in bytes 200 to 250)");
  dir.write("model/weights.bin", std::string(251, 'w'));
  EXPECT_EQ(differences(), Names{"changed weights.bin"});
  dir.write("model/weights.bin", std::string(200, 'w'));
  EXPECT_EQ(differences(), Names{"changed weights.bin"});
}

TEST_F(SignModel, OneFileIsAModel) {
  const std::string file = model + "/weights.bin";
  EXPECT_EQ(default_signature_path(file), file + ".sig");
  ASSERT_TRUE(sign_model(file, key, file + ".sig", {}, pool));
  const json statement = statement_in(file + ".sig");
  EXPECT_EQ(statement["subject"][0]["name"], "weights.bin");
  ASSERT_EQ(statement["predicate"]["resources"].size(), 1u);
  EXPECT_EQ(statement["predicate"]["resources"][0]["name"], "weights.bin");
  EXPECT_EQ(verdict_of(check_model(file, file + ".sig", trust, {}, pool)), "accept");
  dir.write("model/weights.bin", "other");
  EXPECT_TRUE(
      verdict_of(check_model(file, file + ".sig", trust, {}, pool)).starts_with("reject manifest"));
}

TEST_F(SignModel, NothingButASignatureIsReplaced) {
  must_sign();
  must_sign();
  EXPECT_EQ(verdict_of(check()), "accept");
  const std::string weights = model + "/weights.bin";
  const auto refused = sign_model(model, key, weights, {}, pool);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExists);
  EXPECT_EQ(read_file(weights), std::string(250, 'w'));
  EXPECT_EQ(differences(), Names{});  // nothing was left behind
  const auto other = sign_statement("{}", key);
  ASSERT_TRUE(other);
  dir.write("other.sig", *other);
  EXPECT_FALSE(sign_model(model, key, dir / "other.sig", {}, pool));
  EXPECT_EQ(read_file(dir / "other.sig"), *other);
}

TEST_F(SignModel, LinksAndSpecialFilesAreRefused) {
  fs::create_symlink("a-b.txt", model + "/link");
  fs::create_symlink("a", model + "/sub/link");
  const auto refused = sign();
  expect_refused(refused, ErrorCode::kBadInput, "link: is a symbolic link");
  EXPECT_EQ(refused.error().details.size(), 2u);
  fs::remove(model + "/link");
  fs::remove(model + "/sub/link");
  ASSERT_EQ(::mkfifo((model + "/pipe").c_str(), 0600), 0);
  expect_refused(sign(), ErrorCode::kBadInput, "not a regular file");
  EXPECT_TRUE(sign({{"pipe"}, 0, {}}));
}

TEST_F(SignModel, NamesMustBeUtf8) {
  dir.write("model/bad\xff", "");
  expect_refused(sign(), ErrorCode::kBadInput, "not UTF-8");
}

TEST_F(SignModel, NothingIsNoModel) {
  fs::create_directory(dir / "none");
  const auto refused = sign_model(dir / "none", key, dir / "none/model.sig", {}, pool);
  expect_refused(refused, ErrorCode::kBadInput, "nothing in it to sign");
  EXPECT_FALSE(sign_model(dir / "absent", key, dir / "x.sig", {}, pool));
}

TEST_F(SignModel, ModelsOfTooManyPartsAreRefused) {
  dir.write("model/weights.bin", std::string(1'000'001, 'w'));
  expect_refused(sign({{}, 1, {}}), ErrorCode::kBadInput, "more than 1000000 files or shards");
  expect_refused(sign({{}, 5, {}}), ErrorCode::kBadInput, "which no verifier reads");
}

TEST_F(SignModel, DigestOfAModelIsTheSubjectOfItsSignature) {
  const auto digest = model_digest(model, {}, pool);
  ASSERT_TRUE(digest);
  must_sign();
  EXPECT_EQ(statement_in(signature)["subject"][0]["digest"]["sha256"], digest->root);
  const auto again = model_digest(model, {{std::string(kSignatureName)}, 0, {}}, pool);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->root, digest->root);
  EXPECT_EQ(check()->root, digest->root);
}

}  // namespace
}  // namespace ferry::signing::sign_model_test
