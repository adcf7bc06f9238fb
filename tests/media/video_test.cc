#include "media/video.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/formats/temp_dir.h"

namespace ferry::media::video_test {
namespace {

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string picture(int width, int height) {
  return "P6 " + std::to_string(width) + " " + std::to_string(height) + " 255\n" +
         std::string(static_cast<size_t>(3 * width * height), 'a');
}

TEST(Video, NumbersInNamesAreInTheOrderOfNumbers) {
  EXPECT_TRUE(comes_before("f2.png", "f10.png"));
  EXPECT_TRUE(comes_before("f002.png", "f10.png"));
  EXPECT_FALSE(comes_before("f10.png", "f9.png"));
  EXPECT_TRUE(comes_before("a10", "b2"));
  EXPECT_TRUE(comes_before("a", "a1"));
  EXPECT_TRUE(comes_before("a01", "a1"));
  EXPECT_FALSE(comes_before("a1", "a01"));
  EXPECT_FALSE(comes_before("a1", "a1"));
  EXPECT_TRUE(comes_before("99999999999999999998", "99999999999999999999"));
}

TEST(Video, AFolderIsListedWithoutHiddenFiles) {
  const TempDir dir;
  for (const char* name : {"10.ppm", "9.ppm", ".thumbs"}) write(dir / name, picture(2, 2));
  const auto video = open_video(dir.path(), 2.0);
  ASSERT_TRUE(video) << video.error().message;
  ASSERT_EQ(video->frames.size(), 2U);
  EXPECT_EQ(std::filesystem::path(video->frames[0]).filename(), "9.ppm");
  EXPECT_EQ(open_video(dir.path(), {}).error().code, ErrorCode::kUsage);
  EXPECT_EQ(open_video(dir.path(), -1.0).error().code, ErrorCode::kBadInput);
  EXPECT_EQ(open_video(dir.path() + "/absent", 1.0).error().code, ErrorCode::kIo);
}

TEST(Video, FilmsAreNamedAndNotDecoded) {
  const TempDir dir;
  const std::pair<std::string, std::string> films[] = {
      {std::string("\0\0\0\x20", 4) + "ftypisom", "an MP4 or QuickTime film"},
      {std::string("\x1A\x45\xDF\xA3", 4) + "webm", "a Matroska or WebM film"},
      {"RIFF....AVI LIST", "an AVI film"},
      {"GIF89a", "a GIF"},
      {"", "a file"}};
  for (const auto& [bytes, name] : films) {
    write(dir / "film", bytes);
    const auto video = open_video(dir / "film", 1.0);
    ASSERT_FALSE(video);
    EXPECT_EQ(video.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(video.error().message.find(": is " + name + "; films are not decoded"),
              std::string::npos)
        << video.error().message;
  }
}

TEST(Video, FramesOfOtherSizesAndOtherFilesAreRefused) {
  const TempDir dir;
  ThreadPool pool(1);
  const VideoSettings settings =
      *video_settings_from({"", R"({"video_processor_type": "Qwen2VLVideoProcessor",
                                    "patch_size": 4, "size": {"shortest_edge": 64,
                                    "longest_edge": 256}})",
                            ""},
                           "d");
  for (const char* name : {"1.ppm", "2.ppm", "3.ppm"}) write(dir / name, picture(8, 8));
  const auto opened = [&] {
    return VideoReader::open(*open_video(dir.path(), 1.0), settings, pool);
  };
  const auto reader = opened();
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->groups(), 2);
  EXPECT_EQ(reader->group_shape(), (Shape{4, 96}));
  EXPECT_EQ(reader->group(1)->size(), 4U * 96);
  EXPECT_EQ(reader->group_seconds(), 2);
  write(dir / "3.ppm", picture(8, 9));
  EXPECT_NE(opened()->group(1).error().message.find("a frame of 8 x 9 pixels in a video of 8 x 8"),
            std::string::npos);
  write(dir / "1.ppm", "no picture");
  EXPECT_EQ(opened().error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace ferry::media::video_test
