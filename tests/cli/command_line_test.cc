#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::command_line_test {
namespace {

using Line = std::vector<std::string>;

// Expects one line on stderr and nothing on stdout.
void expect_refusal(const Outcome& outcome, int code) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("ferry: error: ")) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST(Usage, NonsenseIsRefusedInOneLine) {
  const std::string source = fixture("llama3_tied");
  const std::vector<std::vector<std::string>> lines = {
      {"frobnicate"},
      {"inspect"},
      {"inspect", source, "--frobnicate"},
      {"inspect", source, "--threads", "0"},
      {"inspect", source, "--threads", "many"},
      {"convert", source},
      {"convert", source, "-o", "never", "--dtype", "f13"},
      {"convert", source, "-o", "never", "--shards", "0"},
      {"convert", source, "-o", "never", "--shards", "3"},
      {"convert", source, "-o", "never", "--max-file-size", "5X"},
      {"convert", source, "-o", "never", "--max-file-size", "-5M"},
      {"convert", source, "-o", "never", "--max-file-size", "1K"},
      {"convert", source, "-o", "never", "--max-file-size", "0x100000"},
      {"convert", source, "-o", "never", "--max-file-size", "1e9"},
      {"convert", source, "-o", "never", "--max-file-size", "1000000.5"},
      {"convert", source, "-o", "never", "--max-file-size", "99999999999G"},
      {"inspect", source, "-q", "-v"},
      {"convert", source, "-o", "never", "--context-length", "0"},
      {"convert", source, "-o", "never", "--context-length", "100000000"},
      {"convert", source, "-o", "never", "--context-length", "8", "--prefill-length", "9"},
  };
  for (const auto& line : lines) {
    SCOPED_TRACE(testing::PrintToString(line));
    expect_refusal(run_ferry(line), 2);
  }
}

