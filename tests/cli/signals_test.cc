// SIGINT, SIGTERM and SIGHUP: the work stops soon, nothing is left behind, and the exit code tells
// the signal.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <thread>

#include "tests/cli/ferry_process.h"

namespace ferry::signals_test {
namespace {

namespace fs = std::filesystem;
using Line = std::vector<std::string>;
using namespace std::chrono_literals;

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};

// Returns llama3_tied with a vocabulary of `rows`, so that it is as large as a test needs. Its
// zeros are a hole in the file.
std::string large_checkpoint(const TempDir& dir, uint64_t rows) {
  const std::string copy = dir / "checkpoint";
  fs::copy(fixture("llama3_tied"), copy);
  TensorFile file(copy + "/model.safetensors");
  const std::string name = "model.embed_tokens.weight";
  const uint64_t before = file.data.size(), bytes = rows * 64 * 4;
  file.rename(name, "left.out");  // the old table keeps its place in the data under another name,
                                  // which --allow-unmapped permits
  file.header[name] = {
      {"dtype", "F32"}, {"shape", {rows, 64}}, {"data_offsets", {before, before + bytes}}};
  file.write(copy + "/model.safetensors");
  fs::resize_file(copy + "/model.safetensors", fs::file_size(copy + "/model.safetensors") + bytes);
  auto config = nlohmann::json::parse(read_bytes(copy + "/config.json"));
  config["vocab_size"] = rows;
  write_bytes(copy + "/config.json", config.dump());
  return copy;
}

// Waits until the directory `path` has an entry whose name begins with `prefix`.
bool appears(const std::string& path, const std::string& prefix) {
  for (int i = 0; i < 2000; ++i) {
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().filename().string().starts_with(prefix)) return true;
    }
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

const char* name_of(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGHUP";
}

TEST(Signals, AConversionStopsAndLeavesNothing) {
  const TempDir dir;
  const std::string source = large_checkpoint(dir, uint64_t{4} << 20);  // 1 GiB
  for (const int signal : kStopSignals) {
    SCOPED_TRACE(name_of(signal));
    const TempDir out;
    RunningFerry ferry({"convert", source, "-o", out / "b", "--allow-unmapped", "left.out",
                        "--json", "--threads", "2"});
    ASSERT_TRUE(appears(out.path(), ".b.ferry-tmp-"));
    ferry.signal(signal);
    const Outcome outcome = ferry.wait();
    EXPECT_EQ(outcome.code, 128 + signal) << outcome.err;
    EXPECT_EQ(outcome.err, std::string("ferry: error: stopped by ") + name_of(signal) + "\n");
    EXPECT_EQ(outcome.json()["error"]["code"], "interrupted");
    EXPECT_EQ(outcome.json()["exit"], 128 + signal);
    EXPECT_TRUE(fs::is_empty(out.path()));
  }
}

TEST(Signals, TheSecondEndsTheProcess) {
  const TempDir dir, out;
  const std::string source = large_checkpoint(dir, uint64_t{4} << 20);
  RunningFerry ferry(
      {"convert", source, "-o", out / "b", "--allow-unmapped", "left.out", "--threads", "1"});
  ASSERT_TRUE(appears(out.path(), ".b.ferry-tmp-"));
  ferry.signal(SIGSTOP);  // so that both signals are pending at once
  ferry.signal(SIGINT);
  ferry.signal(SIGTERM);
  ferry.signal(SIGCONT);
  EXPECT_EQ(ferry.wait().code, -1);
}

TEST(Signals, IgnoredOnesStayIgnored) {
  const TempDir dir;
  const auto before = ::signal(SIGHUP, SIG_IGN);  // as nohup does
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "b"}).code, 0);
  RunningFerry ferry({"run", dir / "b", "--tokens", "1", "--max-new", "100", "--ignore-eos"});
  ferry.signal(SIGHUP);
  EXPECT_EQ(ferry.wait().code, 0);
  ::signal(SIGHUP, before);
}

class InterruptedRun : public testing::Test {
 protected:
  // Makes a run so long that no machine is done before the signal comes.
  InterruptedRun() {
    auto config = nlohmann::json::parse(read_bytes(fixture("llama3_tied/config.json")));
    config["max_position_embeddings"] = 100000;
    write_bytes(dir_ / "config.json", config.dump());
    EXPECT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", dir_ / "b", "--config",
                         dir_ / "config.json", "--context-length", "100000"})
                  .code,
              0);
  }
  // Interrupts the run. The delay grows, for machines that are too busy to have made a token by
  // then.
  Outcome interrupt(const Line& more) {
    Line line = {"run", dir_ / "b", "--tokens", "1,2,3", "--max-new", "90000", "--ignore-eos"};
    line.insert(line.end(), more.begin(), more.end());
    Outcome outcome;
    for (const auto delay : {150ms, 2000ms, 10000ms}) {
      RunningFerry ferry(line);
      std::this_thread::sleep_for(delay);
      ferry.signal(SIGINT);
      outcome = ferry.wait();
      const bool json = outcome.out.starts_with('{');
      if (outcome.out.find(json ? "\"tokens\"" : ",") != std::string::npos) break;
    }
    return outcome;
  }
  TempDir dir_;
};

TEST_F(InterruptedRun, PrintsTheTokensThatItHas) {
  const Outcome outcome = interrupt({"--quiet"});
  EXPECT_EQ(outcome.code, 130);
  EXPECT_EQ(outcome.err, "ferry: error: stopped by SIGINT\n");
  const auto count = std::ranges::count(outcome.out, ',') + 1;
  EXPECT_GT(count, 1);
  EXPECT_LT(count, 90000);
  const Outcome whole = run_ferry({"run", dir_ / "b", "--tokens", "1,2,3", "--ignore-eos",
                                   "--max-new", std::to_string(count), "--quiet"});
  EXPECT_EQ(outcome.out, whole.out);
}

TEST_F(InterruptedRun, SaysSoInItsDocument) {
  const Outcome outcome = interrupt({"--json"});
  EXPECT_EQ(outcome.code, 130);
  const auto document = outcome.json();
  EXPECT_EQ(document["result"]["stop"], "interrupted");
  EXPECT_EQ(document["ok"], false);
  EXPECT_EQ(document["exit"], 130);
  EXPECT_EQ(document["error"]["code"], "interrupted");
  EXPECT_GT(document["result"]["tokens"].size(), 1U);
}

TEST_F(InterruptedRun, IsNotJudgedAndHasStatistics) {
  write_bytes(dir_ / "t.json", R"({"max_bytes": {"total": 1}})");
  const Outcome outcome =
      interrupt({"--thresholds", dir_ / "t.json", "--stats-json", dir_ / "s.json", "--quiet"});
  EXPECT_EQ(outcome.code, 130);
  EXPECT_EQ(outcome.err, "ferry: error: stopped by SIGINT\n");
  EXPECT_EQ(nlohmann::json::parse(read_bytes(dir_ / "s.json"))["generated_tokens"],
            std::ranges::count(outcome.out, ','));
}

}  // namespace
}  // namespace ferry::signals_test
