#include "patch/apply_patch.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "core/sha256.h"
#include "tests/patch/folders.h"

namespace ferry::apply_patch_test {
namespace {

namespace fs = std::filesystem;

// Two small checkpoints whose patch has operations of every kind.
FolderContents old_files() {
  std::string ramp;
  for (int i = 0; i < 4000; ++i) ramp += static_cast<char>(i * i / 64);
  return {{"config.json", "{}"},
          {"model.safetensors",
           safetensors_of({{"same", noise(600, 1)}, {"sparse", noise(2000, 2)}, {"dense", ramp}})},
          {"only_old", noise(50, 3)}};
}
FolderContents new_files() {
  std::string ramp, sparse = noise(2000, 2);
  for (int i = 0; i < 4000; ++i) ramp += static_cast<char>(i * i / 64 + i % 3);
  sparse[70] = 'x';
  sparse[1900] = 'y';
  return {{"config.json", "{}"},
          {"model.safetensors", safetensors_of({{"added", noise(90, 9)},
                                                {"same", noise(600, 1)},
                                                {"sparse", sparse},
                                                {"dense", ramp}})},
          {"text", "data of no old file"}};
}

class ApplyPatch : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(trial_.make()); }
  std::string refusal(const patch::ApplyOptions& options = {}) {
    const auto applied = trial_.apply(options);
    return applied ? "" : applied.error().message;
  }
  PatchTrial trial_{old_files(), new_files()};
};

TEST_F(ApplyPatch, MakesTheNewFolder) {
  const auto applied = trial_.apply();
  ASSERT_TRUE(applied) << applied.error().message;
  EXPECT_TRUE(trial_.contents(trial_.output()) == new_files());
  EXPECT_EQ(applied->files, 3U);
  EXPECT_EQ(applied->linked, 0U);
}

