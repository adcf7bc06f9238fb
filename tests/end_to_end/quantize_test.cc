// convert --quantize: the written files, refusals, and execution and proofs of the results.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::quantize_test {
namespace {

std::vector<std::string> convert(const std::string& checkpoint, const std::string& out,
                                 const std::vector<std::string>& options) {
  std::vector<std::string> args = {"convert", fixture(checkpoint), "-o", out};
  args.insert(args.end(), options.begin(), options.end());
  return args;
}

uint64_t bytes_in(const std::string& directory) {
  uint64_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    sum += entry.file_size();
  }
  return sum;
}

const std::vector<std::string> kSchemes[] = {
    {"--quantize", "8da4w"},
    {"--quantize", "8da4w-g64", "--quantize-rule", "*.w2=8da4w"},
    {"--quantize", "8da8w", "--quantize-embedding", "8"},
    {"--quantize", "int8", "--quantize-embedding", "4"},
    {"--quantize-embedding", "4,16"},
    {"--quantize", "8da4w", "--quantize-method", "hqq", "--quantize-embedding", "4,32"},
    {"--quantize-rule", "*.feed_forward.*=8da8w"},
    {"--quantize", "8da4w", "--program", "static", "--quantize-embedding", "8"},
    {"--quantize", "8da4w", "--program", "static", "--attention", "sha", "--shards", "2"}};

TEST(QuantizedConversion, WhatADryRunPromisesIsWhatIsWrittenAndRuns) {
  for (const std::vector<std::string>& scheme : kSchemes) {
    SCOPED_TRACE(testing::PrintToString(scheme));
    const TempDir dir;
    std::vector<std::string> planned = convert("llama3_tied", dir / "out", scheme);
    planned.insert(planned.end(), {"--dry-run", "--json"});
    const Outcome plan = run_ferry(planned);
    ASSERT_EQ(plan.code, 0) << plan.err;
    const Outcome made = run_ferry(convert("llama3_tied", dir / "out", scheme));
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(plan.json()["total_bytes"], bytes_in(dir / "out"));
    const Outcome checked = run_ferry({"check", dir / "out"});
    EXPECT_EQ(checked.code, 0) << checked.err;
    const Outcome ran = run_ferry({"run", dir / "out", "--tokens", "1,2,3", "--max-new", "4"});
    EXPECT_EQ(ran.code, 0) << ran.err;
  }
}

TEST(QuantizedConversion, TheBundleDoesNotDependOnTheNumberOfThreads) {
  const TempDir dir;
  const std::vector<std::string> scheme = {
      "--quantize", "8da4w", "--quantize-method", "hqq", "--quantize-embedding", "4"};
  const std::string digests[] = {"1", "2", "5"};
  std::string first;
  for (const std::string& threads : digests) {
    std::vector<std::string> args = convert("llama3_tied", dir / threads, scheme);
    args.insert(args.end(), {"--threads", threads});
    ASSERT_EQ(run_ferry(args).code, 0);
    const std::string manifest = read_bytes((dir / threads) + "/manifest.json");
    if (first.empty()) first = manifest;
    EXPECT_EQ(manifest, first) << threads;
  }
}

TEST(QuantizedConversion, AnEmbeddingAndAHeadOfEightBitsShareTheirBytes) {
  const TempDir dir;
  const Outcome made = run_ferry(
      convert("llama3_tied", dir / "out", {"--quantize", "8da8w", "--quantize-embedding", "8"}));
  ASSERT_EQ(made.code, 0) << made.err;
  const auto manifest = nlohmann::json::parse(read_bytes((dir / "out") + "/manifest.json"));
  std::map<std::string, uint64_t> offsets;
  for (const auto& tensor : manifest["tensors"]) offsets[tensor["name"]] = tensor["offset"];
  EXPECT_EQ(offsets.at("tok_embeddings.weight"), offsets.at("output.weight"));
  EXPECT_EQ(offsets.at("tok_embeddings.weight.scales"), offsets.at("output.weight.scales"));
}

