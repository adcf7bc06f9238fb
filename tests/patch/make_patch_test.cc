#include "patch/make_patch.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/patch/folders.h"

namespace ferry::make_patch_test {
namespace {

using patch::FileState;

// Makes and applies a patch, and returns its size.
uint64_t size_of_patch(const FolderContents& old, const FolderContents& made) {
  PatchTrial trial(old, made);
  const auto summary = trial.make();
  EXPECT_TRUE(summary) << summary.error().message;
  const auto applied = trial.apply();
  EXPECT_TRUE(applied) << applied.error().message;
  EXPECT_TRUE(trial.contents(trial.output()) == made);
  EXPECT_EQ(summary->patch_bytes, std::filesystem::file_size(trial.patch()));
  return summary->patch_bytes;
}

TEST(MakePatch, EqualFoldersTakeNothing) {
  const FolderContents files = {{"a", noise(300'000, 1)}, {"b", ""}, {"c", "x"}};
  EXPECT_LT(size_of_patch(files, files), 400U);
}

TEST(MakePatch, NewAndRemovedFilesAreListed) {
  PatchTrial trial({{"a", "one"}, {"b", noise(9000, 1)}, {"c", "3"}},
                   {{"b", noise(9000, 1)}, {"c", "4"}, {"d", noise(9000, 1)}});
  const auto summary = trial.make();
  ASSERT_TRUE(summary);
  std::vector<FileState> states;
  for (const patch::PatchedFile& file : summary->files) states.push_back(file.state);
  EXPECT_EQ(states, (std::vector{FileState::kRemoved, FileState::kUnchanged, FileState::kChanged,
                                 FileState::kAdded}));
  EXPECT_EQ(summary->files[3].copied, 9000U);
  EXPECT_EQ(summary->new_bytes, 18001U);
}

TEST(MakePatch, TensorsThatMoveBetweenFilesAreCopies) {
  const std::string a = noise(3000, 1), b = noise(70'000, 2), c = noise(500'000, 3);
  const FolderContents old = {{"1.safetensors", safetensors_of({{"a", a}, {"b", b}, {"c", c}})}};
  const FolderContents made = {{"1.safetensors", safetensors_of({{"c", c}})},
                               {"2.safetensors", safetensors_of({{"b", b}, {"a", a}})}};
  EXPECT_LT(size_of_patch(old, made), 1500U);
}

TEST(MakePatch, BytesThatMoveInAFileAreCopies) {
  const std::string bytes = noise(900'000, 1);
  std::string moved = "in front" + bytes;
  moved.insert(400'000, noise(77, 5));
  moved.erase(600'000, 123);
  EXPECT_LT(size_of_patch({{"f", bytes}}, {{"f", moved}}), 1500U);
  EXPECT_LT(size_of_patch({{"f", bytes}}, {{"other name", moved}}), 2500U);
}

TEST(MakePatch, ScatteredChangesTakeLittle) {
  const std::string bytes = noise(2'000'000, 1);
  std::string changed = bytes;
  for (size_t i = 17; i < changed.size(); i += 1000) changed[i] = static_cast<char>(changed[i] + 1);
  EXPECT_LT(size_of_patch({{"f", bytes}}, {{"f", changed}}), 5000U);
  EXPECT_LT(size_of_patch({{"t.safetensors", safetensors_of({{"w", bytes}})}},
                          {{"t.safetensors", safetensors_of({{"w", changed}})}}),
            5000U);
}

TEST(MakePatch, BlocksOfSeveralMebibytesMeet) {
  std::string bytes = noise(9'500'001, 1);
  const std::string old = bytes;
  bytes.replace(4'194'300, 10, noise(10, 2));
  EXPECT_LT(size_of_patch({{"f", old}}, {{"f", bytes}}), 1000U);
}

TEST(MakePatch, DoesNotDependOnThreads) {
  std::string bytes = noise(6'000'000, 1);
  const FolderContents old = {{"f", bytes}, {"g", bytes.substr(0, 100'000)}};
  for (size_t i = 0; i < 3'000'000; i += 50) bytes[i] = 'x';
  PatchTrial trial(old, {{"f", bytes}, {"h", noise(500'000, 7)}});
  ASSERT_TRUE(trial.make(1));
  const std::string one = read_bytes(trial.patch());
  for (const size_t threads : {2U, 5U}) {
    ASSERT_TRUE(trial.make(threads));
    EXPECT_EQ(read_bytes(trial.patch()), one);
  }
}

TEST(MakePatch, RefusesWhatIsNoFolderOfFiles) {
  PatchTrial trial({{"a", "1"}}, {{"a", "2"}, {"sub/b", "3"}});
  const auto nested = trial.make();
  ASSERT_FALSE(nested);
  EXPECT_NE(nested.error().message.find("sub"), std::string::npos) << nested.error().message;
  PatchTrial invalid({{"a", "1"}}, {{"manifest.json", "{}"}});
  const auto manifest = invalid.make();
  ASSERT_FALSE(manifest);
  EXPECT_EQ(manifest.error().code, ErrorCode::kBadInput);
  EXPECT_NE(manifest.error().message.find("manifest.json"), std::string::npos);
  EXPECT_EQ(invalid.names(), (std::vector<std::string>{"new", "old"}));
}

}  // namespace
}  // namespace ferry::make_patch_test
