// Values that are not finite: `convert` names those of the checkpoint, and refuses those that only
// a cast would make.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>

#include "tests/cli/ferry_process.h"

namespace ferry::non_finite_test {
namespace {

using Json = nlohmann::json;

const std::string kGate = "model.layers.1.mlp.gate_proj.weight";
const std::string kNorm = "model.norm.weight";

std::string f32(float value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// Returns the upper half of an f32.
std::string bf16(float value) { return f32(value).substr(2); }

// Returns llama3_tied with `bytes` at the beginning of tensor `name`.
std::string checkpoint_with(const TempDir& dir, const std::string& name, const std::string& bytes) {
  return changed_checkpoint(dir, "llama3_tied",
                            [&](TensorFile& file) { file.set_bytes(name, bytes); });
}

// Converts every f32 tensor to bf16. Tensor `name` begins with `bytes`.
std::string bf16_checkpoint(const TempDir& dir, const std::string& name, const std::string& bytes) {
  return changed_checkpoint(dir, "llama3_tied", [&](TensorFile& file) {
    TensorFile out = file;
    out.header = nlohmann::ordered_json::object();
    out.data.clear();
    for (const auto& [key, entry] : file.header.items()) {
      if (key == "__metadata__") continue;
      const std::string whole = file.bytes_of(key);
      std::string half;
      for (size_t i = 0; i < whole.size(); i += 4) half += whole.substr(i + 2, 2);
      out.append(key, "BF16", entry["shape"], half);
    }
    out.set_bytes(name, bytes);
    file = out;
  });
}

TEST(NonFinite, ValuesOfTheCheckpointAreNamedAndKept) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  struct Case {
    std::string dtype;
    uint64_t values;
    std::string bytes;
  };
  // The last value of each row is finite after the cast.
  const Case cases[] = {{"keep", 3, f32(nan) + f32(-inf) + f32(inf) + f32(1)},
                        {"f16", 2, f32(nan) + f32(inf) + f32(65000)},
                        {"bf16", 1, f32(-inf) + f32(3e38F)}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.dtype);
    const TempDir dir;
    const std::string source = checkpoint_with(dir, kGate, c.bytes);
    const Outcome made =
        run_ferry({"convert", source, "-o", dir / "b", "--json", "--dtype", c.dtype});
    ASSERT_EQ(made.code, 0) << made.err;
    const std::string is = c.values == 1 ? " value is" : " values are";
    EXPECT_EQ(made.err, "ferry: " + source + ": " + std::to_string(c.values) + is +
                            " not finite (tensor '" + kGate + "')\n");
    const Json expected = {
        {"tensor", "layers.1.feed_forward.w1.weight"}, {"sources", {kGate}}, {"values", c.values}};
    EXPECT_EQ(made.json()["non_finite"], Json::array({expected}));
    EXPECT_EQ(run_ferry({"check", dir / "b"}).code, 0);
  }
}

TEST(NonFinite, AllSoundWeightsAreNotMentioned) {
  const TempDir dir;
  const Outcome made = run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "b", "--json"});
  EXPECT_EQ(made.err, "");
  EXPECT_EQ(made.json()["non_finite"], Json::array());
}

TEST(NonFinite, ManyTensorsAreNotesForTheFirstAndJsonForAll) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
    for (const auto& [name, entry] : file.header.items()) {
      if (name != "__metadata__") {
        file.set_bytes(name, f32(std::numeric_limits<float>::infinity()));
      }
    }
  });
  const Outcome made = run_ferry({"convert", source, "-o", dir / "b", "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const size_t tensors = made.json()["non_finite"].size();
  EXPECT_GT(tensors, 12U);
  EXPECT_EQ(made.error_lines(), 9U) << made.err;
  EXPECT_NE(made.err.find("in " + std::to_string(tensors - 8) + " more tensors"), std::string::npos)
      << made.err;
}

TEST(NonFinite, ACastThatOverflowsIsRefusedByName) {
  struct Case {
    std::string dtype, bytes, message;
  };
  const std::string f16_holds =
      "too large for f16, which a program in bf16 or f32 can hold (tensor '";
  const Case cases[] = {
      {"f16", f32(65520) + f32(1) + f32(-70000), "2 values " + f16_holds},
      {"f16", f32(1) + f32(1e30F), "1 value " + f16_holds},
      {"bf16", f32(3.4e38F),
       "1 value too large for bf16, which a program in f32 can hold (tensor '"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    const TempDir dir;
    const std::string source = checkpoint_with(dir, kGate, c.bytes);
    const Outcome refused = run_ferry({"convert", source, "-o", dir / "b", "--dtype", c.dtype});
    EXPECT_EQ(refused.code, 4);
    EXPECT_EQ(refused.err, "ferry: error: " + source + ": " + c.message + kGate + "')\n");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1)
        << "something but the checkpoint was left";
    EXPECT_EQ(run_ferry({"convert", source, "-o", dir / "b", "--dtype", "f32"}).code, 0);
  }
}

TEST(NonFinite, ABf16CheckpointOverflowsF16Likewise) {
  const TempDir dir;
  const std::string source = bf16_checkpoint(dir, kGate, bf16(73728) + bf16(1));
  const Outcome refused = run_ferry({"convert", source, "-o", dir / "b", "--dtype", "f16"});
  EXPECT_EQ(refused.code, 4);
  EXPECT_NE(refused.err.find(": 1 value too large for f16"), std::string::npos) << refused.err;
  EXPECT_EQ(run_ferry({"convert", source, "-o", dir / "b"}).code, 0);
}

// Norms stay f32 in every bundle, so they are not cast.
TEST(NonFinite, WhatIsNotCastDoesNotOverflow) {
  const TempDir dir;
  const std::string source = checkpoint_with(dir, kNorm, f32(1e30F));
  EXPECT_EQ(run_ferry({"convert", source, "-o", dir / "b", "--dtype", "f16"}).code, 0);
}

TEST(NonFinite, EveryTensorThatOverflowsIsListed) {
  const TempDir dir;
  const std::string other = "model.layers.0.self_attn.q_proj.weight";
  const std::string source = changed_checkpoint(dir, "llama3_tied", [&](TensorFile& file) {
    file.set_bytes(kGate, f32(1e6F));
    file.set_bytes(other, f32(1e6F) + f32(-1e6F));
  });
  const Outcome refused = run_ferry({"convert", source, "-o", dir / "b", "--dtype", "f16"});
  EXPECT_EQ(refused.code, 4);
  EXPECT_NE(refused.err.find("3 values too large"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("\n  '" + kGate + "': 1 value\n"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("\n  '" + other + "': 2 values\n"), std::string::npos) << refused.err;
  const Outcome quiet =
      run_ferry({"convert", source, "-o", dir / "b", "--dtype", "f16", "--quiet"});
  EXPECT_EQ(quiet.err, refused.err.substr(0, refused.err.find('\n') + 1));
}

}  // namespace
}  // namespace ferry::non_finite_test
