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

TEST(MediaDecode, DamagedFilesAreRefused) { expect_refused("damaged", 32, ErrorCode::kBadInput); }

TEST(MediaDecode, OtherFormatsAreNotSupported) {
  expect_refused("unsupported", 6, ErrorCode::kUnsupported);
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

// A prefix that holds all pixels shows the same as the file. The notes behind the pixels of a PNG
// are before its end, and those of a WebP are counted. The last number of a plain PGM or PPM may be
// cut, which nobody can tell.
TEST(MediaDecode, ATruncationOfAnOddFileIsRefusedOrChangesNothing) {
  for (const std::string& path : files_of("images_odd")) {
    const std::string text = *read_text_file(path, 1 << 20);
    if (text.starts_with("P2") || text.starts_with("P3")) continue;
    const auto bytes = std::as_bytes(std::span(text));
    const auto whole = decode_image(bytes, "f");
    ASSERT_TRUE(whole.has_value()) << whole.error().message;
    for (size_t size = 0; size < text.size(); ++size) {
      const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<long>(size));
      const auto part = decode_image(cut, "f");
      if (part) {
        EXPECT_EQ(part->rgb, whole->rgb) << path << " " << size;
      }
    }
  }
}

std::vector<std::byte> bytes_from(std::vector<int> octets) {
  std::vector<std::byte> out;
  for (const int octet : octets) out.push_back(static_cast<std::byte>(octet));
  return out;
}

std::string refusal(const std::vector<int>& octets) {
  const auto image = decode_image(bytes_from(octets), "f");
  return image ? "" : image.error().message;
}

// A canvas of 2 x 1 pixels without a table, then what the case says.
std::vector<int> gif_with(const std::vector<int>& rest) {
  std::vector<int> out = {'G', 'I', 'F', '8', '9', 'a', 2, 0, 1, 0, 0, 0, 0};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

TEST(MediaDecode, GifsThatAreDamagedSayWhere) {
  const std::vector<int> frame = {0x2C, 0, 0, 0, 0, 2, 0, 1, 0, 0};
  const auto with = [&](const std::vector<int>& pixels) {
    std::vector<int> rest = frame;
    rest.insert(rest.end(), pixels.begin(), pixels.end());
    return gif_with(rest);
  };
  // Codes of 3 bits: clear (4), 1, 2, end (5).
  EXPECT_EQ(refusal(with({2, 2, 0x8C, 0x0A, 0})), "");
  EXPECT_EQ(refusal(with({9, 2, 0x8C, 0x0A, 0})), "f: damaged GIF: a wrong size of codes");
  EXPECT_EQ(refusal(with({2, 1, 0x2C, 0})), "f: damaged GIF: the pixels end early");
  EXPECT_EQ(refusal(with({2, 2, 0xCC, 0x0B, 0})), "f: damaged GIF: a wrong code");
  EXPECT_EQ(refusal(gif_with({0x3B})), "f: damaged GIF: no image");
  EXPECT_EQ(refusal(gif_with({0x2C, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2})),
            "f: damaged GIF: an empty frame");
  EXPECT_EQ(refusal(gif_with({0x21, 0xF9, 0})), "f: GIF with an extension without data");
  EXPECT_NE(refusal(gif_with({0x2C, 255, 255, 0, 0, 1, 0, 1, 0, 0})).find("too large"),
            std::string::npos);
}

TEST(MediaDecode, ALargeFileIsRefusedUnread) {
  const TempDir dir;
  const std::string path = dir.write("large.png", "");
  fs::resize_file(path, kMaxFileBytes + 1);  // sparse
  const auto image = read_image(path);
  ASSERT_FALSE(image.has_value());
  EXPECT_NE(image.error().message.find("the limit is"), std::string::npos);
}

TEST(MediaDecode, ExifInBothByteOrders) {
  const std::vector<int> little = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12,
                                   1,   3,   0,  1, 0, 0, 0, 6, 0, 0, 0};
  const std::vector<int> big = {'M',  'M', 0, 42, 0, 0, 0, 8, 0, 1, 1,
                                0x12, 0,   3, 0,  0, 0, 1, 0, 8, 0, 0};
  EXPECT_EQ(exif_orientation(bytes_from(little)), 6);
  EXPECT_EQ(exif_orientation(bytes_from(big)), 8);
  std::vector<int> wrong = little;
  wrong[18] = 9;
  EXPECT_EQ(exif_orientation(bytes_from(wrong)), 1);
  for (size_t size = 1; size < little.size(); ++size) {
    const auto part = bytes_from({little.begin(), little.begin() + static_cast<long>(size)});
    EXPECT_EQ(orientation_of(part, ""), 1) << size;
  }
}

TEST(MediaDecode, XmpTurnsWhereExifDoesNot) {
  const std::string xmp = "<a tiff:Orientation='3' tiff:Orientation=\"6\"/>";
  EXPECT_EQ(orientation_of({}, xmp), 6);
  EXPECT_EQ(orientation_of({}, "<tiff:Orientation>8</tiff:Orientation>"), 8);
  EXPECT_EQ(orientation_of({}, "<tiff:Orientation>0</tiff:Orientation>"), 1);
  // An entry of another tag leaves it to XMP; one of this tag does not, whatever it says.
  std::vector<int> block = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12,
                            1,   3,   0,  1, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(orientation_of(bytes_from(block), xmp), 1);
  block[10] = 0x13;
  EXPECT_EQ(orientation_of(bytes_from(block), xmp), 6);
}

}  // namespace
}  // namespace ferry::media::decode_test
