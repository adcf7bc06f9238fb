// A static llama program of the official exporter, with quantized inputs and outputs, gives the
// results of the official model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/cli/ferry_process.h"

namespace ferry::static_llama_test {
namespace {

const std::string kProgram = "static_llama/llama_kv8.pte";

std::vector<uint16_t> words(const std::string& bytes) {
  std::vector<uint16_t> values(bytes.size() / sizeof(uint16_t));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(uint16_t));
  return values;
}

// Returns the tensors of one call whose names continue with `kind`, in the order of the signature.
std::vector<std::string> names_of(const TensorFile& trace, size_t call, const std::string& kind) {
  const std::string prefix = "call" + std::to_string(call) + "." + kind;
  std::vector<std::string> names;
  for (const auto& [name, entry] : trace.header.items()) {
    if (name.starts_with(prefix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Codes of keys and values must be equal. Codes of logits have a step of 1/65535 of their range and
// may differ by one.
void expect_same_codes(const std::string& name, const std::string& got, const std::string& want) {
  SCOPED_TRACE(name);
  ASSERT_EQ(got.size(), want.size());
  if (!name.ends_with("logits")) {
    EXPECT_EQ(got, want);
    return;
  }
  const std::vector<uint16_t> a = words(got), b = words(want);
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(std::abs(a[i] - b[i]), 1) << i;
    if (a[i] != b[i]) ++different;
  }
  EXPECT_LE(different * 50, a.size());
}

TEST(StaticLlama, GivesTheCodesOfTheOfficialModel) {
  const TensorFile trace(fixture("static_llama/llama_kv8.safetensors"));
  TempDir dir;
  for (size_t call = 0; call < 5; ++call) {
    SCOPED_TRACE(call);
    std::string script;
    for (const std::string& name : names_of(trace, call, "in")) {
      write_bytes(dir / name, trace.bytes_of(name));
      script += dir / name + " ";
    }
    write_bytes(dir / "script", script + "\n");
    const Outcome run = run_ferry({"execute", fixture(kProgram), "--method",
                                   call < 2 ? "prefill_forward" : "kv_forward", "--script",
                                   dir / "script", "--outdir", dir / "out", "--poison"});
    ASSERT_EQ(run.code, 0) << run.err;
    const std::vector<std::string> outs = names_of(trace, call, "out");
    ASSERT_EQ(outs.size(), 7U);
    for (size_t i = 0; i < outs.size(); ++i) {
      const std::string path = dir / ("out/run0_out" + std::to_string(i) + ".bin");
      expect_same_codes(outs[i], read_bytes(path), trace.bytes_of(outs[i]));
    }
  }
}

// A list of constants is a method of several outputs. One of them is a text.
TEST(StaticLlama, ConstantMethodsReturnNumbersAndTexts) {
  TempDir dir;
  const std::vector<std::string> args = {"execute",  fixture(kProgram),
                                         "--method", "get_kv_output_0_quant_attr",
                                         "--outdir", dir / "out"};
  const Outcome run = run_ferry(args);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out,
            "run 0 output 0: f64[]  0.0384651\n"
            "run 0 output 1: i64[]  131\n"
            "run 0 output 2: i64[]  0\n"
            "run 0 output 3: i64[]  255\n"
            "run 0 output 4: string[11]  'torch.uint8'\n");
  EXPECT_EQ(read_bytes(dir / "out/run0_out4.bin"), "torch.uint8");
  EXPECT_TRUE(read_bytes(dir / "out/manifest.txt").ends_with("run0_out4 string 11\n"));
  std::vector<std::string> in_json = args;
  in_json.push_back("--json");
  const nlohmann::json outputs = run_ferry(in_json).json()["outputs"];
  EXPECT_EQ(outputs[0]["dtype"], "f64");
  EXPECT_EQ(outputs[4]["dtype"], "string");
  EXPECT_EQ(outputs[4]["text"], "torch.uint8");
  EXPECT_FALSE(outputs[0].contains("text"));
}

TEST(StaticLlama, CodesInScriptsMustFitTheirDtype) {
  TempDir dir;
  const TensorFile trace(fixture("static_llama/llama_kv8.safetensors"));
  std::vector<std::string> inputs;
  for (const std::string& name : names_of(trace, 2, "in")) {
    write_bytes(dir / name, trace.bytes_of(name));
    inputs.push_back(dir / name);
  }
  const auto run = [&](const std::string& mask) {
    std::string script = inputs[0] + " " + mask;
    for (size_t i = 2; i < inputs.size(); ++i) script += " " + inputs[i];
    write_bytes(dir / "script", script + "\n");
    return run_ferry(
        {"execute", fixture(kProgram), "--method", "kv_forward", "--script", dir / "script"});
  };
  std::string mask = "i:65535";
  for (int i = 1; i < 48; ++i) mask += i < 40 ? ",0" : ",65535";
  const Outcome good = run(mask);
  ASSERT_EQ(good.code, 0) << good.err;
  EXPECT_NE(good.out.find("run 0 output 0: u16[1, 1, 320]"), std::string::npos) << good.out;
  EXPECT_NE(good.out.find("run 0 output 1: u8[1, 2, 24, 1]"), std::string::npos) << good.out;
  for (const std::string number : {"65536", "-1"}) {
    const Outcome bad = run("i:" + number);
    EXPECT_EQ(bad.code, 2);
    EXPECT_NE(bad.err.find("'" + number + "' is not a value of u16"), std::string::npos) << bad.err;
  }
}

}  // namespace
}  // namespace ferry::static_llama_test
