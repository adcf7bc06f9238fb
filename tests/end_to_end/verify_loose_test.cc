// `verify` of programs that the official export_llm made of testdata/golden/llama and, in codes of
// 4 bits, of testdata/official_llm/NAME. optimum_bf16 is of optimum-executorch 1.1.0.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

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
    // All matrices of three layers, the table and the head.
    EXPECT_EQ(report["tensors"]["compared"], 23);
    EXPECT_EQ(report["tensors"]["different"].size(), 0u);
    EXPECT_EQ(report["proves"].size(), 3u);
    EXPECT_EQ(report["does_not_prove"].size(), 0u);
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

// Its products take transposed matrices in bf16, which take no activations in f32.
TEST(VerifyLoose, AProgramThatCannotBeWidenedIsHeldToItsRounding) {
  const Outcome outcome = verify("optimum_bf16", {"--checkpoint", kSource});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json report = outcome.json();
  EXPECT_EQ(report["parity"], true);
  EXPECT_EQ(report["tensors"]["compared"], 23);
  const std::string absent = report["own_weights"]["absent"];
  EXPECT_NE(absent.find("cannot be kept in f32"), std::string::npos) << absent;
}

TEST(VerifyLoose, AValueOfAProgramInBf16IsFound) {
  const TempDir dir;
  const std::string key = "model.layers.2.mlp.up_proj.weight";
  const std::string changed = changed_checkpoint(dir, "golden/llama", [&](TensorFile& file) {
    std::string bytes = file.bytes_of(key);
    bytes[100] ^= 1;
    file.set_bytes(key, bytes);
  });
  const Outcome outcome = run_ferry_once(
      {"verify", "--text-decoder", program("optimum_bf16"), "--checkpoint", changed});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("1 of 1280 values differ"), std::string::npos) << outcome.err;
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

// -- codes of 4 bits

const std::string kCoded = fixture("official_llm/llama_8da4w");

// Verifies the program of 4 bits with its checkpoint after `change`.
Outcome verify_coded(const std::function<void(TensorFile&)>& change) {
  const TempDir dir;
  const std::string changed = changed_checkpoint(dir, "official_llm/llama_8da4w", change);
  // "Not proved" is a report with an exit code, and no refusal with an error document.
  return run_ferry_once({"verify", "--text-decoder", kCoded + ".pte", "--checkpoint", changed});
}

// Returns a row of 32 values in bf16 times `factor`.
std::string scaled(std::string row, float factor) {
  for (size_t i = 0; i < row.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, row.data() + i, sizeof bits);
    const float value = std::bit_cast<float>(uint32_t{bits} << 16) * factor;
    bits = static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + 0x8000) >> 16);
    std::memcpy(row.data() + i, &bits, sizeof bits);
  }
  return row;
}

void expect_reason(const Outcome& outcome, int code, const std::string& reason) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
}