// A script passes an empty text for a variable that is not set. That must not turn a check off.
TEST(Usage, AnEmptyFileNameIsNotAnAbsentOption) {
  const std::string source = fixture("llama3_tied");
  const std::pair<Line, std::string> cases[] = {
      {{"check", source, "--public-key", ""}, "--public-key: FILE is empty"},
      {{"check", source, "--trust-anchor", ""}, "--trust-anchor: FILE is empty"},
      {{"check", source, "--attestation", ""}, "--attestation: FILE is empty"},
      {{"audit", source, "--budget", ""}, "--budget: FILE is empty"},
      {{"verify", source, "--attest", ""}, "--attest: FILE is empty"},
  };
  for (const auto& [line, message] : cases) {
    const Outcome outcome = run_ferry(line);
    expect_refusal(outcome, 2);
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
}

TEST(Usage, OptionsThatAreNotThereAreNotKnownEither) {
  const std::string source = fixture("llama3_tied");
  const std::vector<Line> lines = {
      {"convert", source, "--dry-run", "--publish"},
  };
  for (const Line& line : lines) {
    SCOPED_TRACE(testing::PrintToString(line));
    const Outcome outcome = run_ferry(line);
    expect_refusal(outcome, 2);
    EXPECT_NE(outcome.err.find("not expected: '--"), std::string::npos) << outcome.err;
  }
  for (const char* verb : {"convert", "run"}) {
    EXPECT_EQ(run_ferry({verb, "--help"}).out.find("supported yet"), std::string::npos);
  }
}

TEST(Usage, WhatIsNotUnderstoodIsQuotedInItsOrder) {
  const std::pair<Line, std::string> cases[] = {
      {{"convrt", "x"}, "there is no verb 'convrt' (did you mean convert?) (see ferry --help)"},
      {{"hlp"}, "there is no verb 'hlp' (did you mean help?) (see ferry --help)"},
      {{"conv\x1b]x"}, "there is no verb 'conv\\x1b]x' (see ferry --help)"},
      {{"convert", "x", "--outt", "b"},
       "not expected: '--outt' 'b' (did you mean --out?) (see ferry convert --help)"},
      {{"inspect", "x", "y", "z"}, "not expected: 'y' 'z' (see ferry inspect --help)"},
      {{"--jsn", "inspect", "x"},
       "not expected: '--jsn' (did you mean --json?) (see ferry inspect --help)"},
      {{"inspect"}, "PATH is required (see ferry inspect --help)"},
      {{"run", "x", "--seed", "1\x1b"},
       "--seed: 1\\x1b is not a whole number below 2^63 (see ferry run --help)"},
      {{"verify", "x", "--tolerance", "inf"},
       "--tolerance: inf is not a finite number (see ferry verify --help)"},
      {{"convert", "x", "--dtype", "f13"},
       "--dtype: f13 not in {keep,f32,f16,bf16} (did you mean f16?) (see ferry convert --help)"},
      {{"convert", "x", "--dtype", "b16"},
       "--dtype: b16 not in {keep,f32,f16,bf16} (did you mean bf16?) (see ferry convert --help)"},
      {{"convert", "x", "--to", "GGUF"},
       "--to: GGUF not in {bundle,safetensors,hf,pth,bpte,gguf,mmproj} (did you mean gguf?) (see "
       "ferry "
       "convert --help)"},
      {{"run", "x", "--temp", "1"},
       "not expected: '--temp' '1' (see ferry run --help)\n"
       "  did you mean: ferry run x --temperature 1 --interactive"},
      {{"run", "x", "--max-tokens", "1", "--frob"},
       "not expected: '--max-tokens' '1' '--frob' (did you mean --max-new?) (see ferry run "
       "--help)"},
      {{"run", "x", "-p", "a", "--frob"},
       "not expected: '-p' 'a' '--frob' (did you mean --prompt?) (see ferry run --help)"},
      {{"quantize", "x", "--frob"},
       "there is no verb 'quantize' (did you mean convert?) (see ferry --help)"},
      {{"run", "x", "-p", "a"},
       "not expected: '-p' 'a' (see ferry run --help)\n  did you mean: ferry run x --prompt a"},
      {{"info", "x"},
       "there is no verb 'info' (see ferry --help)\n  did you mean: ferry inspect x"},
      {{"convert", "x", "--output", "b"},
       "not expected: '--output' 'b' (see ferry convert --help)\n"
       "  did you mean: ferry convert x -o b"},
      {{"batch", "stauts"},
       "there is no verb 'stauts' (did you mean status?) (see ferry batch --help)"},
      {{"run", "x", "--prompt"}, "--prompt: TEXT is missing (see ferry run --help)"},
      {{"inspect", "x", "--threads"}, "--threads: its value is missing (see ferry inspect --help)"},
      {{"run", "x", "--prompt", "a", "--prompt", "b"},
       "--prompt: given 2 times; once is allowed (see ferry run --help)"},
      {{"run", "x", "--prompt", "a", "--chat", "b"},
       "--prompt and --chat: each gives the prompt; give one of them"},
  };
  for (const auto& [line, message] : cases) {
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "ferry: error: " + message + "\n");
  }
}

TEST(Usage, WithoutAVerbTheVerbsAreListed) {
  for (const Line& line : {Line{}, Line{"batch"}}) {
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    const std::string verbs = line.empty() ? "ferry" : "ferry batch";
    EXPECT_TRUE(
        outcome.err.starts_with("ferry: error: a verb is required (see " + verbs + " --help)\n  "))
        << outcome.err;
    const std::string some = line.empty() ? "\n  Convert  convert     " : "\n  status      ";
    EXPECT_NE(outcome.err.find(some), std::string::npos) << outcome.err;
  }
}

