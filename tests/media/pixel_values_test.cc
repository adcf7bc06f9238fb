// Images of the reference: the digest of the decoded bytes and of the pixel values must be equal.
// FERRY_MEDIA_GOLDEN=DIRECTORY names another set in the same layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/sha256.h"
#include "media/decode.h"
#include "media/pixel_values.h"
#include "media/settings.h"

namespace ferry::media::pixel_values_test {
namespace {

using nlohmann::json;

std::string directory() {
  const char* other = std::getenv("FERRY_MEDIA_GOLDEN");
  return other ? other : FERRY_TESTDATA "/media";
}

json golden(const std::string& name) {
  std::ifstream file(directory() + "/" + name);
  return json::parse(file);
}

template <class T>
std::string digest(const std::vector<T>& values) {
  return to_hex(sha256(std::as_bytes(std::span(values))));
}

Image image_of(const std::string& path) {
  auto image = read_image(directory() + "/" + path);
  EXPECT_TRUE(image.has_value()) << image.error().message;
  return image ? *std::move(image) : Image{};
}

// Returns the settings of a family with the fields that `change` states.
Settings settings_of(const json& change) {
  const bool smolvlm = change["family"] == "s";
  const std::string name = smolvlm ? "/smolvlm" : "/internvl";
  json fields = golden(name + "/preprocessor_config.json");
  for (const auto& [field, value] : change.items()) {
    if (field != "family") fields[field] = value;
  }
  auto settings = settings_from(fields.dump(), "", "test");
  EXPECT_TRUE(settings.has_value()) << settings.error().message;
  if (change.contains("crop_to_patches")) settings->crop = change["crop_to_patches"].get<bool>();
  return *settings;
}

std::vector<uint8_t> planes(const TiledImage& image) {
  std::vector<uint8_t> out;
  for (const Image& tile : image.tiles) {
    for (size_t c = 0; c < 3; ++c) {
      for (size_t i = c; i < tile.rgb.size(); i += 3) out.push_back(tile.rgb[i]);
    }
  }
  return out;
}

void check(const Image& image, const Settings& settings, Backend backend, const json& expected,
           ThreadPool& pool) {
  const Sample sample = {*cut(image, settings, backend, pool)};
  const PixelValues pixels = pixel_values(std::span(&sample, 1), settings, backend);
  Shape shape = expected["shape"].get<Shape>();
  if (settings.has_mask()) shape.insert(shape.begin(), 1);
  EXPECT_EQ(pixels.shape, shape);
  EXPECT_EQ(digest(planes(sample[0])), expected["sha256_u8"]);
  EXPECT_EQ(digest(pixels.values), expected["sha256_f32"]);
  if (expected.contains("rows")) {
    EXPECT_EQ(sample[0].grid, (Grid{expected["cols"], expected["rows"]}));
    EXPECT_EQ(static_cast<int64_t>(std::count(pixels.mask.begin(), pixels.mask.end(), 1)),
              static_cast<int64_t>(pixels.values.size() / 3));
  }
}

void expect_decoded(const json& expected) {
  for (const auto& [path, image] : expected.items()) {
    const Image decoded = image_of(path);
    EXPECT_EQ(decoded.size, (Size{image["shape_hw"][1], image["shape_hw"][0]})) << path;
    EXPECT_EQ(digest(decoded.rgb), image["sha256"]) << path;
    if (image.contains("on_white")) {
      EXPECT_EQ(digest(on_white(decoded).rgb), image["on_white"]) << path;
    }
  }
}

TEST(MediaGolden, DecodedBytes) {
  const json expected = golden("golden.json")["decode"];
  ASSERT_GE(expected.size(), 27U);
  expect_decoded(expected);
}

// Animations, notes of how a picture is turned, and rare modes.
TEST(MediaGolden, DecodedBytesOfOddFiles) {
  const json expected = golden("odd.json");
  ASSERT_GE(expected.size(), 40U);
  expect_decoded(expected);
}

void check_all(bool real) {
  const json all = golden("golden.json");
  ThreadPool pool(2);
  size_t count = 0;
  for (const auto& [name, change] : all["settings"].items()) {
    if ((name.find("_real_") != std::string::npos) != real) continue;
    const Settings settings = settings_of(change);
    for (const auto& [file, of_settings] : all["images"].items()) {
      // Results of real sizes take hundreds of megabytes each, so only four images are used, or all
      // images of another set.
      if (real && !std::getenv("FERRY_MEDIA_GOLDEN") && file != "tiny.png" && file != "cmyk.jpg" &&
          file != "exif.jpg" && file != "wide_6x1.png") {
        continue;
      }
      const Image image = image_of("images/" + file);
      for (const Backend backend : {Backend::kTorchvision, Backend::kPil}) {
        const char* key = backend == Backend::kPil ? "pil" : "torchvision";
        SCOPED_TRACE(file + " " + name + " " + key);
        check(image, settings, backend, of_settings[name][key], pool);
        ++count;
      }
    }
  }
  EXPECT_GE(count, real ? 48U : 190U);
  std::printf("%zu arrays\n", count);
}

TEST(MediaGolden, PixelValuesOfTinyModels) { check_all(/*real=*/false); }
TEST(MediaGolden, PixelValuesAtReleasedSizes) { check_all(/*real=*/true); }

std::vector<uint8_t> bytes_of(const std::vector<int64_t>& mask) {
  return {mask.begin(), mask.end()};
}

void check_batch(const std::vector<Sample>& samples, const Settings& settings, const json& arrays,
                 const std::string& name) {
  const PixelValues pixels = pixel_values(samples, settings, Backend::kTorchvision);
  const json& values = arrays[name + ".pixel_values"];
  const json& mask = arrays[name + ".pixel_attention_mask"];
  EXPECT_EQ(pixels.shape, values["shape"].get<Shape>());
  EXPECT_EQ(digest(pixels.values), values["sha256"]);
  EXPECT_EQ(pixels.mask_shape, mask["shape"].get<Shape>());
  EXPECT_EQ(digest(bytes_of(pixels.mask)), mask["sha256"]);
}

TEST(MediaGolden, SamplesAreJoinedAndPadded) {
  const json all = golden("golden.json");
  const json& batch = all["batch"];
  const Settings settings = settings_of(all["settings"][batch["setting"].get<std::string>()]);
  ThreadPool pool(1);
  Sample both;
  for (const json& file : batch["files"]) {
    const Image image = image_of("images/" + file.get<std::string>());
    both.push_back(*cut(image, settings, Backend::kTorchvision, pool));
  }
  check_batch({{both[0]}, {both[1]}}, settings, batch["arrays"], "batch2");
  check_batch({both}, settings, batch["arrays"], "one_sample_two_images");
}

void check_idefics3(Size image, int longest, int tile, const json& expected) {
  const Size size = idefics3_size(image, longest), canvas = idefics3_canvas(size, tile);
  const Grid grid = idefics3_grid(canvas, tile);
  std::vector<int> numbers = {size.width, size.height, canvas.width, canvas.height};
  if (expected.size() == 6) numbers.insert(numbers.end(), {grid.rows, grid.columns});
  EXPECT_EQ(numbers, expected.get<std::vector<int>>()) << image.width << " x " << image.height;
}

TEST(MediaGolden, SizesAndGrids) {
  const json sizes = golden("sizes.json")["sizes"];
  ASSERT_GE(sizes.size(), 300U);
  for (const json& row : sizes) {
    const Size image{row["w"], row["h"]};
    for (const auto& [key, expected] : row.items()) {
      int a = 0, b = 0;
      if (std::sscanf(key.c_str(), "smolvlm_%d_%d", &a, &b) == 2) {
        check_idefics3(image, a, b, expected);
      } else if (std::sscanf(key.c_str(), "internvl_%d_max%d", &a, &b) == 2) {
        const Grid grid = gotocr2_grid(image, a, 1, b);
        EXPECT_EQ((std::vector<int>{grid.columns, grid.rows}), expected.get<std::vector<int>>())
            << key << ": " << image.width << " x " << image.height;
      }
    }
  }
}

}  // namespace
}  // namespace ferry::media::pixel_values_test
