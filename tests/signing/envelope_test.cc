// Keys, certificates and envelopes: sign_statement() is compared with OpenSSL, and
// verify_envelope() refuses wrong envelopes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/base64.h"
#include "core/sha256.h"
#include "signing/sign_statement.h"
#include "signing/verify_envelope.h"
#include "tests/signing/signing_testing.h"

namespace ferry::signing::envelope_test {
namespace {

using nlohmann::json;

const std::string kStatement = R"({"_type": "https://in-toto.io/Statement/v1", "subject": []})";

std::string verdict_of(const Result<Verdict>& result) {
  if (!result) return "error " + std::to_string(static_cast<int>(result.error().code));
  if (!result->rejection) return "accept";
  return "reject " + std::string(name_of(result->rejection->stage));
}

struct Kind {
  const char* name;
  const char* digest;  // printed by `openssl dgst`
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class Envelopes : public testing::Test {
 protected:
  SigningKey key(const std::string& name) { return {private_copy(dir, name + ".pem")}; }
  static Trust trust(const std::string& name) { return {key_file(name + ".pub.pem")}; }
  std::string signed_with(const SigningKey& signer) {
    const auto text = sign_statement(kStatement, signer);
    EXPECT_TRUE(text) << text.error().message;
    return text ? *text : "";
  }
  void expect_refused(const SigningKey& signer, ErrorCode code, const std::string& word) {
    const auto text = sign_statement(kStatement, signer);
    ASSERT_FALSE(text) << word;
    EXPECT_EQ(text.error().code, code) << text.error().message;
    EXPECT_NE(text.error().message.find(word), std::string::npos) << text.error().message;
  }
  TempDir dir;
};

class Curves : public Envelopes, public testing::WithParamInterface<Kind> {};

TEST_P(Curves, SignedPayloadComesBack) {
  const std::string bundle = signed_with(key(GetParam().name));
  const auto verdict = verify_envelope(bundle, "x.sig", trust(GetParam().name));
  ASSERT_EQ(verdict_of(verdict), "accept");
  EXPECT_EQ(verdict->payload, kStatement);
  for (const char* other : {"p256", "p384", "p521"}) {
    if (std::string(other) == GetParam().name) continue;
    EXPECT_EQ(verdict_of(verify_envelope(bundle, "x.sig", trust(other))), "reject signature");
  }
}

// `openssl pkey -pubout` wrote the public keys of testdata.
TEST_P(Curves, HintIsTheDigestOfThePublicKey) {
  const json bundle = json::parse(signed_with(key(GetParam().name)));
  const std::string pem = read_file(key_file(std::string(GetParam().name) + ".pub.pem"));
  EXPECT_EQ(bundle["verificationMaterial"]["publicKey"]["hint"],
            to_hex(sha256(std::as_bytes(std::span(pem)))));
}

TEST_P(Curves, OpensslVerifiesTheSignature) {
  if (std::system("openssl version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no openssl program";
  const json envelope = json::parse(signed_with(key(GetParam().name)))["dsseEnvelope"];
  const std::string payload = decode(envelope["payload"].get<std::string>());
  const std::string encoding = dir.write("pae", "DSSEv1 28 application/vnd.in-toto+json " +
                                                    std::to_string(payload.size()) + " " + payload);
  const std::string signature =
      dir.write("sig", decode(envelope["signatures"][0]["sig"].get<std::string>()));
  const std::string command = "openssl dgst " + std::string(GetParam().digest) + " -verify '" +
                              key_file(std::string(GetParam().name) + ".pub.pem") +
                              "' -signature '" + signature + "' '" + encoding + "' >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::ofstream(encoding, std::ios::app) << "x";
  EXPECT_NE(std::system((command + " 2>&1").c_str()), 0);
}

INSTANTIATE_TEST_SUITE_P(Keys, Curves,
                         testing::Values(Kind{"p256", "-sha256"}, Kind{"p384", "-sha384"},
                                         Kind{"p521", "-sha512"}));

// Every third bit is flipped, so at least one bit of every byte.
TEST_F(Envelopes, ChangedBitsAreRefused) {
  const std::string bundle = signed_with(key("p256"));
  const Trust trusted = trust("p256");
  for (size_t bit = 0; bit < 8 * bundle.size(); bit += 3) {
    std::string changed = bundle;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    const std::string verdict = verdict_of(verify_envelope(changed, "x.sig", trusted));
    ASSERT_NE(verdict, "accept") << "bit " << bit << ": " << changed;
  }
  for (size_t size = 0; size < bundle.size(); ++size) {
    ASSERT_EQ(verdict_of(verify_envelope(bundle.substr(0, size), "x.sig", trusted)), "error 3");
  }
}

TEST_F(Envelopes, MembersThatAreThereTwiceAreRefused) {
  const std::string bundle = signed_with(key("p256"));
  for (const char* member : {"mediaType", "hint", "payload", "payloadType", "sig"}) {
    std::string twice = bundle;
    const std::string quoted = "\"" + std::string(member) + "\":";
    twice.insert(twice.find(quoted), quoted + "\"x\",");
    EXPECT_EQ(verdict_of(verify_envelope(twice, "x.sig", trust("p256"))), "error 3") << member;
  }
}

TEST_F(Envelopes, SignatureThatIsStrippedIsRefused) {
  json bundle = json::parse(signed_with(key("p256")));
  bundle["dsseEnvelope"]["signatures"] = json::array();
  EXPECT_EQ(verdict_of(verify_envelope(bundle.dump(), "x.sig", trust("p256"))), "error 3");
}

TEST_F(Envelopes, CompressedPublicKeyIsTheSameKey) {
  const std::string bundle = signed_with(key("p256"));
  EXPECT_EQ(verdict_of(verify_envelope(bundle, "x.sig", trust("p256_compressed"))), "accept");
}

TEST_F(Envelopes, Sec1KeysAndEncryptedKeysSign) {
  EXPECT_FALSE(signed_with(key("p256_sec1")).empty());
  SigningKey encrypted = key("p256_encrypted");
  expect_refused(encrypted, ErrorCode::kBadInput, "encrypted, and no passphrase");
  encrypted.passphrase_file = dir.write("pass", "correct\nsecond line\n");
  expect_refused(encrypted, ErrorCode::kBadInput, "others may use this file");
  std::filesystem::permissions(encrypted.passphrase_file, std::filesystem::perms(0600));
  EXPECT_FALSE(signed_with(encrypted).empty());
  dir.write("pass", "wrong");
  expect_refused(encrypted, ErrorCode::kBadInput, "does not decrypt");
}

TEST_F(Envelopes, OtherKeysAreNotSupported) {
  expect_refused(key("secp256k1"), ErrorCode::kUnsupported, "curve secp256k1");
  expect_refused(key("ed25519"), ErrorCode::kUnsupported, "ED25519");
  expect_refused(key("rsa2048"), ErrorCode::kUnsupported, "RSA");
  expect_refused(key("p256_explicit"), ErrorCode::kUnsupported, "parameters of its curve");
}

TEST_F(Envelopes, KeysOfOthersAreRefused) {
  for (const int mode : {0640, 0604, 0620, 0666}) {
    const SigningKey signer = key("p256");
    std::filesystem::permissions(signer.private_key, std::filesystem::perms(mode));
    expect_refused(signer, ErrorCode::kBadInput, "others may use this file");
  }
  SigningKey read_only = key("p256");
  std::filesystem::permissions(read_only.private_key, std::filesystem::perms(0400));
  EXPECT_FALSE(signed_with(read_only).empty());
}

TEST_F(Envelopes, WhatIsNoKeyIsRefused) {
  expect_refused({dir / "absent"}, ErrorCode::kIo, "absent");
  SigningKey wrong = key("p256.pub");
  expect_refused(wrong, ErrorCode::kBadInput, "not a private key");
  const std::string bundle = signed_with(key("p256"));
  for (const std::string name : {"p256.pem", "root.crt.pem"}) {
    const auto verdict = verify_envelope(bundle, "x.sig", {key_file(name)});
    ASSERT_FALSE(verdict);
    EXPECT_EQ(verdict.error().code, ErrorCode::kBadInput);
  }
}

class CertificatesOf : public Envelopes {
 protected:
  SigningKey release() {
    SigningKey signer = key("p384");
    signer.certificate = key_file("leaf.crt.pem");
    signer.chain = {key_file("issuer.crt.pem")};
    return signer;
  }
  static Trust anchor(const std::string& name, int64_t at = kThen) {
    return {"", {key_file(name)}, at};
  }
};

TEST_F(CertificatesOf, PathLeadsToTheAnchorOfTheUser) {
  const std::string bundle = signed_with(release());
  const auto verdict = verify_envelope(bundle, "x.sig", anchor("root.crt.pem"));
  ASSERT_EQ(verdict_of(verdict), "accept");
  EXPECT_EQ(verdict->signer.subject, "CN=Release\\\\, test,O=Ferry tests");
  EXPECT_EQ(verdict->signer.curve, "P-384");
  EXPECT_EQ(verdict_of(verify_envelope(bundle, "x.sig", anchor("other_root.crt.pem"))),
            "reject certificate");
  EXPECT_EQ(verdict_of(verify_envelope(bundle, "x.sig", trust("p384"))), "reject bundle");
}

TEST_F(CertificatesOf, TimeCounts) {
  const std::string bundle = signed_with(release());
  const int64_t year_2000 = 946684800, year_2070 = 3155760000;
  for (const int64_t at : {year_2000, year_2070}) {
    EXPECT_EQ(verdict_of(verify_envelope(bundle, "x.sig", anchor("root.crt.pem", at))),
              "reject certificate");
  }
}

TEST_F(CertificatesOf, ChainMustBeComplete) {
  SigningKey alone = release();
  alone.chain.clear();
  EXPECT_EQ(verdict_of(verify_envelope(signed_with(alone), "x.sig", anchor("root.crt.pem"))),
            "reject certificate");
  SigningKey with_root = release();
  with_root.chain.push_back(key_file("root.crt.pem"));
  const std::string bundle = signed_with(with_root);
  EXPECT_EQ(verdict_of(verify_envelope(bundle, "x.sig", anchor("root.crt.pem"))), "accept");
  EXPECT_EQ(verdict_of(verify_envelope(bundle, "x.sig", anchor("other_root.crt.pem"))),
            "reject certificate");
}

TEST_F(CertificatesOf, SignerMustFitItsCertificate) {
  SigningKey other = release();
  other.private_key = private_copy(dir, "p256.pem");
  expect_refused(other, ErrorCode::kBadInput, "does not belong to the certificate");
  other.certificate = key_file("useless.crt.pem");
  expect_refused(other, ErrorCode::kBadInput, "neither for digital signatures");
  other.certificate.clear();
  expect_refused(other, ErrorCode::kUsage, "needs the certificate");
}

TEST(Base64, IsWhatOpensslWrites) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(to_base64(bytes), encode(bytes));
    EXPECT_EQ(from_base64(encode(bytes)), bytes);
    bytes += static_cast<char>(i * 7 + 3);
  }
  EXPECT_EQ(from_base64("-_-_"), from_base64("+/+/"));
  for (const char* bad : {"A", "AA", "AAA", "A===", "====", "AB==", "AAB=", "AA=A", "AA==AAAA",
                          "AAA ", "AAA\n", "AA\n==", "A*AA", "AAAA="}) {
    EXPECT_FALSE(from_base64(bad)) << bad;
  }
}

}  // namespace
}  // namespace ferry::signing::envelope_test
