// Attestations of parity, compared with OpenSSL and with digests that the test computes.
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "core/sha256.h"
#include "tests/cli/ferry_process.h"

namespace ferry::attest_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

constexpr const char* kModel = "llama3_tied";

std::string base64(const std::string& bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), int(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}
std::string from_base64(const std::string& text) {
  std::string bytes(text.size(), '\0');
  const int size =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                      reinterpret_cast<const unsigned char*>(text.data()), int(text.size()));
  EXPECT_GE(size, 0);
  bytes.resize(static_cast<size_t>(size) - size_t(std::count(text.begin(), text.end(), '=')));
  return bytes;
}

std::string pae(const std::string& payload) {
  return "DSSEv1 28 application/vnd.in-toto+json " + std::to_string(payload.size()) + " " + payload;
}

std::string hex(const std::string& bytes) {
  return to_hex(sha256(std::as_bytes(std::span(bytes))));
}

// A fresh key, in files.
struct Signer {
  Key key{nullptr, &EVP_PKEY_free};
  std::string private_key, public_key;
  const EVP_MD* hash = EVP_sha256();

  Signer(const TempDir& dir, const std::string& name, const char* curve = "P-256") {
    key.reset(EVP_EC_gen(curve));
    private_key = dir / (name + ".pem");
    public_key = dir / (name + ".pub");
    if (std::string(curve) == "P-384") hash = EVP_sha384();
    std::FILE* file = std::fopen(private_key.c_str(), "w");
    PEM_write_PKCS8PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    std::filesystem::permissions(private_key, std::filesystem::perms::owner_read);
    file = std::fopen(public_key.c_str(), "w");
    PEM_write_PUBKEY(file, key.get());
    std::fclose(file);
  }

  bool verifies(const std::string& payload, const std::string& signature) const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                          &EVP_MD_CTX_free);
    const std::string text = pae(payload);
    return EVP_DigestVerifyInit(context.get(), nullptr, hash, nullptr, key.get()) == 1 &&
           EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                            signature.size(), reinterpret_cast<const unsigned char*>(text.data()),
                            text.size()) == 1;
  }
  // Returns `envelope` with another payload, signed again.
  Json resign(Json envelope, const std::string& payload) const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                          &EVP_MD_CTX_free);
    const std::string text = pae(payload);
    std::string signature(256, '\0');
    size_t size = signature.size();
    EVP_DigestSignInit(context.get(), nullptr, hash, nullptr, key.get());
    EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                   reinterpret_cast<const unsigned char*>(text.data()), text.size());
    signature.resize(size);
    envelope["dsseEnvelope"]["payload"] = base64(payload);
    envelope["dsseEnvelope"]["signatures"][0]["sig"] = base64(signature);
    return envelope;
  }
};

std::string convert(const TempDir& dir, const std::string& source, const Line& options = {},
                    const std::string& name = "b") {
  Line line = {"convert", source, "-o", dir / name};
  line.insert(line.end(), options.begin(), options.end());
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return dir / name;
}

std::string golden() { return fixture(std::string(kModel) + "/golden.safetensors"); }

Outcome attest(const std::string& bundle, const std::string& file, const Signer& signer,
               const Line& options = {}) {
  Line line = {"verify", bundle,     "--checkpoint", fixture(kModel), "--reference",
               golden(), "--attest", file,           "--key",         signer.private_key};
  line.insert(line.end(), options.begin(), options.end());
  return run_ferry(line);
}

Outcome check(const std::string& bundle, const std::string& file, const Signer& signer) {
  return run_ferry({"check", bundle, "--attestation", file, "--public-key", signer.public_key});
}

