// Errors while files are read and written give one line and exit code 5, never a signal and never
// an incomplete bundle. The tests run the whole program on real files.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "tests/faults/fault.h"

namespace ferry::faults_test {
namespace {

namespace fs = std::filesystem;

constexpr int kTriesPerKind = 5;

struct Input {
  std::string name;
  std::vector<std::string> files;  // files of testdata, copied under their base names
};

const Input kInputs[] = {
    {"safetensors", {"llama3_tied/config.json", "llama3_tied/model.safetensors"}},
    {"torch", {"llama3_tied/config.json", "llama3_tied_bin/pytorch_model.bin"}},
    {"sharded",
     {"golden/qwen2/config.json", "golden/qwen2/model.safetensors.index.json",
      "golden/qwen2/model-00001-of-00004.safetensors",
      "golden/qwen2/model-00002-of-00004.safetensors",
      "golden/qwen2/model-00003-of-00004.safetensors",
      "golden/qwen2/model-00004-of-00004.safetensors"}},
    {"gguf", {"gguf/llama3_tied_f16.gguf"}},
    {"keras",
     {"keras/gemma2/config.json", "keras/gemma2/metadata.json", "keras/gemma2/model.weights.h5"}},
};

void lay_out(const Input& input, const std::string& directory) {
  fs::remove_all(directory);
  fs::create_directories(directory);
  for (const std::string& file : input.files) {
    fs::copy_file(fixture(file), directory + "/" + fs::path(file).filename().string());
  }
}

// Tests one kind of fault at some of the calls that a conversion makes.
class FaultTest : public testing::TestWithParam<Input> {
 protected:
  FaultTest() { lay_out(GetParam(), source()); }

  std::string source() const { return dir_ / "in"; }
  std::string tensor_file() const {
    return source() + "/" + fs::path(GetParam().files.back()).filename().string();
  }
  // Converts into an empty directory, where anything left behind is found.
  Outcome convert() {
    fs::remove_all(dir_ / "out");
    fs::create_directory(dir_ / "out");
    return run_ferry_once({"convert", source(), "-o", dir_ / "out/bundle", "--threads", "1"});
  }
  Files bundle() const { return files_in(dir_ / "out/bundle"); }

  void expect_nothing_written(const Outcome& outcome) const {
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("ferry: error: ")) << outcome.err;
    EXPECT_TRUE(fs::is_empty(dir_ / "out")) << outcome.err;
  }

  // Returns numbers of calls from the first to the last.
  std::vector<long> places(const std::string& call) {
    const Fault counting(call + " none 0");
    EXPECT_EQ(convert().code, 0);
    const long count = counting.count();
    EXPECT_GT(count, 3);
    std::vector<long> out;
    for (int i = 0; i < kTriesPerKind; ++i) {
      out.push_back(1 + i * (count - 1) / (kTriesPerKind - 1));
    }
    return out;
  }