// Names are looked up once the line is understood, so that a mistake in it comes first.
TEST(Usage, AMistakeIsToldBeforeAModelThatIsMissing) {
  const Outcome outcome = run_ferry({"convert", "Qwen/Qwen3-0.6B", "--outt", "b"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("not expected: '--outt'"), std::string::npos) << outcome.err;
}

TEST(Usage, TheVersionHasThreeNames) {
  const std::string version = run_ferry({"--version"}).out;
  EXPECT_TRUE(version.starts_with("ferry ")) << version;
  EXPECT_EQ(run_ferry({"-V"}).out, version);
  EXPECT_EQ(run_ferry({"version"}).out, version);
  EXPECT_EQ("ferry " + run_ferry({"version", "--json"}).json()["ferry"].get<std::string>() + "\n",
            version);
}

TEST(Usage, WhatIsMissingIsSaidToBeMissing) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "b");
  const auto message = [](const Line& line) {
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 5) << outcome.err;
    return outcome.err;
  };
  EXPECT_EQ(message({"run", dir / "nosuch"}),
            "ferry: error: " + (dir / "nosuch") + ": cannot open: No such file or directory\n");
  for (const char* verb : {"audit", "inspect", "check"}) {
    const std::string err = message({verb, dir / "b/missing"});
    EXPECT_NE(err.find("o such file or directory"), std::string::npos) << err;
    EXPECT_EQ(err.find("hub"), std::string::npos) << err;
  }
}

TEST(Usage, LongListsOfMissingFilesAreCut) {
  const TempDir dir;
  nlohmann::json index;
  for (int i = 0; i < 500; ++i) {
    index["weight_map"]["t" + std::to_string(i)] = "m" + std::to_string(i) + ".safetensors";
  }
  write_bytes(dir / "model.safetensors.index.json", index.dump());
  write_bytes(dir / "config.json", read_bytes(fixture("llama3_tied/config.json")));
  const Outcome outcome = run_ferry({"convert", dir.path(), "-n"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 22) << outcome.err;
  EXPECT_TRUE(outcome.err.ends_with("  and 480 more, which --json lists\n")) << outcome.err;
}

TEST(Usage, ATokenizerOfGigabytesIsRefusedBeforeItIsRead) {
  const TempDir dir;
  write_bytes(dir / "tokenizer.json", "{}");
  std::filesystem::resize_file(dir / "tokenizer.json", uint64_t{1} << 31);
  const Outcome outcome = run_ferry({"tokenize", dir.path()});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("more than the 67108864 that such a file may have"), std::string::npos)
      << outcome.err;
}

