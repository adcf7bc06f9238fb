// The vectors of testdata/oms: signatures of the reference implementation and of a signer that was
// written from the specification, valid and tampered, each with its expected verdict.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "tests/signing/signing_testing.h"

namespace ferry::signing::verify_envelope_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kVectors = std::string(FERRY_TESTDATA) + "/oms/";

void write_model(const TempDir& dir) {
  const json files = json::parse(read_file(kVectors + "model.json"));
  for (const auto& [name, contents] : files.items()) {
    dir.write("model/" + name, decode(contents.get<std::string>()));
  }
}

void flip(const std::string& path, size_t offset) {
  std::string bytes = read_file(path);
  bytes.at(offset) = static_cast<char>(bytes.at(offset) ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

// Applies one edit and returns the signature to check.
std::string apply(const json& edit, const TempDir& dir, const std::string& signature) {
  const std::string operation = edit["op"];
  const std::string name = edit["path"];
  const std::string path = dir / ("model/" + name);
  const auto text = [&] { return edit["text"].get<std::string>(); };
  fs::create_directories(fs::path(path).parent_path());
  if (operation == "write") {
    dir.write("model/" + name, text());
  } else if (operation == "write_outside") {
    dir.write(name, text());
  } else if (operation == "append") {
    std::ofstream(path, std::ios::app) << text();
  } else if (operation == "flip") {
    flip(path, edit["offset"]);
  } else if (operation == "truncate") {
    fs::resize_file(path, edit["size"]);
  } else if (operation == "remove") {
    fs::remove(path);
  } else if (operation == "rename") {
    fs::rename(path, dir / ("model/" + edit["to"].get<std::string>()));
  } else if (operation == "symlink") {
    fs::create_symlink(edit["to"].get<std::string>(), path);
  } else if (operation == "copy_signature") {
    fs::copy_file(signature, path);
    return path;
  } else {
    ADD_FAILURE() << "unknown edit " << operation;
  }
  return signature;
}

Result<ModelCheck> run(const json& test, ThreadPool& pool) {
  const TempDir dir;
  write_model(dir);
  std::string signature = kVectors + test["sig"].get<std::string>();
  for (const json& edit : test.value("edits", json::array())) {
    signature = apply(edit, dir, signature);
  }
  Trust trust;
  if (test.contains("key")) trust.public_key = kVectors + test["key"].get<std::string>();
  if (test.contains("trust")) trust.anchors = {kVectors + test["trust"].get<std::string>()};
  trust.at = kThen;
  CheckOptions options;
  options.ignore_unsigned_files = test.contains("options");
  return check_model(dir / test.value("model", "model"), signature, trust, options, pool);
}

// Returns the possible beginnings of the verdict.
std::vector<std::string> expected(const json& test) {
  const std::string verdict = test["verdict"];
  if (verdict == "accept") return {"accept"};
  if (verdict == "accept or unsupported") {
    const bool blake3 = test["name"].get<std::string>().find("blake3") != std::string::npos;
    return {blake3 ? "unsupported" : "accept"};
  }
  const std::string stage = test["stage"];
  // Files that are no signature bundle, and keys of other kinds, have exit codes of their own.
  if (stage == "bundle") return {"reject bundle", "error 3"};
  if (stage == "key") return {"unsupported"};
  return {"reject " + stage + ":"};
}

TEST(SigningVectors, EveryCaseHasItsVerdict) {
  const json cases = json::parse(read_file(kVectors + "cases.json"))["cases"];
  ASSERT_EQ(cases.size(), 124u);
  ThreadPool pool(2);
  size_t accepted = 0, unsupported = 0;
  for (const json& test : cases) {
    const std::string verdict = verdict_of(run(test, pool));
    accepted += verdict == "accept";
    unsupported += verdict.starts_with("unsupported");
    const auto wanted = expected(test);
    const bool right = std::ranges::any_of(
        wanted, [&](const std::string& begin) { return verdict.starts_with(begin); });
    EXPECT_TRUE(right) << test["name"] << " (" << test["why"] << "): " << verdict << ", expected "
                       << wanted.front();
    EXPECT_EQ(verdict.find('\n'), std::string::npos) << verdict;
  }
  EXPECT_EQ(accepted, 25u);
  EXPECT_EQ(unsupported, 4u);  // blake3, and public keys of three other kinds
}

// Folders that were signed with released versions of the reference implementation.
struct Released {
  const char* folder;
  const char* file;     // the file of the folder that is the model; null where the folder is
  const char* verdict;  // beginning of the verdict
};

void PrintTo(const Released& released, std::ostream* out) { *out << released.folder; }

class ReleasedSignature : public testing::TestWithParam<Released> {};

TEST_P(ReleasedSignature, HasItsVerdict) {
  const std::string root = kVectors + "upstream/impl/", keys = root + "keys/certificate/";
  const std::string folder = root + GetParam().folder;
  Trust trust;
  trust.at = kThen;
  if (folder.ends_with("-certificate")) {
    trust.anchors = {keys + "ca-cert.pem"};
  } else {
    trust.public_key = keys + "signing-key-pub.pem";
  }
  ThreadPool pool(1);
  const std::string model = folder + (*GetParam().file != 0 ? "/" : "") + GetParam().file;
  const auto check = check_model(model, folder + "/model.sig", trust, {}, pool);
  EXPECT_TRUE(verdict_of(check).starts_with(GetParam().verdict)) << verdict_of(check);
}

// Version 0.2.0 signed another encoding of the payload. Version 1.0.1 did not record the paths that
// it ignored, so the ignored file is reported as extra.
INSTANTIATE_TEST_SUITE_P(Upstream, ReleasedSignature,
                         testing::Values(Released{"v0.2.0-certificate", "", "reject signature"},
                                         Released{"v0.3.1-certificate", "", "accept"},
                                         Released{"v0.3.1-elliptic-key", "signme-1", "accept"},
                                         Released{"v1.0.0-certificate", "", "accept"},
                                         Released{"v1.0.0-elliptic-key", "signme-1", "accept"},
                                         Released{"v1.0.1-certificate", "", "reject manifest"},
                                         Released{"v1.0.1-elliptic-key", "", "reject manifest"},
                                         Released{"v1.1.0-certificate", "", "accept"},
                                         Released{"v1.1.0-elliptic-key", "", "accept"}));

// Bundles of the specification. The signatures of the first two are valid under the key of the
// folders above, whose files they list.
struct Specified {
  const char* bundle;
  const char* verdict;
};

void PrintTo(const Specified& specified, std::ostream* out) { *out << specified.bundle; }

class SpecifiedBundle : public testing::TestWithParam<Specified> {};

TEST_P(SpecifiedBundle, HasItsVerdict) {
  const std::string root = kVectors + "upstream/", keys = root + "impl/keys/certificate/";
  const std::string bundle = GetParam().bundle;
  Trust trust;
  trust.at = kThen;
  if (bundle.find("certificate") != std::string::npos) {
    trust.anchors = {keys + "ca-cert.pem"};
  } else {
    trust.public_key = keys + "signing-key-pub.pem";
  }
  const TempDir dir;
  for (const std::string name : {"signme-1", "signme-2"}) {
    dir.write(name, read_file(root + "impl/v1.1.0-elliptic-key/" + name));
  }
  ThreadPool pool(1);
  const auto check = check_model(dir.path(), root + "spec/" + bundle, trust, {}, pool);
  EXPECT_TRUE(verdict_of(check).starts_with(GetParam().verdict)) << verdict_of(check);
}

INSTANTIATE_TEST_SUITE_P(
    Upstream, SpecifiedBundle,
    testing::Values(Specified{"valid/key.bundle.json", "accept"},
                    Specified{"valid/certificate.bundle.json", "accept"},
                    Specified{"valid/sigstore.bundle.json", "unsupported"},
                    Specified{"invalid/empty.bundle.json", "error 3"},
                    Specified{"invalid/missing-envelope.bundle.json", "error 3"},
                    Specified{"invalid/missing-verification-material.bundle.json", "error 3"},
                    Specified{"invalid/missing-tlog-entries.bundle.json", "unsupported"},
                    Specified{"invalid-payload/wrong-predicate.bundle.json", "reject signature"}));

}  // namespace
}  // namespace ferry::signing::verify_envelope_test