  TempDir dir_;
};

TEST_P(FaultTest, InterruptedAndShortTransfersChangeNothing) {
  ASSERT_EQ(convert().code, 0);
  const Files expected = bundle();
  for (const std::string call : {"pread", "pwrite"}) {
    for (const std::string kind : {"short", "errno"}) {
      const Fault fault(call + " " + kind + " 0 " + std::to_string(EINTR));
      const Outcome outcome = convert();
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_TRUE(bundle() == expected) << call << " " << kind;
      EXPECT_GT(fault.count(), 0);
    }
  }
}

TEST_P(FaultTest, AFailingCallIsAnErrorAndLeavesNothing) {
  const std::pair<std::string, int> calls[] = {{"pread", EIO}, {"pwrite", ENOSPC}, {"fsync", EIO}};
  for (const auto& [call, number] : calls) {
    for (const long at : places(call)) {
      SCOPED_TRACE(call + " " + std::to_string(at));
      const std::string text = call + " errno " + std::to_string(at) + " " + std::to_string(number);
      Outcome outcome;
      {
        const Fault fault(text);
        outcome = convert();
      }
      EXPECT_EQ(outcome.code, 5) << outcome.err;
      // The last fsync is that of the parent directory, when the bundle is complete.
      if (call == "fsync" && fs::exists(dir_ / "out/bundle")) {
        EXPECT_EQ(run_ferry_once({"check", dir_ / "out/bundle"}).code, 0);
      } else {
        expect_nothing_written(outcome);
      }
    }
  }
}

TEST_P(FaultTest, AFileThatShrinksIsAnError) {
  for (const long at : places("pread")) {
    for (const char* size : {"100", "20000"}) {
      SCOPED_TRACE(std::to_string(at) + " to " + size);
      const Fault fault("pread truncate " + std::to_string(at) + " " + tensor_file() + " " + size);
      const Outcome outcome = convert();
      // The file is malformed if it shrank before it was opened.
      EXPECT_TRUE(outcome.code == 5 || outcome.code == 3) << outcome.code << outcome.err;
      expect_nothing_written(outcome);
      lay_out(GetParam(), source());
    }
  }
}

// A file is replaced by another valid file. The result must be that of one of the two, or an error.
TEST_P(FaultTest, AFileThatIsReplacedIsNeverMixed) {
  const std::string other = dir_ / "other";
  const auto make_other = [&] {
    std::string bytes = read_bytes(tensor_file());
    if (GetParam().name == "torch") {  // its contents have a CRC, so the file is cut instead
      bytes.resize(bytes.size() / 2);
    } else {
      std::fill(bytes.end() - 4000, bytes.end(), '\0');
    }
    write_bytes(other, bytes);
  };
  ASSERT_EQ(convert().code, 0);
  const Files before = bundle();
  make_other();
  const std::string saved = read_bytes(tensor_file());
  write_bytes(tensor_file(), read_bytes(other));
  const Files after = convert().code == 0 ? bundle() : Files();
  write_bytes(tensor_file(), saved);
  ASSERT_TRUE(before != after);
  for (const long at : places("pread")) {
    SCOPED_TRACE(at);
    make_other();
    const Fault fault("pread replace " + std::to_string(at) + " " + tensor_file() + " " + other);
    const Outcome outcome = convert();
    if (outcome.code == 0) {
      EXPECT_TRUE(bundle() == before || bundle() == after);
    } else {
      EXPECT_TRUE(outcome.code == 5 || outcome.code == 3) << outcome.code << outcome.err;
      expect_nothing_written(outcome);
    }
    lay_out(GetParam(), source());
  }
}

INSTANTIATE_TEST_SUITE_P(Inputs, FaultTest, testing::ValuesIn(kInputs),
                         [](const auto& input) { return input.param.name; });

// Each reader is tested by itself.
TEST(Faults, EveryReaderSaysWhatCannotBeRead) {
  for (const char* file :
       {"llama3_tied/model.safetensors", "golden/qwen2/model.safetensors.index.json",
        "llama3_tied_bin/pytorch_model.bin", "torch/views_zipped.bin", "gguf/gemma3_q8_0.gguf"}) {
    SCOPED_TRACE(file);
    long count = 0;
    {
      const Fault counting("pread none 0");
      ASSERT_EQ(run_ferry_once({"inspect", fixture(file)}).code, 0);
      count = counting.count();
      ASSERT_GT(count, 0);
    }
    for (long at = 1; at <= count; at += 1 + count / 12) {
      const Fault fault("pread errno " + std::to_string(at) + " " + std::to_string(EIO));
      const Outcome outcome = run_ferry_once({"inspect", fixture(file)});
      EXPECT_EQ(outcome.code, 5) << outcome.err;
      EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
      EXPECT_NE(outcome.err.find("cannot read at offset"), std::string::npos) << outcome.err;
    }
  }
}

TEST(Faults, StatisticsThatCannotBeWrittenLeaveNoFile) {
  const TempDir dir;
  ASSERT_EQ(run_ferry_once({"convert", fixture("llama3_tied"), "-o", dir / "b"}).code, 0);
  for (const auto& [call, number] : {std::pair("pwrite", ENOSPC), std::pair("fsync", EIO)}) {
    const Fault fault(std::string(call) + " errno 1 " + std::to_string(number));
    const Outcome outcome = run_ferry_once(
        {"run", dir / "b", "--tokens", "1,2", "--stats-json", dir / "s.json", "--quiet"});
    EXPECT_EQ(outcome.code, 5);
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_FALSE(fs::exists(dir / "s.json")) << call;
  }
}

}  // namespace
}  // namespace ferry::faults_test
