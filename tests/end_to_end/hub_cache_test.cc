// A model in the layout of the Hugging Face cache, where every file is a link to a blob.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::hub_cache_test {
namespace {

namespace fs = std::filesystem;

// Makes a cache of the checkpoint and returns the snapshot's directory.
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
  // The first checkpoint is one file, the second has shards and an index.
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

// The verbs find the model by its name, and make what they make of the folder.
TEST(HubCache, ANameConvertsLikeThePlainDirectory) {
  const TempDir dir;
  make_cache(dir, "llama3_tied");
  const std::vector<std::string> cache = {"HF_HUB_CACHE=" + dir.path()};
  const Outcome named = run_program(FERRY_BINARY, {"convert", "a/b", "-o", dir / "a"}, cache);
  ASSERT_EQ(named.code, 0) << named.err;
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "b"}).code, 0);
  EXPECT_TRUE(files_in(dir / "a") == files_in(dir / "b"));
  const Outcome verified =
      run_program(FERRY_BINARY, {"verify", dir / "a", "--checkpoint", "a/b@0f1e2d"}, cache);
  EXPECT_EQ(verified.code, 0) << verified.err;
  for (const char* verb : {"inspect", "audit", "check"}) {
    const Outcome outcome = run_program(FERRY_BINARY, {verb, "a/b"}, cache);
    EXPECT_EQ(outcome.code, 0) << verb << outcome.err;
  }
  const Outcome planned =
      run_program(FERRY_BINARY, {"batch", "plan", "a/b", "--out-dir", dir / "c"}, cache);
  EXPECT_EQ(planned.code, 0) << planned.err;
}

TEST(HubCache, AGgufFileIsFoundByItsName) {
  const TempDir dir;
  const std::string snapshot = dir / "models--o--m-GGUF/snapshots/0f1e2d";
  fs::create_directories(dir / "models--o--m-GGUF/blobs");
  fs::create_directories(snapshot);
  const Outcome made = run_ferry({"convert", fixture("llama3_tied"), "--to", "gguf", "--outtype",
                                  "f16", "-o", dir / "m.gguf"});
  ASSERT_EQ(made.code, 0) << made.err;
  fs::rename(dir / "m.gguf", dir / "models--o--m-GGUF/blobs/5ha1");
  fs::create_symlink("../../blobs/5ha1", snapshot + "/m-F16.gguf");
  const std::vector<std::string> cache = {"HF_HUB_CACHE=" + dir.path()};
  for (const std::string name : {"o/m-GGUF", "o/m-GGUF:f16", "o/m-GGUF/m-F16.gguf"}) {
    for (const std::vector<std::string>& line :
         {std::vector<std::string>{"inspect", name},
          {"check", name},
          {"run", name, "--tokens", "1,2", "--max-new", "2", "--ignore-eos"}}) {
      const Outcome outcome = run_program(FERRY_BINARY, line, cache);
      EXPECT_EQ(outcome.code, 0) << line.front() << ": " << outcome.err;
    }
  }
}

TEST(HubCache, AShardThatIsNotThereIsToBeDownloaded) {
  const TempDir dir;
  const std::string snapshot = make_cache(dir, "golden/qwen2");
  size_t removed = 0;
  for (const auto& entry : fs::directory_iterator(snapshot)) {
    if (entry.path().filename().string().find("-of-") == std::string::npos || removed > 0) continue;
    fs::remove(entry.path());
    ++removed;
  }
  ASSERT_EQ(removed, 1u);
  const Outcome outcome = run_ferry({"convert", snapshot, "-n"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("; to download the rest: hf download a/b --revision 0f1e2d"),
            std::string::npos)
      << outcome.err;
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

// Models of sentence-transformers have folders, in which the links lead further up.
TEST(HubCache, FoldersOfModulesAreReadLikePlainOnes) {
  const TempDir dir;
  const fs::path source = fixture("encoder/mistral_two_way");
  const fs::path snapshot = dir / "models--a--b/snapshots/0f1e2d";
  fs::create_directories(dir / "models--a--b/blobs");
  size_t blob = 0;
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    const fs::path place = snapshot / fs::relative(entry.path(), source);
    fs::create_directories(entry.is_directory() ? place : place.parent_path());
    if (entry.is_directory()) continue;
    const std::string hash = "5ha" + std::to_string(++blob);
    fs::copy_file(entry.path(), dir / "models--a--b/blobs/" + hash);
    const bool inner = place.parent_path() != snapshot;
    fs::create_symlink((inner ? "../../../blobs/" : "../../blobs/") + hash, place);
  }
  const Outcome linked = run_ferry({"convert", snapshot.string(), "-o", dir / "a"});
  const Outcome plain = run_ferry({"convert", source.string(), "-o", dir / "b"});
  ASSERT_EQ(linked.code, 0) << linked.err;
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_TRUE(files_in(dir / "a") == files_in(dir / "b"));
}

// Moves `place` out of the folder and leaves a link there.
void move_out(const TempDir& dir, const fs::path& place) {
  fs::rename(place, dir / "outside");
  fs::create_symlink(dir / "outside", place);
}

TEST(HubCache, LinksOutOfFoldersOfModulesAreRefused) {
  for (const std::string name : {"1_Pooling", "2_Dense", "2_Dense/model.safetensors"}) {
    const TempDir dir;
    const fs::path source = dir / "checkpoint";
    fs::copy(fixture("encoder/mistral_two_way"), source, fs::copy_options::recursive);
    move_out(dir, source / name);
    const Outcome outcome = run_ferry({"convert", source.string(), "-o", dir / "out"});
    EXPECT_EQ(outcome.code, 3) << name;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_NE(outcome.err.find((source / name).string() + ": a symbolic link "), std::string::npos)
        << outcome.err;
  }
}

TEST(HubCache, LinksOutOfAdaptersAreRefused) {
  for (const std::string name : {"adapter_config.json", "adapter_model.safetensors"}) {
    const TempDir dir;
    const fs::path adapter = dir / "adapter";
    fs::copy(fixture("lora"), adapter);
    move_out(dir, adapter / name);
    const Outcome outcome = run_ferry(
        {"convert", fixture("golden/llama"), "--lora", adapter.string(), "-o", dir / "out"});
    EXPECT_EQ(outcome.code, 3) << name;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_NE(outcome.err.find((adapter / name).string() + ": a symbolic link out of"),
              std::string::npos)
        << outcome.err;
  }
}

}  // namespace
}  // namespace ferry::hub_cache_test
