// The memory that reading PyTorch files needs: neither the whole storage of a view with large
// strides nor compressed storages whose tensors have been read are kept.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "checkpoint/checkpoint.h"
#include "tests/formats/pickle_maker.h"
#include "tests/formats/temp_dir.h"
#include "tests/formats/zip_maker.h"

namespace ferry::formats::torch_memory_test {
namespace {

constexpr size_t kTile = size_t{1} << 20;

std::vector<float> counting(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

std::string_view as_text(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(TorchMemory, TransposedViewsOfManyBlocksAreRead) {
  constexpr uint32_t kRows = 1100, kColumns = 1500;  // the view has more than one block
  TempDir dir;
  const std::vector<float> stored = counting(kRows * kColumns);
  const std::string pickle =
      make_pickle({{"w", "0", kRows * kColumns, {kRows, kColumns}, {1, kRows}},
                   {"again", "0", kRows * kColumns, {2, kColumns}, {0, kRows}}});
  const auto source =
      checkpoint::open_tensors(dir.write("x.bin", make_zip({
                                                      stored_item("a/data.pkl", pickle),
                                                      stored_item("a/data/0", as_text(stored)),
                                                  })))
          .value();
  for (size_t entry = 0; entry < 2; ++entry) {
    const bool whole = source->entries()[entry].name == "w";
    std::vector<float> values(whole ? stored.size() : 2 * kColumns);
    const auto bytes = std::as_writable_bytes(std::span(values));
    // Pieces of an odd size begin and end inside of elements.
    for (size_t at = 0; at < bytes.size(); at += 1'000'003) {
      const size_t count = std::min<size_t>(1'000'003, bytes.size() - at);
      ASSERT_TRUE(source->read(entry, at, bytes.subspan(at, count)));
    }
    size_t wrong = 0;
    for (uint32_t r = 0; r < (whole ? kRows : 2); ++r) {
      for (uint32_t c = 0; c < kColumns; ++c) {
        wrong += values[r * kColumns + c] != stored[(whole ? r : 0) + c * kRows];
      }
    }
    EXPECT_EQ(wrong, 0u) << entry;
  }
}

TEST(TorchMemory, AWrongCrcOfAStridedTensorIsRefused) {
  TempDir dir;
  const std::vector<float> stored = counting(12);
  ZipItem data = stored_item("a/data/0", as_text(stored));
  data.crc ^= 1;
  const std::string pickle = make_pickle({{"t", "0", 12, {3, 4}, {1, 3}}});
  const auto source = checkpoint::open_tensors(
                          dir.write("x.bin", make_zip({stored_item("a/data.pkl", pickle), data})))
                          .value();
  std::vector<std::byte> byte(1);
  const Status status = source->read(0, 5, byte);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("'a/data/0' do not have its CRC: damaged (tensor 't', "),
            std::string::npos)
      << status.error().message;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Reads all tensors in tiles with at most `bytes` more memory than now, and ends the process. The
// exit code is 0 if all reads succeed.
[[noreturn]] void read_within(const std::string& path, size_t bytes) {
  const auto source = checkpoint::open_tensors(path);
  if (!source) ::_exit(2);
  std::vector<std::byte> tile(kTile);
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit limit{most, most};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(3);
  try {
    for (size_t i = 0; i < (*source)->entries().size(); ++i) {
      const uint64_t size = (*source)->entries()[i].bytes;
      for (uint64_t at = 0; at < size; at += kTile) {
        const auto part = std::span(tile).first(std::min<uint64_t>(kTile, size - at));
        if (!(*source)->read(i, at, part)) ::_exit(4);
      }
    }
  } catch (const std::bad_alloc&) {
    ::_exit(5);
  }
  ::_exit(0);
}

TEST(TorchMemory, AStorageIsNotLoadedForAStridedView) {
  // The view uses the first rows of a storage of 96 MiB.
  constexpr uint32_t kElements = 24u << 20;
  TempDir dir;
  const std::string pickle = make_pickle({{"w", "0", kElements, {512, 2048}, {1, 512}}});
  const std::string path = dir.write(
      "x.bin", make_zip({stored_item("a/data.pkl", pickle),
                         stored_item("a/data/0", std::string(4 * size_t{kElements}, '\0'))}));
  EXPECT_EXIT(read_within(path, size_t{48} << 20), testing::ExitedWithCode(0), "");
}

TEST(TorchMemory, CompressedStoragesAreReleasedOnceRead) {
  // The file has three storages of 24 MiB.
  constexpr uint32_t kElements = 6u << 20;
  TempDir dir;
  std::string data(4 * size_t{kElements}, '\0');
  uint32_t state = 1;
  // Without random bytes the file would be too small for its contents.
  for (size_t i = 0; i < 500'000; ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = static_cast<char>(state >> 24);
  }
  std::vector<PickleTensor> tensors;
  ZipItem item = deflated_item("", data);
  std::vector<ZipItem> items = {{}};
  for (const std::string key : {"0", "1", "2"}) {
    // Each storage has two tensors, one of them strided.
    tensors.push_back({"a" + key, key, kElements, {kElements}, {1}});
    tensors.push_back({"b" + key, key, kElements, {2, 3}, {1, 2}});
    item.name = "a/data/" + key;
    items.push_back(item);
  }
  items[0] = stored_item("a/data.pkl", make_pickle(tensors));
  const std::string path = dir.write("x.bin", make_zip(items));
  EXPECT_EXIT(read_within(path, size_t{40} << 20), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace ferry::formats::torch_memory_test