TEST(QuantizedConversion, SmallerGroupsAndEightBitsAreProvedAgainstTheCheckpoint) {
  const TempDir dir;
  const std::vector<std::string> schemes = {"--quantize", "8da4w-g96", "--quantize-embedding",
                                            "4,22"};
  const Outcome made = run_ferry(convert("golden/seed_oss", dir / "out", schemes));
  ASSERT_EQ(made.code, 0) << made.err;
  const auto manifest = nlohmann::json::parse(read_bytes((dir / "out") + "/manifest.json"));
  const std::string text = manifest.dump();
  EXPECT_NE(text.find("8da4w-g32 x 2, 8da8w x 13, embedding 4,12 x 1"), std::string::npos) << text;
  const Outcome verified =
      run_ferry({"verify", dir / "out", "--checkpoint", fixture("golden/seed_oss")});
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
}

struct Refusal {
  std::vector<std::string> options;
  std::string message;
};
const Refusal kRefusals[] = {
    {{"--quantize", "4bit"}, "expected 8da4w, 8da4w-gN, 8da8w, int8, keep or none"},
    {{"--quantize", "8da4w-g"}, "expected 8da4w, 8da4w-gN, 8da8w, int8, keep or none"},
    {{"--quantize", "8da4w-g-32"}, "expected 8da4w, 8da4w-gN, 8da8w, int8, keep or none"},
    {{"--quantize", "8da4w-g48"}, "the group must be a multiple of 32"},
    {{"--quantize-embedding", "4,31"}, "expected 4, 4,N with an even N, 8 or none"},
    {{"--quantize-embedding", "2"}, "expected 4, 4,N with an even N, 8 or none"},
    {{"--quantize-method", "hqq"}, "nothing is quantised"},
    {{"--quantize-rule", "wq"}, "expected PATTERN=SCHEME"},
    {{"--quantize-rule", "wq=8bit"}, "expected 8da4w, 8da4w-gN, 8da8w, int8, keep or none"},
    {{"--quantize", "8da8w", "--quantize-rule", "layer.*=8da4w"}, "matches no linear weight"},
    {{"--quantize-rule", "tok_embeddings*=8da4w"}, "matches no linear weight"},
    {{"--kv-dtype", "u8"}, "--kv-dtype u8: only with --program static"},
    {{"--kv-dtype", "i8", "--program", "static"}, "--kv-dtype i8: only with --program stateful"}};

TEST(QuantizedConversion, WhatCannotBeHadIsRefusedInWords) {
  for (const Refusal& refusal : kRefusals) {
    SCOPED_TRACE(testing::PrintToString(refusal.options));
    const TempDir dir;
    const Outcome outcome = run_ferry(convert("llama3_tied", dir / "out", refusal.options));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(refusal.message), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(dir / "out"));
  }
}

TEST(QuantizedConversion, AWeightThatIsNotFiniteIsRefused) {
  const TempDir dir;
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const std::string checkpoint = changed_checkpoint(dir, "llama3_tied", [&](TensorFile& file) {
    const std::string infinite = file.header[name]["dtype"] == "F32"
                                     ? std::string("\0\0\x80\x7f", 4)
                                     : std::string("\x80\x7f", 2);
    std::string bytes = file.bytes_of(name);
    bytes.replace(0, infinite.size(), infinite);
    file.set_bytes(name, bytes);
  });
  const Outcome outcome =
      run_ferry({"convert", checkpoint, "-o", dir / "out", "--quantize", "8da4w"});
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("NaN and infinity cannot be quantised: 1 value (tensor '" + name),
            std::string::npos)
      << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

TEST(QuantizedConversion, KvCachesOfFewerBytes) {
  for (const std::string dtype : {"f16", "i8"}) {
    SCOPED_TRACE(dtype);
    const TempDir dir;
    const Outcome made = run_ferry(convert("llama3_tied", dir / "out", {"--kv-dtype", dtype}));
    ASSERT_EQ(made.code, 0) << made.err;
    const Outcome ran = run_ferry({"run", dir / "out", "--tokens", "1,2,3", "--max-new", "4"});
    EXPECT_EQ(ran.code, 0) << ran.err;
  }
}

}  // namespace
}  // namespace ferry::quantize_test
