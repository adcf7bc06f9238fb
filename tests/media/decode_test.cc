// Files that are not valid images give one line and the right error code, and the size that a
// header states allocates no memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "media/codecs.h"
#include "media/decode.h"
#include "tests/formats/temp_dir.h"

namespace ferry::media::decode_test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of(const std::string& name) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(FERRY_TESTDATA "/media/" + name)) {
    paths.push_back(entry.path().string());
  }
  return paths;
}

void expect_refused(const std::string& directory, size_t least, ErrorCode code) {
  const std::vector<std::string> paths = files_of(directory);
  EXPECT_GE(paths.size(), least);
  for (const std::string& path : paths) {
    const auto image = read_image(path);
    ASSERT_FALSE(image.has_value()) << path;
    EXPECT_EQ(image.error().code, code) << image.error().message;
    EXPECT_TRUE(image.error().message.starts_with(path + ": ")) << image.error().message;
    EXPECT_EQ(image.error().message.find('\n'), std::string::npos);
    EXPECT_TRUE(image.error().details.empty());
  }
}

TEST(MediaDecode, DamagedFilesAreRefused) { expect_refused("damaged", 26, ErrorCode::kBadInput); }

TEST(MediaDecode, OtherFormatsAreNotSupported) {
  expect_refused("unsupported", 5, ErrorCode::kUnsupported);
}

std::string message_of(const std::string& name) {
  const auto image = read_image(FERRY_TESTDATA "/media/damaged/" + name);
  return image ? "" : fs::path(image.error().message).filename().string();
}

TEST(MediaDecode, MessagesSayWhatIsWrong) {
  const std::string large = "; the limits are 178956970 pixels and 65535 a side";
  EXPECT_EQ(message_of("huge_60000.png"),
            "huge_60000.png: the image is too large: 60000 x 60000 pixels" + large);
  EXPECT_EQ(message_of("huge.jpg"),
            "huge.jpg: the image is too large: 65500 x 65500 pixels" + large);
  EXPECT_EQ(message_of("truncated.png"), "truncated.png: damaged PNG: the file ends early");
  EXPECT_EQ(message_of("truncated.jpg"), "truncated.jpg: damaged JPEG: Premature end of JPEG file");
  EXPECT_EQ(message_of("beyond_palette.png"),
            "beyond_palette.png: damaged PNG: a pixel beyond the palette");
  EXPECT_EQ(message_of("empty.jpg"), "empty.jpg: the file is empty");
}

// Every prefix of every good image is refused, or ends after the data of the last pixel.
TEST(MediaDecode, EveryTruncationIsRefused) {
  for (const std::string& path : files_of("images")) {
    const std::string text = *read_text_file(path, 1 << 20);
    const auto bytes = std::as_bytes(std::span(text));
    const size_t step = std::max<size_t>(text.size() / 97, 1);
    for (size_t size = 0; size < text.size(); size += step) {
      const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<long>(size));
      EXPECT_FALSE(decode_image(cut, "f").has_value()) << path << " " << size;
    }
  }
}

TEST(MediaDecode, ALargeFileIsRefusedUnread) {
  const TempDir dir;
  const std::string path = dir.write("large.png", "");
  fs::resize_file(path, kMaxFileBytes + 1);  // sparse
  const auto image = read_image(path);
  ASSERT_FALSE(image.has_value());
  EXPECT_NE(image.error().message.find("the limit is"), std::string::npos);
}

std::vector<std::byte> exif(std::vector<int> octets) {
  std::vector<std::byte> out;
  for (const int octet : octets) out.push_back(static_cast<std::byte>(octet));
  return out;
}

TEST(MediaDecode, ExifInBothByteOrders) {
  const std::vector<int> little = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12,
                                   1,   3,   0,  1, 0, 0, 0, 6, 0, 0, 0};
  const std::vector<int> big = {'M',  'M', 0, 42, 0, 0, 0, 8, 0, 1, 1,
                                0x12, 0,   3, 0,  0, 0, 1, 0, 8, 0, 0};
  EXPECT_EQ(exif_orientation(exif(little)), 6);
  EXPECT_EQ(exif_orientation(exif(big)), 8);
  std::vector<int> wrong = little;
  wrong[18] = 9;
  EXPECT_EQ(exif_orientation(exif(wrong)), 1);
  for (size_t size = 0; size < little.size(); ++size) {
    const int found =
        exif_orientation(exif({little.begin(), little.begin() + static_cast<long>(size)}));
    EXPECT_EQ(found, size < 20 ? 1 : 6) << size;
  }
}

}  // namespace
}  // namespace ferry::media::decode_test