TEST(Attest, SaysWhatWasProvedOfWhichFiles) {
  const TempDir dir;
  for (const char* curve : {"P-256", "P-384"}) {
    SCOPED_TRACE(curve);
    const Signer signer(dir, curve, curve);
    const std::string bundle = convert(dir, fixture(kModel), {"--overwrite"});
    const std::string file = dir / (std::string(curve) + ".json");
    const Outcome outcome = attest(bundle, file, signer);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json envelope = Json::parse(read_bytes(file))["dsseEnvelope"];
    const std::string payload = from_base64(envelope["payload"]);
    EXPECT_TRUE(signer.verifies(payload, from_base64(envelope["signatures"][0]["sig"])));
    const Json statement = Json::parse(payload);
    EXPECT_EQ(statement["_type"], "https://in-toto.io/Statement/v1");
    EXPECT_EQ(statement["predicateType"], "https://ferry/parity/v1");
    const Json& predicate = statement["predicate"];
    EXPECT_EQ(predicate["verdict"], "parity");
    // Resources are in the order of their names, which std::map has too.
    std::string digests;
    Json resources = Json::array();
    for (const auto& [name, bytes] : files_in(bundle)) {
      const Digest digest = sha256(std::as_bytes(std::span(bytes)));
      digests.append(reinterpret_cast<const char*>(digest.data()), digest.size());
      resources.push_back({{"name", name}, {"digest", to_hex(digest)}, {"algorithm", "sha256"}});
    }
    EXPECT_EQ(predicate["resources"], resources);
    EXPECT_EQ(statement["subject"],
              Json::array({{{"name", "b"}, {"digest", {{"sha256", hex(digests)}}}}}));
    const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
    const Json& with = predicate["compared_with"];
    EXPECT_EQ(with["checkpoint"]["files"], manifest["source"]["files"]);
    EXPECT_EQ(with["checkpoint"]["weights"], manifest["tensors"].size());
    EXPECT_EQ(with["reference"]["sha256"], hex(read_bytes(golden())));
    EXPECT_EQ(predicate["comparisons"].back()["id"], "outputs");
    EXPECT_EQ(predicate["comparisons"].back()["bounds"]["source"], "noise");
    EXPECT_LT(predicate["comparisons"].back()["metrics"]["max_abs"], 1e-4);
  }
}

TEST(Attest, WithoutParityThereIsNone) {
  const TempDir dir;
  const Signer signer(dir, "key");
  const std::string source = changed_checkpoint(dir, kModel, [](TensorFile& file) {
    const std::string name = "model.layers.0.mlp.down_proj.weight";
    file.set_bytes(name, std::string(file.bytes_of(name).size(), '\0'));
  });
  const std::string bundle = convert(dir, source);
  EXPECT_EQ(attest(bundle, dir / "a.json", signer).code, 1);
  EXPECT_FALSE(std::filesystem::exists(dir / "a.json"));
}

TEST(Attest, OptionsThatMakeNoSenseAreRefusedBeforeTheWork) {
  const TempDir dir;
  const Signer signer(dir, "key");
  const std::string bundle = convert(dir, fixture(kModel));
  write_bytes(dir / "mine.json", "{}");
  write_bytes(dir / "ids.txt", "1,2,3\n");
  const Line base = {"verify", bundle, "--reference", golden()};
  const auto code = [&](Line more) {
    more.insert(more.begin(), base.begin(), base.end());
    return run_ferry(more).code;
  };
  EXPECT_EQ(code({"--key", signer.private_key}), 2);
  EXPECT_EQ(code({"--attest", dir / "a.json"}), 2);
  EXPECT_EQ(code({"--attest", dir / "mine.json", "--key", signer.private_key}), 6);
  EXPECT_EQ(code({"--attest", bundle + "/a.json", "--key", signer.private_key}), 2);
  EXPECT_EQ(code({"--attest", dir / "a.json", "--key", dir / "ids.txt"}), 3);
  EXPECT_EQ(run_ferry({"verify", bundle, "--perplexity", dir / "ids.txt", "--attest",
                       dir / "a.json", "--key", signer.private_key})
                .code,
            2);
  EXPECT_EQ(read_bytes(dir / "mine.json"), "{}");
  EXPECT_FALSE(std::filesystem::exists(dir / "a.json"));
}

TEST(Attest, IsReplacedByAnother) {
  const TempDir dir;
  const Signer first(dir, "first"), second(dir, "second");
  const std::string bundle = convert(dir, fixture(kModel));
  const Line base = {"verify",   bundle,         "--reference", golden(),
                     "--attest", dir / "a.json", "--key"};
  Line line = base;
  line.push_back(first.private_key);
  ASSERT_EQ(run_ferry(line).code, 0);
  line.back() = second.private_key;
  EXPECT_EQ(run_ferry(line).code, 0);
  EXPECT_EQ(check(bundle, dir / "a.json", second).code, 0);
  EXPECT_EQ(check(bundle, dir / "a.json", first).code, 1);
}