TEST(Usage, SizesHaveUnits) {
  const std::string source = fixture("llama3_tied");
  const Outcome refused = run_ferry({"convert", source, "-n", "--max-file-size", "300X"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find(
                "K, M, G, T (powers of 1000; a B may follow), or KiB, MiB, GiB, TiB (of 1024)"),
            std::string::npos)
      << refused.err;
  for (const char* size : {"300kB", "300KB", "300K", "300000", "0.3MB", "300kib", "1 mb"}) {
    EXPECT_EQ(run_ferry({"convert", source, "-n", "--max-file-size", size}).code, 0) << size;
  }
  const Outcome memory = run_ferry({"verify", "x", "--memory", "4XB"});
  EXPECT_EQ(memory.code, 2);
  EXPECT_NE(memory.err.find("--memory: 4XB is not whole bytes, such as 500MB or 2GiB"),
            std::string::npos)
      << memory.err;
}

TEST(Usage, NumbersAreDecimalAndInRangeOrRefused) {
  const std::string source = fixture("llama3_tied");
  const TempDir dir;
  ASSERT_EQ(
      run_ferry({"convert", source, "-o", dir / "b", "--shards", "02", "--context-length", "+010"})
          .code,
      0);
  const auto manifest = nlohmann::json::parse(read_bytes(dir / "b/manifest.json"));
  EXPECT_EQ(manifest["components"][0]["programs"].size(), 2U);
  EXPECT_EQ(manifest["model"]["context_length"], 10);
  const std::string verb[] = {"run", "verify"};
  const Line lines[] = {
      {verb[0], dir / "b", "--tokens", "1", "--seed", "99999999999999999999"},
      {verb[0], dir / "b", "--tokens", "1", "--seed", "9223372036854775808"},
      {verb[0], dir / "b", "--tokens", "1", "--max-new", "99999999999999999999"},
      {verb[0], dir / "b", "--tokens", "1", "--top-k", "0x10"},
      {verb[0], dir / "b", "--tokens", "1", "--top-k", "1.5"},
      {verb[0], dir / "b", "--tokens", "1", "--top-k", ""},
      {verb[0], dir / "b", "--tokens", "1", "--temperature", "nan"},
      {verb[0], dir / "b", "--tokens", "1", "--temperature", "1e999"},
      {verb[0], dir / "b", "--tokens", "1", "--threads", "99999999999999999999"},
      {verb[1], dir / "b", "--reference", source + "/golden.safetensors", "--tolerance", "inf"},
      {verb[1], dir / "b", "--reference", source + "/golden.safetensors", "--tolerance", "nan"},
  };
  for (const Line& line : lines) {
    SCOPED_TRACE(testing::PrintToString(line));
    expect_refusal(run_ferry(line), 2);
  }
}

TEST(Usage, ASeedWithALeadingZeroIsDecimal) {
  const TempDir dir;
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "b"}).code, 0);
  const auto tokens = [&](const char* seed) {
    return run_ferry({"run", dir / "b", "--tokens", "1,2", "--max-new", "24", "--temperature", "3",
                      "--ignore-eos", "--json", "--seed", seed})
        .json()["result"]["tokens"];
  };
  EXPECT_EQ(tokens("012"), tokens("12"));
  EXPECT_NE(tokens("012"), tokens("10"));
}

