// ferry sign, and ferry check with a signature.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_sign_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Sign : public testing::Test {
 protected:
  Sign() {
    write_bytes(key, read_bytes(fixture("signing_keys/p256.pem")));
    fs::permissions(key, fs::perms(0600));
    fs::create_directories(folder + "/sub");
    write_bytes(folder + "/weights.bin", "weights");
    write_bytes(folder + "/sub/config.json", "{}");
  }
  Outcome check(const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"check", path, "--public-key", public_key};
    args.insert(args.end(), more.begin(), more.end());
    return run_ferry(args);
  }
  void sign(const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"sign", path, "--key", key};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome done = run_ferry(args);
    ASSERT_EQ(done.code, 0) << done.err;
  }
  TempDir dir;
  const std::string key = dir / "key.pem", folder = dir / "folder";
  const std::string public_key = fixture("signing_keys/p256.pub.pem");
};

TEST_F(Sign, SignedBundleIsVerifiedAndIntact) {
  const std::string bundle = dir / "bundle";
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", bundle}).code, 0);
  EXPECT_EQ(check(bundle).code, 1) << "a key is trusted, so it must be signed";
  sign(bundle);
  EXPECT_EQ(run_ferry({"check", bundle}).code, 0);
  const Outcome verified = check(bundle);
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_NE(verified.out.find("verified"), std::string::npos);
  EXPECT_NE(verified.out.find("intact"), std::string::npos);
  EXPECT_EQ(run_ferry({"run", bundle, "--tokens", "1,2", "--max-new", "1"}).code, 0);

  const json document = check(bundle, {"--json"}).json();
  EXPECT_EQ(document["ok"], true);
  EXPECT_EQ(document["result"]["signature"]["signer"]["curve"], "P-256");
  EXPECT_TRUE(document["result"]["bundle"]["problems"].empty());

  write_bytes(bundle + "/config.json", read_bytes(bundle + "/config.json") + " ");
  write_bytes(bundle + "/extra", "");
  const Outcome changed = check(bundle);
  EXPECT_EQ(changed.code, 1);
  EXPECT_NE(changed.err.find("changed: config.json"), std::string::npos) << changed.err;
  EXPECT_NE(changed.err.find("extra: extra"), std::string::npos) << changed.err;
  const json differences = check(bundle, {"--json"}).json();
  EXPECT_EQ(differences["exit"], 1);
  EXPECT_EQ(differences["result"]["signature"]["stage"], "manifest");
  EXPECT_EQ(differences["result"]["bundle"]["problems"].size(), 2u);
}

TEST_F(Sign, AnyFolderAndAnyFileCanBeSigned) {
  sign(folder);
  EXPECT_TRUE(fs::exists(folder + "/model.sig"));
  EXPECT_EQ(check(folder).code, 0);
  sign(folder + "/weights.bin", {"-o", dir / "weights.sig"});
  EXPECT_EQ(check(folder + "/weights.bin", {"--signature", dir / "weights.sig"}).code, 0);
  EXPECT_EQ(check(folder + "/sub/config.json", {"--signature", dir / "weights.sig"}).code, 1);
}

TEST_F(Sign, ExitCodesTellAnswersFromInputs) {
  sign(folder);
  const std::string signature = folder + "/model.sig", other = fixture("signing_keys/p384.pub.pem");
  EXPECT_EQ(run_ferry({"check", folder, "--public-key", other}).code, 1);
  const json refused = run_ferry({"--json", "check", folder, "--public-key", other}).json();
  EXPECT_EQ(refused["result"]["signature"]["stage"], "signature");
  EXPECT_TRUE(refused["result"]["signature"]["signer"].is_null());
  EXPECT_EQ(check(folder, {"--signature", public_key}).code, 3);
  EXPECT_EQ(
      check(folder, {"--signature", fixture("oms/upstream/spec/valid/sigstore.bundle.json")}).code,
      4);
  EXPECT_EQ(check(folder, {"--signature", dir / "absent"}).code, 5);
  EXPECT_EQ(check(dir / "absent").code, 5);
  EXPECT_EQ(run_ferry({"check", folder, "--signature", signature}).code, 2);
  EXPECT_EQ(check(folder, {"--trust-anchor", public_key}).code, 2);
  EXPECT_EQ(check(folder, {"--at", "2027-01-01"}).code, 2);
  EXPECT_EQ(run_ferry({"sign", folder}).code, 2);
  EXPECT_EQ(run_ferry({"sign", folder, "--key", fixture("oms/keys/p256.pub.pem")}).code, 3);
}

TEST_F(Sign, CertificatesAreCheckedAtATime) {
  const std::string leaf = dir / "leaf.pem";
  write_bytes(leaf, read_bytes(fixture("signing_keys/p384.pem")));
  fs::permissions(leaf, fs::perms(0600));
  const std::string signature = dir / "cert.sig";
  const Outcome done = run_ferry({"sign", folder, "--key", leaf, "--certificate",
                                  fixture("signing_keys/leaf.crt.pem"), "--chain",
                                  fixture("signing_keys/issuer.crt.pem"), "-o", signature});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto at = [&](const std::string& time) {
    return run_ferry({"check", folder, "--signature", signature, "--trust-anchor",
                      fixture("signing_keys/root.crt.pem"), "--at", time});
  };
  EXPECT_EQ(at("2027-01-01").code, 0);
  EXPECT_NE(at("2027-01-01T12:30:00Z").out.find("signed by CN=Release"), std::string::npos);
  EXPECT_EQ(at("2000-01-01").code, 1);
  for (const char* bad : {"now", "2027", "2027-02-30", "2027-01-01T24:00:00Z", "2027-1-1"}) {
    EXPECT_EQ(at(bad).code, 2) << bad;
  }
}

TEST_F(Sign, WhatIsLeftOutIsSaid) {
  fs::create_directories(folder + "/.git");
  const Outcome done = run_ferry({"sign", folder, "--key", key, "--ignore-paths", "sub"});
  ASSERT_EQ(done.code, 0);
  EXPECT_EQ(done.err, "ferry: '.git': not signed\nferry: 'sub': not signed\n");
  write_bytes(folder + "/sub/config.json", "changed");
  const Outcome checked = check(folder);
  EXPECT_EQ(checked.code, 0);
  EXPECT_NE(checked.out.find("ignored  sub\n"), std::string::npos) << checked.out;
  write_bytes(folder + "/more", "");
  EXPECT_EQ(check(folder).code, 1);
  EXPECT_EQ(check(folder, {"--ignore-unsigned-files"}).code, 0);
}

TEST_F(Sign, DocumentSaysWhatWasSigned) {
  const json result = run_ferry({"--json", "sign", folder, "--key", key}).json()["result"];
  EXPECT_EQ(result["signature"], folder + "/model.sig");
  EXPECT_EQ(result["files"], 2);
  EXPECT_EQ(result["bytes"], 9);
  EXPECT_EQ(result["resources"][1]["name"], "weights.bin");
  const json checked = check(folder, {"--json"}).json()["result"];
  EXPECT_EQ(checked["signature"]["sha256"], result["sha256"]);
  EXPECT_EQ(checked["signature"]["signer"], result["signer"]);
}

}  // namespace
}  // namespace ferry::verb_sign_test