TEST_F(ApplyPatch, InPlaceKeepsFilesAsTheyAre) {
  struct stat before {
  }, after{};
  const std::string config = trial_.old_folder() + "/config.json";
  ASSERT_EQ(::stat(config.c_str(), &before), 0);
  const auto applied = trial_.apply({.in_place = true});
  ASSERT_TRUE(applied) << applied.error().message;
  EXPECT_TRUE(trial_.contents(trial_.old_folder()) == new_files());
  EXPECT_EQ(applied->linked, 1U);
  ASSERT_EQ(::stat(config.c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_EQ(after.st_nlink, 1U);
  const auto again = trial_.apply({.in_place = true});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(again->was_there);
}

// A file that another folder shares by a hard link stays shared.
TEST_F(ApplyPatch, InPlaceKeepsSharedFilesShared) {
  const std::string other = trial_.old_folder() + ".other";
  fs::create_hard_link(trial_.old_folder() + "/config.json", other);
  ASSERT_TRUE(trial_.apply({.in_place = true}));
  EXPECT_TRUE(fs::equivalent(trial_.old_folder() + "/config.json", other));
  EXPECT_EQ(fs::hard_link_count(other), 2U);
}

TEST_F(ApplyPatch, NamesTheFileOfAnotherOldFolder) {
  const std::string model = trial_.old_folder() + "/model.safetensors";
  std::string bytes = read_bytes(model);
  bytes.back() ^= 1;
  write_bytes(model, bytes);
  EXPECT_NE(refusal().find("model.safetensors: not the file that the patch was made for: its SHA"),
            std::string::npos)
      << refusal();
  write_bytes(model, bytes + "x");
  EXPECT_NE(refusal().find("bytes and not"), std::string::npos) << refusal();
  fs::remove(model);
  EXPECT_NE(refusal().find("does not exist"), std::string::npos) << refusal();
  EXPECT_EQ(trial_.names(), (std::vector<std::string>{"new", "old", "patch"}));
}

// A file that the patch does not read may differ.
TEST_F(ApplyPatch, FilesThatAreNotReadMayDiffer) {
  write_bytes(trial_.old_folder() + "/only_old", "other");
  ASSERT_TRUE(trial_.apply());
  EXPECT_TRUE(trial_.contents(trial_.output()) == new_files());
}

TEST_F(ApplyPatch, ARefusedCheckLeavesEverything) {
  std::string seen;
  const patch::ApplyOptions options{.in_place = true,
                                    .check = [&](const std::string& directory) -> Status {
                                      seen = read_bytes(directory + "/text");
                                      return bad_input("no");
                                    }};
  EXPECT_EQ(refusal(options), "no");
  EXPECT_EQ(seen, "data of no old file");
  EXPECT_TRUE(trial_.contents(trial_.old_folder()) == old_files());
  EXPECT_EQ(trial_.names(), (std::vector<std::string>{"new", "old", "patch"}));
}

TEST_F(ApplyPatch, AnExistingFolderIsKept) {
  fs::create_directory(trial_.output());
  ThreadPool pool(1);
  const auto applied =
      patch::apply_patch(trial_.old_folder(), trial_.patch(), {.output = trial_.output()}, pool);
  ASSERT_FALSE(applied);
  EXPECT_EQ(applied.error().code, ErrorCode::kExists);
}

// -- damaged and hostile patches

std::vector<std::string> sorted_contents(const FolderContents& files) {
  std::vector<std::string> contents;
  for (const auto& [name, bytes] : files) contents.push_back(bytes);
  std::ranges::sort(contents);
  return contents;
}

// Applies a patch of these bytes: it is refused in one line and leaves nothing, or makes the new
// files.
void try_patch(PatchTrial& trial, const std::string& bytes) {
  write_bytes(trial.patch(), bytes);
  const auto applied = trial.apply();
  if (applied) {
    // The digests of files stand. A name can be another one, because nothing in a patch says which
    // names are right; a signature of the new folder does.
    ASSERT_EQ(sorted_contents(trial.contents(trial.output())), sorted_contents(new_files()));
    return;
  }
  const std::string& message = applied.error().message;
  ASSERT_TRUE(applied.error().code == ErrorCode::kBadInput ||
              applied.error().code == ErrorCode::kUnsupported ||
              applied.error().code == ErrorCode::kIo)
      << message;
  ASSERT_FALSE(message.empty());
  ASSERT_EQ(message.find('\n'), std::string::npos);
  ASSERT_FALSE(fs::exists(trial.output()));
}

// Makes the digest of a patch right again.
std::string with_digest(std::string bytes) {
  const size_t hashed = bytes.size() - sizeof(Digest);
  const Digest digest = sha256(std::as_bytes(std::span(bytes).first(hashed)));
  bytes.replace(hashed, sizeof(Digest), reinterpret_cast<const char*>(digest.data()),
                sizeof(Digest));
  return bytes;
}

TEST_F(ApplyPatch, EveryTruncationIsRefused) {
  const std::string bytes = read_bytes(trial_.patch());
  for (size_t size = 0; size < bytes.size(); ++size) {
    write_bytes(trial_.patch(), bytes.substr(0, size));
    ASSERT_FALSE(trial_.apply()) << size;
    ASSERT_FALSE(fs::exists(trial_.output()));
  }
  write_bytes(trial_.patch(), bytes + '\0');
  EXPECT_FALSE(trial_.apply());
}

TEST_F(ApplyPatch, EveryBitFlipIsRefused) {
  const std::string bytes = read_bytes(trial_.patch());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    write_bytes(trial_.patch(), damaged);
    ASSERT_FALSE(trial_.apply()) << bit;
    ASSERT_FALSE(fs::exists(trial_.output()));
  }
}

// Somebody who makes a patch can make its digest right.
TEST_F(ApplyPatch, FlipsUnderARightDigestAreRefusedOrHarmless) {
  const std::string bytes = read_bytes(trial_.patch());
  for (size_t bit = 0; bit < 8 * (bytes.size() - sizeof(Digest)); ++bit) {
    SCOPED_TRACE(bit);
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_NO_FATAL_FAILURE(try_patch(trial_, with_digest(damaged)));
  }
}

TEST_F(ApplyPatch, OtherFilesAreNoPatches) {
  for (const std::string& bytes : {std::string(), noise(40, 1), noise(5000, 1)}) {
    write_bytes(trial_.patch(), bytes);
    EXPECT_NE(refusal().find("is not a patch"), std::string::npos) << refusal();
  }
  std::string later = "FERRYPAT" + std::string(1, 2) + noise(100, 1);
  std::fill(later.begin() + 9, later.begin() + 16, '\0');
  write_bytes(trial_.patch(), later);
  EXPECT_EQ(trial_.apply().error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace ferry::apply_patch_test
