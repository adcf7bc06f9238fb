#include "checkpoint/checkpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "formats/safetensors/writer.h"
#include "tests/formats/opening_message.h"
#include "tests/formats/temp_dir.h"

namespace ferry::checkpoint::checkpoint_test {
namespace {

namespace fs = std::filesystem;

void write_shard(const std::string& path, const std::vector<std::string>& names) {
  fs::create_directories(fs::path(path).parent_path());
  std::vector<formats::TensorData> tensors;
  const std::byte data[1] = {};
  for (const std::string& name : names) tensors.push_back({{name, DType::kU8, {1}}, data});
  ASSERT_TRUE(formats::write_safetensors(path, tensors));
}

constexpr std::string_view kIndex = "model.safetensors.index.json";

TEST(Checkpoint, ADirectoryWithOneFile) {
  TempDir dir;
  write_shard(dir / "model.safetensors", {"a"});
  const auto source = open_tensors(dir.path()).value();
  EXPECT_EQ(source->path(), dir.path());
  EXPECT_EQ(source->files()[0].name, "model.safetensors");
  EXPECT_EQ(source->entries()[0].name, "a");
}

TEST(Checkpoint, ShardsAreReadInTheOrderOfTheirNames) {
  TempDir dir;
  write_shard(dir / "model.safetensors-00002-of-00002.safetensors", {"a"});
  write_shard(dir / "model.safetensors-00001-of-00002.safetensors", {"b", "c"});
  dir.write(kIndex, R"({"weight_map": {"a": "model.safetensors-00002-of-00002.safetensors",
      "b": "model.safetensors-00001-of-00002.safetensors",
      "c": "model.safetensors-00001-of-00002.safetensors"}})");
  for (const std::string& path : {dir.path(), dir.path() + "/", dir / kIndex}) {
    const auto source = open_tensors(path).value();
    ASSERT_EQ(source->entries().size(), 3u);
    EXPECT_EQ(source->entries()[0].name, "b");
    EXPECT_EQ(source->entries()[2].name, "a");
    EXPECT_EQ(source->entries()[2].file, 1u);
    EXPECT_EQ(source->files()[1].name, "model.safetensors-00002-of-00002.safetensors");
  }
}

TEST(Checkpoint, AllMissingFilesAreListed) {
  TempDir dir;
  write_shard(dir / "2.safetensors", {"b"});
  dir.write(
      kIndex,
      R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "3.safetensors"}})");
  const auto source = open_tensors(dir.path());
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().message,
            (dir / kIndex) + ": 2 of 3 files are missing: '1.safetensors', ... (tensor 'a')");
  EXPECT_EQ(source.error().details,
            (std::vector<std::string>{"missing '1.safetensors'", "missing '3.safetensors'"}));
}

TEST(Checkpoint, AllDisagreementsWithTheIndexAreListed) {
  TempDir dir;
  write_shard(dir / "1.safetensors", {"a", "extra"});
  write_shard(dir / "2.safetensors", {"b"});
  dir.write(kIndex, R"({"weight_map": {"a": "2.safetensors", "b": "2.safetensors",
                                       "gone": "1.safetensors"}})");
  const auto source = open_tensors(dir.path());
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().details,
            (std::vector<std::string>{
                "in '1.safetensors', but the index says '2.safetensors' (tensor 'a')",
                "the index does not name a tensor of '1.safetensors' (tensor 'extra')",
                "not in '1.safetensors' (tensor 'gone')"}));
}

