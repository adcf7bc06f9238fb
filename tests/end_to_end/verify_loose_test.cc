// `verify` of a program that the official export_llm made of the checkpoint testdata/golden/llama.
#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"
#include "tests/cli/ferry_process.h"

namespace ferry::verify_loose_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

const std::string kSource = fixture("golden/llama");
const std::string kReference = kSource + "/golden.safetensors";

std::string program(const std::string& name) { return fixture("official_llm/" + name + ".pte"); }

Outcome verify(const std::string& name, const Line& options) {
  Line line = {"verify", "--text-decoder", program(name), "--json"};
  line.insert(line.end(), options.begin(), options.end());
  return run_ferry(line);
}

TEST(VerifyLoose, AnOfficialProgramComputesWhatTransformersComputes) {
  for (const std::string name : {"portable_f32", "xnnpack_f32"}) {
    SCOPED_TRACE(name);
    const Outcome outcome = verify(name, {"--reference", kReference});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json report = outcome.json();
    EXPECT_EQ(report["parity"], true);
    // Also a program with delegates is held to its own noise, not to a constant.
    EXPECT_EQ(report["tolerance"]["source"], "noise");
    EXPECT_LT(report["tolerance"]["bound"], 1e-4);
    EXPECT_LT(report["metrics"]["max_abs"], 2e-5);
    EXPECT_GT(report["metrics"]["sqnr_db"], 100);
  }
}

TEST(VerifyLoose, AnOfficialProgramComputesWhatItsCheckpointComputes) {
  for (const std::string name : {"portable_f32", "xnnpack_f32"}) {
    SCOPED_TRACE(name);
    const Outcome outcome = verify(name, {"--checkpoint", kSource, "--reference", kReference});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json report = outcome.json();
    EXPECT_EQ(report["parity"], true);
    EXPECT_EQ(report["f32_path"]["parity"], true);
    EXPECT_EQ(report["tensors"]["compared"], 0);
    EXPECT_EQ(report["proves"].size(), 2u);
    EXPECT_EQ(report["does_not_prove"].size(), 1u);
  }
}

TEST(VerifyLoose, AProgramWithoutCachesTakesTheWholeSequenceInEveryCall) {
  for (const Line& proof : {Line{"--reference", kReference}, Line{"--checkpoint", kSource}}) {
    const Outcome outcome = verify("no_cache", proof);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["parity"], true);
    EXPECT_GT(outcome.json()["metrics"]["sqnr_db"], 100);
  }
}

TEST(VerifyLoose, AQuantisedCacheIsWithinTheFloorsOfItsCoding) {
  for (const Line& proof : {Line{"--reference", kReference}, Line{"--checkpoint", kSource}}) {
    const Outcome outcome = verify("quantised_cache", proof);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["parity"], true);
  }
}

void expect_no_parity_with_a_changed_row(const std::string& name) {
  SCOPED_TRACE(name);
  const TempDir dir;
  std::string bytes = read_bytes(program(name));
  const TensorFile source(kSource + "/model.safetensors");
  // The program has the row of a token in f32.
  const std::string halves = source.bytes_of("model.embed_tokens.weight");
  std::string row;
  for (size_t i = 0; i < 32; ++i) row += std::string(2, '\0') + halves.substr(2 * i, 2);
  const size_t at = bytes.find(row);
  ASSERT_NE(at, std::string::npos);
  for (size_t token = 0; token < 64; ++token) bytes[at + 128 * token + 3] ^= '\x80';
  write_bytes(dir / "wrong.pte", bytes);
  for (const Line& proof : {Line{"--reference", kReference}, Line{"--checkpoint", kSource}}) {
    Line line = {"verify", "--text-decoder", dir / "wrong.pte"};
    line.insert(line.end(), proof.begin(), proof.end());
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  }
}

TEST(VerifyLoose, OneWeightThatDiffersIsNoParity) {
  expect_no_parity_with_a_changed_row("portable_f32");
  expect_no_parity_with_a_changed_row("xnnpack_f32");
}

TEST(VerifyLoose, ABundleOfTheSameCheckpointAgrees) {
  const TempDir dir;
  ASSERT_EQ(run_ferry({"convert", kSource, "-o", dir / "b", "--dtype", "f32"}).code, 0);
  EXPECT_EQ(verify("portable_f32", {"--against", dir / "b"}).code, 0);
}

TEST(VerifyLoose, WhatDoesNotFitIsRefused) {
  const auto refused = [](Line line, int code, const std::string& message) {
    line.insert(line.begin(), "verify");
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  };
  const std::string decoder = program("portable_f32");
  refused({}, 2, "BUNDLE or --text-decoder is required");
  refused({"--data", "x.ptd"}, 2, "--text-decoder is required");
  refused({"b", "--text-decoder", decoder}, 2, "a bundle has its programs");
  refused({"--text-decoder", decoder}, 2, "reference");
  refused({"--text-decoder", decoder, "--checkpoint", kSource, "--attest", "a.json", "--key", "k"},
          2, "--attest is for bundles");
  refused({"--text-decoder", decoder, "--checkpoint", fixture("llama3_tied")}, 3,
          "the number of layers is 3, and 2 in the model that it is compared with");
  refused({"--text-decoder", decoder, "--checkpoint", kSource, "--adapter", "a"}, 2, "adapter");
}

}  // namespace
}  // namespace ferry::verify_loose_test
