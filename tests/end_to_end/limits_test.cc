// Limits of the operating system: memory, threads, open files.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/cli/ferry_process.h"

namespace ferry::limits_test {
namespace {

// Sets a limit of this process, which its children inherit, until the end of the scope.
class Limit {
 public:
  Limit(int resource, rlim_t most) : resource_(resource) {
    ::getrlimit(static_cast<__rlimit_resource_t>(resource_), &saved_);
    const rlimit limit{most, saved_.rlim_max};
    ::setrlimit(static_cast<__rlimit_resource_t>(resource_), &limit);
  }
  ~Limit() { ::setrlimit(static_cast<__rlimit_resource_t>(resource_), &saved_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  int resource_;
  rlimit saved_{};
};

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() : bundle(dir / "b") {
    EXPECT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", bundle, "--quiet"}).code, 0);
  }
  TempDir dir;
  std::string bundle;
};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(LimitsTest, RefusedThreadsAreDoneWithout) {
  const std::vector<std::string> args = {"run",       bundle, "--tokens", "1,2,3",
                                         "--max-new", "4",    "--quiet"};
  const Outcome plain = run_ferry(args);
  ASSERT_EQ(plain.code, 0) << plain.err;
  const Limit memory(RLIMIT_AS, rlim_t{2} << 30);
  std::vector<std::string> many = args;
  many.insert(many.end(), {"--threads", "1024"});
  const Outcome limited = run_ferry(many);
  EXPECT_EQ(limited.code, 0) << limited.err;
  EXPECT_EQ(limited.out, plain.out);
}

TEST_F(LimitsTest, TooLittleMemoryIsAnIoError) {
  // The manifest is read as a whole and needs more memory than the limit leaves.
  write_bytes(bundle + "/manifest.json", std::string(size_t{60} << 20, ' '));
  const Limit memory(RLIMIT_AS, rlim_t{64} << 20);
  const Outcome outcome = run_ferry({"check", bundle, "--threads", "1"});
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.err, "ferry: error: not enough memory\n");
}
#endif

TEST_F(LimitsTest, MoreShardsThanFilesThatMayBeOpen) {
  // Each tensor is in a file of its own.
  const TensorFile whole(fixture("llama3_tied/model.safetensors"));
  nlohmann::json index = {{"metadata", nlohmann::json::object()}};
  size_t number = 0;
  for (const auto& [name, entry] : whole.header.items()) {
    if (name == "__metadata__") continue;
    const std::string file = fmt::format("model-{:05}.safetensors", ++number);
    TensorFile part = whole;
    part.header = nlohmann::ordered_json::object();
    part.data.clear();
    part.append(name, entry["dtype"], entry["shape"], whole.bytes_of(name));
    std::filesystem::create_directories(dir / "split");
    part.write(dir / ("split/" + file));
    index["weight_map"][name] = file;
  }
  ASSERT_GT(number, 15u);
  write_bytes(dir / "split/model.safetensors.index.json", index.dump());
  std::filesystem::copy_file(fixture("llama3_tied/config.json"), dir / "split/config.json");
  // The shell sets the soft and the hard limit, so that ferry cannot raise it. This process needs
  // its own limit.
  const std::string command =
      fmt::format("ulimit -n 20; exec '{}' convert '{}' -o '{}' --quiet >/dev/null 2>'{}'",
                  FERRY_BINARY, dir / "split", dir / "out", dir / "err");
  EXPECT_EQ(std::system(command.c_str()), 0) << read_bytes(dir / "err");
  const std::string weights = "/decoder-00001-of-00001.ptd";
  EXPECT_EQ(read_bytes(dir / "out" + weights), read_bytes(bundle + weights));
}

TEST_F(LimitsTest, PlannedMemoryBeyondTheOptionIsRefused) {
  const std::vector<std::string> run = {"run", bundle, "--tokens", "1,2", "--quiet", "--memory"};
  const auto with = [&](const std::string& bytes) {
    std::vector<std::string> args = run;
    args.push_back(bytes);
    return run_ferry(args);
  };
  EXPECT_EQ(with("1000000000").code, 0);
  const Outcome refused = with("1000");
  EXPECT_EQ(refused.code, 5);
  EXPECT_NE(refused.err.find("exceeds the 1000 bytes that --memory allows"), std::string::npos);
  EXPECT_EQ(with("0").code, 2);
}

}  // namespace
}  // namespace ferry::limits_test
