// A model as the Hugging Face cache has it: every file a link to a blob.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::hub_cache_test {
namespace {

namespace fs = std::filesystem;

// Returns the snapshot's directory.
std::string make_cache(const TempDir& dir, const std::string& checkpoint) {
  const std::string snapshot = dir / "models--a--b/snapshots/0f1e2d";
  fs::create_directories(dir / "models--a--b/blobs");
  fs::create_directories(snapshot);
  size_t blob = 0;
  for (const auto& entry : fs::directory_iterator(fixture(checkpoint))) {
    const std::string name = entry.path().filename().string();
    if (name == "golden.safetensors") continue;
    const std::string hash = "5ha" + std::to_string(++blob);
    fs::copy_file(entry.path(), dir / "models--a--b/blobs/" + hash);
    fs::create_symlink("../../blobs/" + hash, snapshot + "/" + name);
  }
  return snapshot;
}

TEST(HubCache, ASnapshotConvertsLikeThePlainDirectory) {
  // One file; shards with an index.
  for (const std::string name : {"llama3_tied", "golden/qwen2"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const std::string snapshot = make_cache(dir, name);
    EXPECT_EQ(run_ferry({"inspect", snapshot}).code, 0);
    const Outcome linked = run_ferry({"convert", snapshot, "-o", dir / "a"});
    const Outcome plain = run_ferry({"convert", fixture(name), "-o", dir / "b"});
    ASSERT_EQ(linked.code, 0) << linked.err;
    ASSERT_EQ(plain.code, 0) << plain.err;
    EXPECT_TRUE(files_in(dir / "a") == files_in(dir / "b"));
  }
}

TEST(HubCache, LinksToAnywhereElseAreRefused) {
  for (const char* file : {"config.json", "model.safetensors"}) {
    const TempDir dir;
    const std::string snapshot = make_cache(dir, "llama3_tied");
    const std::string link = snapshot + "/" + file;
    fs::remove(link);
    fs::create_symlink(fixture("llama3_tied/") + file, link);
    const Outcome outcome = run_ferry({"convert", snapshot, "-o", dir / "out"});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_EQ(outcome.error_lines(), 1u);
    EXPECT_NE(outcome.err.find(link + ": a symbolic link out of the checkpoint directory, to '"),
              std::string::npos)
        << outcome.err;
  }
}

}  // namespace
}  // namespace ferry::hub_cache_test