TEST(CheckAttestation, HoldsForThisBundleAndThisKeyOnly) {
  const TempDir dir;
  const Signer signer(dir, "key"), other(dir, "other");
  const std::string bundle = convert(dir, fixture(kModel));
  const std::string file = dir / "a.json";
  ASSERT_EQ(attest(bundle, file, signer).code, 0);
  const Outcome good = check(bundle, file, signer);
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_NE(good.out.find("computes what the checkpoint 'llama3_tied' computes"), std::string::npos)
      << good.out;
  EXPECT_NE(good.out.find("logits within the noise of f32"), std::string::npos) << good.out;
  EXPECT_EQ(check(bundle, file, other).code, 1);

  const std::string half = convert(dir, fixture(kModel), {"--dtype", "bf16"}, "half");
  const Outcome wrong = check(half, file, signer);
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.err.find("'manifest.json': is another file"), std::string::npos) << wrong.err;

  // One letter of the payload is changed.
  Json envelope = Json::parse(read_bytes(file));
  const std::string payload = from_base64(envelope["dsseEnvelope"]["payload"]);
  std::string changed = payload;
  changed[changed.find("llama3_tied")] = 'L';
  Json tampered = envelope;
  tampered["dsseEnvelope"]["payload"] = base64(changed);
  write_bytes(dir / "t.json", tampered.dump());
  EXPECT_EQ(check(bundle, dir / "t.json", signer).code, 1);
  // The changed payload is accepted when it is signed again: only the signature was wrong.
  write_bytes(dir / "s.json", signer.resign(envelope, changed).dump());
  EXPECT_EQ(check(bundle, dir / "s.json", signer).code, 0);
}

// These statements are signed by a trusted key, but do not state parity of this bundle.
TEST(CheckAttestation, OtherStatementsAreNotTakenForParity) {
  const TempDir dir;
  const Signer signer(dir, "key");
  const std::string bundle = convert(dir, fixture(kModel));
  ASSERT_EQ(attest(bundle, dir / "a.json", signer).code, 0);
  const Json envelope = Json::parse(read_bytes(dir / "a.json"));
  const Json statement = Json::parse(from_base64(envelope["dsseEnvelope"]["payload"]));
  const auto refused = [&](const char* what, const Json& changed) {
    write_bytes(dir / "c.json", signer.resign(envelope, changed.dump()).dump());
    const Outcome outcome = check(bundle, dir / "c.json", signer);
    EXPECT_EQ(outcome.code, 1) << what;
    EXPECT_NE(outcome.err.find("no parity attestation"), std::string::npos) << outcome.err;
  };
  Json changed = statement;
  changed["predicate"]["verdict"] = "no parity";
  refused("verdict", changed);
  changed = statement;
  changed["predicate"].erase("verdict");
  refused("no verdict", changed);
  changed = statement;
  changed["predicateType"] = "https://model_signing/signature/v1.0";
  refused("predicate type", changed);
  changed = statement;
  changed["predicate"]["resources"].erase(0);
  refused("a file less", changed);
  changed = statement;
  changed["subject"][0]["digest"]["sha256"] = std::string(64, '0');
  refused("subject", changed);
  changed = statement;
  for (const char* side : {"checkpoint", "reference", "against"}) {
    changed["predicate"]["compared_with"][side] = nullptr;
  }
  refused("compared with nothing", changed);
  changed = statement;
  changed["predicate"]["comparisons"] = Json::array();
  refused("no comparison", changed);
  changed = statement;
  changed["predicate"]["comparisons"].back()["id"] = "weights";
  refused("no comparison of outputs", changed);
  changed = statement;
  changed["predicate"]["comparisons"].back()["metrics"]["max_abs"] = -1.0;
  refused("a negative error", changed);
  refused("an array", Json::array());
}

TEST(CheckAttestation, WhatIsNoAttestationIsBadInput) {
  const TempDir dir;
  const Signer signer(dir, "key");
  const std::string bundle = convert(dir, fixture(kModel));
  write_bytes(dir / "a.json", "{}");
  EXPECT_EQ(check(bundle, dir / "a.json", signer).code, 3);
  EXPECT_EQ(check(bundle, dir / "absent.json", signer).code, 5);
}

}  // namespace
}  // namespace ferry::attest_test
