// ferry execute: scripts, outputs, exit codes.
#include <gtest/gtest.h>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_execute_test {
namespace {

std::string official(const std::string& name) { return fixture("official_pte/" + name); }

TEST(Execute, WritesRawOutputsAndTheirManifest) {
  TempDir dir;
  const std::string out = dir / "out";
  const std::vector<std::string> args = {
      "execute", official("state_init.pte"), "--script", dir / "script", "--outdir", out};
  write_bytes(dir / "script", official("state_init.in0_0.bin") + "\n\n" +
                                  official("state_init.in1_0.bin") + "@3,4\n");
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second run replaces the files of the first
    const Outcome run = run_ferry(args);
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(read_bytes(out + "/manifest.txt"),
              "run0_out0 f32 3,4\nrun0_out1 i64 1\nrun1_out0 f32 3,4\nrun1_out1 i64 1\n");
    for (const std::string name : {"0_0", "0_1", "1_0", "1_1"}) {
      EXPECT_EQ(read_bytes(out + "/run" + name.substr(0, 1) + "_out" + name.substr(2) + ".bin"),
                read_bytes(official("state_init.ref" + name + ".bin")));
    }
  }
}

TEST(Execute, JsonListsTheOutputs) {
  const Outcome run = run_ferry({"execute", official("llama_tiny_ext.pte"), "--data",
                                 official("llama_tiny_ext.ptd"), "--script",
                                 official("llama_tiny_ext.script"), "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const nlohmann::json json = run.json();
  EXPECT_EQ(json["executions"], 4);
  EXPECT_EQ(json["outputs"][3]["run"], 3);
  EXPECT_EQ(json["outputs"][3]["shape"], (std::vector<int>{1, 128}));
}

// The file is ambiguous if two data files have a tensor of the same name.
TEST(Execute, ATensorOfTwoDataFilesIsRefused) {
  const std::string data = official("llama_tiny_ext.ptd");
  const Outcome run = run_ferry({"execute", official("llama_tiny_ext.pte"), "--data", data,
                                 "--data", data, "--script", official("llama_tiny_ext.script")});
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.error_lines(), 1U);
  EXPECT_NE(run.err.find("has a tensor of this name too (tensor '"), std::string::npos) << run.err;
}

TEST(Execute, ErrorsAreOneLineWithTheirExitCode) {
  TempDir dir;
  const std::string script = dir / "script";
  struct Row {
    std::string line;
    int code;
    std::string message;
  };
  for (const Row& row : {
           Row{"i:1@1,1", 2, "gives 1 inputs, the method takes 2"},
           Row{"i:1,2@1,3 i:0@1", 2, "do not fill"},
           Row{"i:x@1,1 i:0@1", 2, "not a value of i64"},
           Row{"i:1@99999999999999,99999999999999 i:0@1", 2, "do not fill"},
           Row{"i:999@1,1 i:0@1", 3, "instruction 1 (aten::embedding.out): index 999"},
           Row{"i:1@1,1 i:32@1", 3, "instruction"},
           Row{"i:1@1,1 i:-1@1", 3, "instruction"},
           Row{"f:1@1,1 i:0@1", 2, "not a value of i64"},
           Row{"absent.bin@1,1 i:0@1", 5, "absent.bin"},
       }) {
    SCOPED_TRACE(row.line);
    write_bytes(script, row.line + "\n");
    const Outcome run = run_ferry({"execute", official("llama_tiny_ext.pte"), "--data",
                                   official("llama_tiny_ext.ptd"), "--script", script});
    EXPECT_EQ(run.code, row.code);
    EXPECT_EQ(run.error_lines(), 1U) << run.err;
    EXPECT_NE(run.err.find(row.message), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
  }
  const Outcome no_data =
      run_ferry({"execute", official("llama_tiny_ext.pte"), "--script", script});
  EXPECT_EQ(no_data.code, 3);
  EXPECT_NE(no_data.err.find("absent from the data files"), std::string::npos);
  EXPECT_EQ(run_ferry({"execute", official("dyn.pte")}).code, 2);
}

}  // namespace
}  // namespace ferry::verb_execute_test