TEST(Checkpoint, TheLinksOfTheHubCacheAreFollowed) {
  TempDir dir;
  const std::string snapshot = dir / "snapshots/0a1b";
  fs::create_directories(snapshot);
  write_shard(dir / "blobs/aa", {"a"});
  write_shard(dir / "blobs/bb", {"b"});
  dir.write("blobs/cc", R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  fs::create_symlink("../../blobs/aa", snapshot + "/1.safetensors");
  fs::create_symlink("../../blobs/bb", snapshot + "/2.safetensors");
  fs::create_symlink("../../blobs/cc", snapshot + "/" + std::string(kIndex));
  EXPECT_EQ(formats::opening_message(snapshot), "accepted");
  EXPECT_EQ(formats::opening_message(snapshot + "/" + std::string(kIndex)), "accepted");
}

TEST(Checkpoint, OtherLinksOutOfTheDirectoryAreRefused) {
  const std::string targets[] = {
      "../secret.safetensors", "../../blobs/x/y", "../blobs/..",     "../blobs/",
      "../other/blobs/secret", "../blobs/link",   "blobs/../secret", "missing/../../secret"};
  TempDir dir;
  write_shard(dir / "secret.safetensors", {"a"});
  write_shard(dir / "blobs/real", {"a"});
  fs::create_symlink("../secret.safetensors", dir / "blobs/link");
  fs::create_directory(dir / "in");
  std::vector<std::string> all(std::begin(targets), std::end(targets));
  all.push_back(dir / "secret.safetensors");  // an absolute path
  for (const std::string& target : all) {
    const std::string link = dir / "in/model.safetensors";
    fs::create_symlink(target, link);
    EXPECT_NE(formats::opening_message(dir / "in")
                  .find("a symbolic link out of the checkpoint directory"),
              std::string::npos)
        << target;
    fs::remove(link);
  }
  fs::create_symlink("../secret.safetensors", dir / "in/model.safetensors");
  EXPECT_EQ(formats::opening_message(dir / "in", {.follow_symlinks = true}), "accepted");
}

TEST(Checkpoint, LinksWithinTheDirectoryAreFollowed) {
  TempDir dir;
  write_shard(dir / "real.safetensors", {"a"});
  fs::create_symlink("real.safetensors", dir / "model.safetensors");
  EXPECT_EQ(formats::opening_message(dir.path()), "accepted");
  EXPECT_EQ(formats::opening_message(dir / "model.safetensors"), "accepted");
}

TEST(Checkpoint, ALinkInAShardNamesTheTensor) {
  TempDir dir;
  fs::create_symlink("/etc/passwd", dir / "evil.safetensors");
  dir.write(kIndex, R"({"weight_map": {"a": "evil.safetensors"}})");
  EXPECT_EQ(formats::opening_message(dir.path()),
            (dir / "evil.safetensors") +
                ": a symbolic link out of the checkpoint directory, to "
                "'/etc/passwd' (tensor 'a')");
}

TEST(Checkpoint, FilesOfOtherFormatsAreUnsupported) {
  for (const std::string name : {"x.msgpack", "x.keras"}) {
    TempDir dir;
    dir.write(name, "x");
    for (const std::string& path : {dir / name, dir.path()}) {
      const auto source = open_tensors(path);
      ASSERT_FALSE(source);
      EXPECT_EQ(source.error().code, ErrorCode::kUnsupported) << source.error().message;
    }
  }
}

TEST(Checkpoint, AKerasArchiveIsUnsupportedWithAdvice) {
  TempDir dir;
  EXPECT_EQ(formats::opening_message(dir.write("x.keras", "PK")),
            (dir / "x.keras") +
                ": Keras checkpoints are not supported; it is a zip archive: "
                "unpack it, and open its model.weights.h5");
}

TEST(Checkpoint, AnIndexOfOtherFilesIsUnsupported) {
  TempDir dir;
  const std::string path =
      dir.write("model.safetensors.index.json", R"({"weight_map": {"a": "pytorch_model-1.bin"}})");
  const auto source = open_tensors(path);
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, ErrorCode::kUnsupported);
}

TEST(Checkpoint, AnAbsentPathIsAnIoError) {
  TempDir dir;
  for (const std::string name : {"absent", "absent.safetensors", "absent.bin", "a.index.json"}) {
    const auto source = open_tensors(dir / name);
    ASSERT_FALSE(source);
    EXPECT_EQ(source.error().code, ErrorCode::kIo);
    EXPECT_NE(source.error().message.find(name), std::string::npos);
  }
}

TEST(Checkpoint, AnEmptyDirectoryIsExplained) {
  TempDir dir;
  EXPECT_EQ(formats::opening_message(dir.path()),
            dir.path() +
                ": no checkpoint in this directory: none of model.safetensors, "
                "model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json, "
                "model.weights.h5, model.weights.json, and no .gguf file");
  dir.write("other.safetensors", "");
  EXPECT_EQ(formats::opening_message(dir.path()), dir.path() +
                                                      ": neither model.safetensors nor "
                                                      "model.safetensors.index.json, only "
                                                      "'other.safetensors'");
}

TEST(Checkpoint, AnEntryOfTheHubCacheNamesItsSnapshot) {
  TempDir dir;
  const std::string entry = dir / "models--org--name";
  dir.write("models--org--name/snapshots/abc123/config.json", "{}");
  dir.write("models--org--name/blobs/0", "");
  const std::string message = entry + ": an entry of the Hugging Face cache; the checkpoint is ";
  EXPECT_EQ(formats::opening_message(entry), message + "'" + entry + "/snapshots/abc123'");
  dir.write("models--org--name/snapshots/def456/config.json", "{}");
  EXPECT_EQ(formats::opening_message(entry), message + "'" + entry + "/snapshots/REVISION'");
  dir.write("models--org--name/refs/main", "def456");
  EXPECT_EQ(formats::opening_message(entry), message + "'" + entry + "/snapshots/def456'");
  dir.write("models--org--name/refs/main", "../../elsewhere");
  EXPECT_EQ(formats::opening_message(entry), message + "'" + entry + "/snapshots/REVISION'");
}