TEST(VerifyLoose, AProgramInCodesIsHeldToItsOwnWeights) {
  const Outcome outcome =
      run_ferry({"verify", "--text-decoder", kCoded + ".pte", "--checkpoint", kCoded, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json report = outcome.json();
  EXPECT_EQ(report["tensors"]["compared"], 16);
  EXPECT_EQ(report["own_weights"]["in_f32"]["parity"], true);
  EXPECT_GT(report["own_weights"]["in_f32"]["metrics"]["sqnr_db"], 100);
  EXPECT_EQ(report["own_weights"]["activations"]["parity"], true);
  // Outputs alone would have to decide.
  EXPECT_LT(report["metrics"]["sqnr_db"], 10);
}

TEST(VerifyLoose, ARowOfAnyMatrixTimes1_05IsFoundBehindCodes) {
  for (const std::string name :
       {"model.embed_tokens", "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.k_proj",
        "model.layers.1.mlp.up_proj", "lm_head"}) {
    SCOPED_TRACE(name);
    const Outcome outcome = verify_coded([&](TensorFile& file) {
      std::string tensor = file.bytes_of(name + ".weight");
      tensor.replace(3 * 64, 64, scaled(tensor.substr(3 * 64, 64), 1.05F));
      file.set_bytes(name + ".weight", tensor);
    });
    expect_reason(outcome, 1, "differ by more than half a step, first in row 3");
  }
}

TEST(VerifyLoose, ANormIsFoundBehindCodes) {
  for (const std::string name : {"layers.1.post_attention_layernorm", "norm"}) {
    SCOPED_TRACE(name);
    const std::string key = "model." + name + ".weight";
    const Outcome outcome = verify_coded(
        [&](TensorFile& file) { file.set_bytes(key, scaled(file.bytes_of(key), 1.02F)); });
    expect_reason(outcome, 1, "values differ, first in element");
  }
}

// The error of a cache in 8 bits hides what outputs say of a norm.
TEST(VerifyLoose, ANormIsFoundBehindAQuantisedCache) {
  const TempDir dir;
  const std::string key = "model.layers.1.input_layernorm.weight";
  const std::string changed = changed_checkpoint(dir, "golden/llama", [&](TensorFile& file) {
    file.set_bytes(key, scaled(file.bytes_of(key), 1.05F));
  });
  const Outcome outcome = run_ferry_once(
      {"verify", "--text-decoder", program("quantised_cache"), "--checkpoint", changed});
  expect_reason(outcome, 1, "32 of 32 values differ, first in element 0");
}

// A NaN equals nothing, so that no weight is found in a vector that has one.
TEST(VerifyLoose, AVectorWithANanIsNoWeight) {
  const TempDir dir;
  std::string bytes = read_bytes(program("portable_f32"));
  const TensorFile source(kSource + "/model.safetensors");
  for (const auto& [name, row] : source.header.items()) {
    if (name == "__metadata__" || row["shape"].size() != 1) continue;
    const std::string halves = source.bytes_of(name);
    std::string norm;
    for (size_t i = 0; i < halves.size(); i += 2)
      norm += std::string("\0\0", 2) + halves.substr(i, 2);
    const size_t at = bytes.find(norm);
    ASSERT_NE(at, std::string::npos) << name;
    bytes.replace(at, 4, std::string("\0\0\xc0\x7f", 4));
  }
  write_bytes(dir / "wrong.pte", bytes);
  const Outcome outcome =
      run_ferry_once({"verify", "--text-decoder", dir / "wrong.pte", "--checkpoint", kSource});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("and 0 of 7 vectors"), std::string::npos) << outcome.out;
}

// Vectors of all layers are there, but two are exchanged.
TEST(VerifyLoose, ExchangedNormsAreFoundBehindCodes) {
  const Outcome outcome = verify_coded([](TensorFile& file) {
    const std::string first = "model.layers.0.input_layernorm.weight";
    const std::string second = "model.layers.1.input_layernorm.weight";
    const std::string bytes = file.bytes_of(first);
    file.set_bytes(first, file.bytes_of(second));
    file.set_bytes(second, bytes);
  });
  expect_reason(outcome, 1, "of layer 1 is read before that of layer 0");
}

TEST(VerifyLoose, ExchangedLayersAreFoundBehindCodes) {
  const Outcome outcome = verify_coded([](TensorFile& file) {
    for (const std::string name : {"mlp.down_proj", "mlp.gate_proj", "mlp.up_proj"}) {
      const std::string first = "model.layers.0." + name + ".weight";
      const std::string second = "model.layers.1." + name + ".weight";
      const std::string bytes = file.bytes_of(first);
      file.set_bytes(first, file.bytes_of(second));
      file.set_bytes(second, bytes);
    }
  });
  expect_reason(outcome, 1, "of layer 1 is read before that of layer 0");
}

// Moves every row of a matrix to the place of the one before it.
void rotate(TensorFile& file, const std::string& name) {
  std::string tensor = file.bytes_of(name);
  std::rotate(tensor.begin(), tensor.begin() + 64, tensor.end());
  file.set_bytes(name, tensor);
}

TEST(VerifyLoose, AMatrixThatIsLikeNoWeightIsNoParity) {
  const Outcome outcome =
      verify_coded([](TensorFile& file) { rotate(file, "model.layers.0.mlp.gate_proj.weight"); });
  expect_reason(outcome, 1, "is like no weight of the checkpoint");
}

TEST(VerifyLoose, CodesThatAreLikeNoWeightsProveNothing) {
  const Outcome outcome = verify_coded([](TensorFile& file) {
    for (const std::string part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                   "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj"}) {
      for (const std::string layer : {"0.", "1."}) {
        rotate(file, "model.layers." + layer + part + ".weight");
      }
    }
  });
  expect_reason(outcome, 7, "not proved");
  expect_reason(outcome, 7, "12 of 16 matrices of the program are like no weight");
}

// The convolutions of LFM2 keep a state that no position clears, so a second prompt is right only
// if the runner begins with an empty one. The program has the joined in_proj in three matrices.
TEST(VerifyLoose, AnotherPromptBeginsWithoutTheStateOfTheLast) {
  const std::string source = fixture("official_llm/lfm2_8da4w");
  const Outcome outcome =
      run_ferry({"verify", "--text-decoder", source + ".pte", "--checkpoint", source, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json report = outcome.json();
  EXPECT_EQ(report["tensors"]["compared"], 14);  // all matrices but the kernel of the convolution
  EXPECT_GT(report["own_weights"]["in_f32"]["metrics"]["sqnr_db"], 100);
}

// Transformers' own export takes the position of each token. The tokens are those of generate().
TEST(VerifyLoose, AProgramWithAPositionForEachTokenComputesWhatItsCheckpointComputes) {
  const std::string source = fixture("official_llm/gemma3_hybrid");
  const Outcome run =
      run_ferry({"run", "--text-decoder", source + ".pte", "--tokens", "5,17,33,60,2,8",
                 "--max-new", "12", "--ignore-eos", "--greedy", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.json()["result"]["tokens"], Json({28, 75, 88, 34, 5, 82, 95, 37, 60, 75, 29, 88}));
  const Outcome outcome =
      run_ferry({"verify", "--text-decoder", source + ".pte", "--checkpoint", source, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(outcome.json()["metrics"]["sqnr_db"], 100);
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
