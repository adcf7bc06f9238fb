// PyTorch files that Ferry plans, and reads back.

#include "formats/torch/writer.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "checkpoint/checkpoint.h"
#include "tests/formats/temp_dir.h"

namespace ferry::formats::writer_test {
namespace {

// Writes the file of a layout whose storages are filled with their number.
std::string file_of(const TorchLayout& layout) {
  std::string file(layout.file_bytes, '\0');
  for (const auto& [offset, bytes] : layout.known) {
    file.replace(offset, bytes.size(), reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  for (size_t i = 0; i < layout.storages.size(); ++i) {
    const TorchLayout::Storage& storage = layout.storages[i];
    const std::string contents(storage.bytes, static_cast<char>(i + 1));
    file.replace(storage.offset, contents.size(), contents);
    const auto crc = static_cast<uint32_t>(
        ::crc32_z(0, reinterpret_cast<const unsigned char*>(contents.data()), contents.size()));
    for (const uint64_t place : storage.crc_places) {
      for (size_t b = 0; b < 4; ++b) file[place + b] = static_cast<char>(crc >> (8 * b));
    }
  }
  return file;
}

TEST(TorchWriterTest, OurReaderReadsNamesShapesAndBytes) {
  const std::vector<TorchTensorSpec> tensors = {{"a", DType::kF32, {2, 300}, 0},
                                                {"b", DType::kBF16, {70000}, 1},
                                                {"c", DType::kF32, {600}, 0},
                                                {"\xC3\xA4", DType::kI64, {}, 2},
                                                {"empty", DType::kF16, {0, 4}, 3}};
  const auto layout = plan_torch(tensors, 4);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  const TempDir dir;
  const std::string path = dir.write("model.pth", file_of(*layout));
  const auto source = checkpoint::open_tensors(path);
  ASSERT_TRUE(source.has_value()) << source.error().message;
  ASSERT_EQ((*source)->entries().size(), tensors.size());
  for (const TorchTensorSpec& tensor : tensors) {
    size_t at = 0;
    while ((*source)->entries()[at].name != tensor.name) ++at;
    const TensorEntry& entry = (*source)->entries()[at];
    EXPECT_EQ(entry.dtype, tensor.dtype);
    EXPECT_EQ(entry.shape, tensor.shape);
    std::vector<std::byte> bytes(entry.bytes);
    ASSERT_TRUE((*source)->read(at, 0, bytes).has_value());
    for (const std::byte b : bytes) ASSERT_EQ(b, static_cast<std::byte>(tensor.storage + 1));
  }
  for (const TorchLayout::Storage& storage : layout->storages) EXPECT_EQ(storage.offset % 64, 0U);
}

TEST(TorchWriterTest, LongStoragesHaveZip64Records) {
  const int64_t count = int64_t{5} << 30;
  const auto layout = plan_torch(
      std::vector<TorchTensorSpec>{{"a", DType::kU8, {count}, 0}, {"b", DType::kU8, {1}, 1}}, 2);
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->storages[0].bytes, static_cast<uint64_t>(count));
  EXPECT_GT(layout->storages[1].offset, static_cast<uint64_t>(count));
  EXPECT_GT(layout->file_bytes, layout->storages[1].offset);
}

TEST(TorchWriterTest, DtypesWithoutAStorageClassAreRefused) {
  const auto layout = plan_torch(std::vector<TorchTensorSpec>{{"a", DType::kF8E4M3, {1}, 0}}, 1);
  ASSERT_FALSE(layout.has_value());
  EXPECT_EQ(layout.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace ferry::formats::writer_test