TEST(Usage, HelpAndVersionAreAnswers) {
  const Outcome version = run_ferry({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("ferry ")) << version.out;
  const Outcome help = run_ferry({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* verb : {"inspect", "convert", "run", "execute", "verify", "check"}) {
    EXPECT_NE(help.out.find(verb), std::string::npos) << verb;
  }
  const std::string convert = run_ferry({"convert", "--help"}).out;
  for (const char* part :
       {"--prefill-length", "PyTorch", "GGUF", "safetensors or HDF5", "--json"}) {
    EXPECT_NE(convert.find(part), std::string::npos) << part;
  }
}

TEST(Usage, GlobalOptionsMayStandOnEitherSideOfTheVerb) {
  const std::string source = fixture("llama3_tied");
  EXPECT_EQ(run_ferry({"--json", "inspect", source}).out,
            run_ferry({"inspect", source, "--json"}).out);
}

TEST(Usage, AFullDiskUnderStdoutIsAnError) {
  const Outcome outcome = run_ferry_to("/dev/full", {"inspect", fixture("llama3_tied")});
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.error_lines(), 1U);
}

TEST(Usage, AnAbsentPathIsAnInputOutputErrorThatNamesIt) {
  for (const char* verb : {"inspect", "check", "verify"}) {
    const Outcome outcome = run_ferry({verb, "/nonexistent/model.safetensors"});
    EXPECT_EQ(outcome.code, 5) << outcome.err;
    EXPECT_NE(outcome.err.find("/nonexistent/model.safetensors"), std::string::npos);
  }
}

TEST(Usage, ANameOnTheHubAsksForADownload) {
  const Outcome planned = run_ferry({"convert", "Qwen/Qwen3-0.6B", "--dry-run"});
  EXPECT_EQ(planned.code, 5);
  EXPECT_NE(planned.err.find("to download it: hf download Qwen/Qwen3-0.6B"), std::string::npos)
      << planned.err;
  for (const char* verb : {"inspect", "audit", "check", "run", "verify", "tokenize"}) {
    EXPECT_EQ(run_ferry({verb, "Qwen/Qwen3-0.6B"}).err, planned.err) << verb;
  }
}

TEST(Usage, CheckTellsOtherDirectoriesFromDamagedBundles) {
  const TempDir dir;
  write_bytes(dir / "notes.txt", "");
  const std::string message =
      "ferry: error: " + dir.path() + ": not a bundle: it has no manifest.json\n";
  for (const Line& line : {Line{"run", dir.path(), "--tokens", "1"}, Line{"verify", dir.path()}}) {
    const Outcome outcome = run_ferry(line);
    expect_refusal(outcome, 3);
    EXPECT_EQ(outcome.err, message);
  }
  const Outcome outcome = run_ferry({"check", dir.path()});
  expect_refusal(outcome, 3);
  EXPECT_NE(outcome.err.find("no checkpoint in this directory: none of "), std::string::npos)
      << outcome.err;
}

// Users of programs that execute checkpoints directly try this first.
TEST(Usage, ACheckpointInPlaceOfABundleIsToldFromOtherThings) {
  const std::string source = fixture("llama3_tied");
  const std::string hint = "; ferry convert makes one of a checkpoint\n";
  EXPECT_EQ(run_ferry({"run", source, "--tokens", "1"}).err,
            "ferry: error: " + source + ": not a bundle: it has no manifest.json" + hint);
  const std::string file = source + "/model.safetensors";
  const Outcome outcome = run_ferry({"verify", file});
  expect_refusal(outcome, 3);
  EXPECT_EQ(outcome.err, "ferry: error: " + file + ": not a bundle, which is a directory" + hint);
}

TEST(Usage, ABundleInPlaceOfACheckpointSaysWhatMakesOne) {
  const TempDir dir;
  const std::string bundle = dir / "b";
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", bundle}).code, 0);
  for (const Line& line :
       {Line{"convert", bundle, "-o", dir / "c"}, Line{"verify", bundle, "--checkpoint", bundle}}) {
    const Outcome outcome = run_ferry(line);
    expect_refusal(outcome, 3);
    EXPECT_EQ(outcome.err, "ferry: error: " + bundle +
                               ": a bundle, where a checkpoint is needed; convert --to hf makes "
                               "one of a bundle\n");
  }
}

TEST(Convert, GroupsThatDivideNoRowsAreSmallerAndTheReportSaysSo) {
  const Outcome outcome =
      run_ferry({"convert", fixture("llama3_tied"), "-n", "--quantize", "8da4w-g96"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string note =
      "the group of a scale must divide a row: 8da4w-g32 instead of 8da4w-g96 for 2 "
      "matrices, 8da4w-g64 instead of 8da4w-g96 for 13 matrices";
  EXPECT_NE((outcome.out + outcome.err).find(note), std::string::npos)
      << outcome.out << outcome.err;
}

TEST(Usage, ABundleOfTheNameOfAFileIsNoted) {
  const TempDir dir;
  const std::string source = fixture("llama3_tied");
  const auto notes = [&](const std::string& name, const Line& more) {
    Line line = {"convert", source, "-o", dir / name};
    line.insert(line.end(), more.begin(), more.end());
    return run_ferry(line).err;
  };
  EXPECT_EQ(notes("m.gguf", {}), "ferry: " + (dir / "m.gguf") +
                                     ": a bundle, which is a directory; --to gguf writes a file\n");
  EXPECT_EQ(notes("bundle", {}), "");
  EXPECT_EQ(notes("w.safetensors", {"--to", "hf"}), "");
}

TEST(Usage, QuietErrorsAreTheirFirstLine) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
    file.rename("model.norm.weight", "model.nurm.weight");
  });
  const Outcome loud = run_ferry({"convert", source, "--dry-run"});
  const Outcome quiet = run_ferry({"convert", source, "--dry-run", "--quiet"});
  EXPECT_EQ(loud.error_lines(), 3U);
  EXPECT_EQ(quiet.err, "ferry: error: " + source + ": 2 problems with the checkpoint's keys\n");
}

}  // namespace
}  // namespace ferry::command_line_test