TEST(Checkpoint, ANameOnTheHubMustBeDownloadedFirst) {
  const std::string message = formats::opening_message("Qwen/Qwen3-0.6B");
  EXPECT_TRUE(message.ends_with("; to download it: hf download Qwen/Qwen3-0.6B")) << message;
  for (const char* path : {"./Qwen/absent", "/Qwen/absent", "a/b/c", "absent"}) {
    EXPECT_EQ(formats::opening_message(path).find("download"), std::string::npos) << path;
  }
}

TEST(Checkpoint, FilesOfOtherKindsAreToldFromBrokenOnes) {
  TempDir dir;
  const std::string text = "root:x:0:0:root:/root:/bin/bash\n";
  for (const char* name : {"passwd", "config.json", "short"}) {
    const std::string path = dir.write(name, name == std::string("short") ? "{}" : text);
    EXPECT_TRUE(
        formats::opening_message(path).starts_with(path + ": no tensor file of a known kind"))
        << formats::opening_message(path);
  }
  // A file that looks like safetensors, by its name or by its first bytes, gets the error of the
  // safetensors reader.
  for (const std::string& path :
       {dir.write("a.safetensors", text), dir.write("b", std::string("\x7f\0\0\0\0\0\0\0{", 9))}) {
    EXPECT_NE(formats::opening_message(path).find("header of "), std::string::npos)
        << formats::opening_message(path);
  }
}

TEST(Checkpoint, ShardsWithoutTheirIndexNameIt) {
  TempDir dir;
  dir.write("golden.safetensors", "");
  dir.write("model-00002-of-00003.safetensors", "");
  EXPECT_EQ(formats::opening_message(dir.path()),
            dir.path() +
                ": 'model.safetensors.index.json' is missing, the index of the shards "
                "('model-00002-of-00003.safetensors')");
  TempDir torch;
  torch.write("pytorch_model-00001-of-00002.bin", "");
  EXPECT_EQ(formats::opening_message(torch.path()),
            torch.path() +
                ": 'pytorch_model.bin.index.json' is missing, the index of the shards "
                "('pytorch_model-00001-of-00002.bin')");
  TempDir other;
  other.write("model-0001-of-00002.safetensors", "");
  EXPECT_NE(formats::opening_message(other.path()).find("neither"), std::string::npos);
}

TEST(Checkpoint, TheDirectoryOfAFileHoldsItsConfig) {
  TempDir dir;
  write_shard(dir / "model.safetensors", {"a"});
  EXPECT_EQ(open_checkpoint(dir.path())->directory.path(), dir.path());
  EXPECT_EQ(open_checkpoint(dir / "model.safetensors")->directory.path(), dir.path());
}

// A directory is read through the handle that was opened, also after its path names another one.
TEST(Checkpoint, ADirectoryIsOpenedOnce) {
  TempDir dir;
  write_shard(dir / "in/model.safetensors", {"a"});
  write_shard(dir / "other/model.safetensors", {"b"});
  dir.write("in/config.json", "{}");
  dir.write("other/config.json", "[]");
  const Checkpoint checkpoint = open_checkpoint(dir / "in").value();
  fs::rename(dir / "in", dir / "was");
  fs::rename(dir / "other", dir / "in");
  const InputFile config = open_in_checkpoint(checkpoint.directory, "config.json").value();
  EXPECT_EQ(config.path(), dir / "in/config.json");
  EXPECT_EQ(read_text(config, 10).value(), "{}");
}

// Another thread exchanges the file and a link again and again.
TEST(Checkpoint, ALinkThatIsPutInPlaceMeanwhileIsNotFollowed) {
  TempDir dir;
  dir.write("secret", "secret");
  fs::create_directory(dir / "in");
  dir.write("in/config.json", "plain");
  fs::create_symlink("../secret", dir / "in/link");
  const Directory directory = Directory::open(dir / "in").value();
  std::atomic<bool> done = false;
  std::thread other([&] {
    const std::string link = dir / "in/link", file = dir / "in/config.json";
    while (!done) {
      ::renameat2(AT_FDCWD, link.c_str(), AT_FDCWD, file.c_str(), RENAME_EXCHANGE);
    }
  });
  // On one processor the link may stay in place while the other thread waits.
  size_t opened = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int i = 0; i < 5000 || (opened == 0 && std::chrono::steady_clock::now() < end); ++i) {
    const auto file = open_in_checkpoint(directory, "config.json");
    if (!file) continue;
    ++opened;
    EXPECT_EQ(file->size(), 5u);
  }
  done = true;
  other.join();
  EXPECT_GT(opened, 0u);
}

}  // namespace
}  // namespace ferry::checkpoint::checkpoint_test
