// The message of the confined reader and the description in it are untrusted.

#include "formats/hdf5/check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "formats/hdf5/chunks.h"
#include "formats/hdf5/confined.h"

namespace ferry::hdf5::check_test {
namespace {

constexpr uint64_t kFileBytes = 10000;

ElementType f32() {
  return {.type_class = TypeClass::kFloat,
          .name = "",
          .size = 4,
          .precision = 32,
          .sign_at = 31,
          .exponent_at = 23,
          .exponent_bits = 8,
          .mantissa_bits = 23,
          .exponent_bias = 127,
          .implied_one = true};
}

Dataset contiguous(const std::string& path, uint64_t address, std::vector<uint64_t> dims) {
  uint64_t bytes = 4;
  for (const uint64_t size : dims) bytes *= size;
  return {.path = path,
          .object = address - 1,
          .type = f32(),
          .space = Space::kSimple,
          .dims = std::move(dims),
          .layout = Layout::kContiguous,
          .address = address,
          .stored_bytes = bytes};
}

// A dataset of shape [5] in three chunks of 2.
Dataset chunked() {
  Dataset d = contiguous("w", 100, {5});
  d.layout = Layout::kChunked;
  d.address = kNoAddress;
  d.chunk_dims = {2};
  d.chunks = {{1000, 8, 0, {0}}, {1008, 8, 0, {2}}, {1016, 8, 0, {4}}};
  return d;
}

Description sample() {
  Description description;
  description.datasets = {contiguous("a", 100, {2, 3}), chunked()};
  description.datasets[1].filters = {{kShuffle, {4}}};
  description.datasets.push_back(contiguous("s", 2000, {}));
  description.datasets.back().space = Space::kScalar;
  description.datasets.back().layout = Layout::kCompact;
  description.datasets.back().inline_bytes.resize(4);
  description.attributes = {{"a", "dtype", {"x", ""}}, {"", "name", {}}};
  return description;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string verdict(const Description& description, uint64_t base = 0) {
  const auto file = check(description, base, kFileBytes, "f");
  return file ? "accepted" : file.error().message;
}

std::string verdict(Dataset dataset, uint64_t base = 0) {
  Description description;
  description.datasets = {std::move(dataset)};
  return verdict(description, base);
}

// -- the message

TEST(Hdf5Message, CarriesADescription) {
  Description description = sample();
  description.links = {{"l", LinkKind::kExternal}};
  description.fills = {{"a", std::vector<std::byte>(4, std::byte{7})}};
  description.troubles = {{"t", "what"}};
  const std::string message = encode(description);
  const auto decoded = decode(bytes_of(message), "f");
  ASSERT_TRUE(decoded);
  EXPECT_EQ(encode(*decoded), message);
  EXPECT_EQ(decoded->datasets[0].dims, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(decoded->datasets[1].chunks[2].address, 1016u);
  EXPECT_EQ(decoded->attributes[0].values[0], "x");
  EXPECT_EQ(decoded->links[0].kind, LinkKind::kExternal);
  EXPECT_EQ(decoded->troubles[0].what, "what");
  EXPECT_EQ(decoded->fills[0].path, "a");
  EXPECT_EQ(decoded->fills[0].element, std::vector<std::byte>(4, std::byte{7}));
}

TEST(Hdf5Message, IsRefusedWhenItIsCutOrLonger) {
  const std::string message = encode(sample());
  for (size_t size = 0; size < message.size(); ++size) {
    const auto decoded = decode(bytes_of(message).first(size), "f");
    ASSERT_FALSE(decoded) << size;
    EXPECT_EQ(decoded.error().message, "f: the confined HDF5 reader gave no well-formed answer");
  }
  EXPECT_FALSE(decode(bytes_of(message + "E"), "f"));
}

TEST(Hdf5Message, CountsAreBoundedBeforeMemoryIsTaken) {
  const std::string message = encode(sample());
  size_t refused = 0;
  for (size_t i = 0; i + 4 <= message.size(); ++i) {
    std::string damaged = message;
    damaged.replace(i, 4, "\xff\xff\xff\xff");
    const auto decoded = decode(bytes_of(damaged), "f");
    if (decoded) {
      (void)verdict(*decoded);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, message.size() / 8);
}

// -- the description

TEST(Hdf5Check, TensorsAreOrderedByOffset) {
  const auto file = check(sample(), 0, kFileBytes, "f");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors.size(), 3u);
  EXPECT_EQ(file->tensors[0].entry.name, "s");
  EXPECT_EQ(file->tensors[1].entry.name, "a");
  EXPECT_EQ(file->tensors[1].entry.shape, (Shape{2, 3}));
  EXPECT_EQ(file->tensors[1].entry.bytes, 24u);
  EXPECT_EQ(file->tensors[2].entry.offset, 1000u);
}

TEST(Hdf5Check, ADatasetMustBeReadableAsItIsStored) {
  struct Case {
    std::string message;
    std::function<void(Dataset&)> change;
  };
  const Case cases[] = {
      {"accepted", [](Dataset&) {}},
      {"accepted", [](Dataset& d) { d.type.big_endian = true; }},
      {"f: floats of 4 bytes that are not IEEE's (tensor 'w')",
       [](Dataset& d) { d.type.exponent_bias = 126; }},
      {"f: floats of 4 bytes that are not IEEE's (tensor 'w')",
       [](Dataset& d) { d.type.implied_one = false; }},
      {"f: floats of 4 bytes that are not IEEE's (tensor 'w')",
       [](Dataset& d) { d.type.precision = 31; }},
      {"f: integers of 24 bits in 4 bytes (tensor 'w')",
       [](Dataset& d) {
         d.type = {.type_class = TypeClass::kInteger, .name = "", .size = 4, .precision = 24};
       }},
      {"f: integers of 24 bits in 3 bytes (tensor 'w')",
       [](Dataset& d) {
         d.type = {.type_class = TypeClass::kInteger, .name = "", .size = 3, .precision = 24};
       }},
      {"f: opaque values of 2 bytes, not marked as bfloat16 (tensor 'w')",
       [](Dataset& d) { d.type = {.type_class = TypeClass::kOpaque, .name = "", .size = 2}; }},
      {"f: elements of type compound (tensor 'w')",
       [](Dataset& d) { d.type = {.type_class = TypeClass::kOther, .name = "compound"}; }},
      {"f: a null dataspace, without elements or shape (tensor 'w')",
       [](Dataset& d) { d.space = Space::kNull; }},
      {"f: 2 dimensions (tensor 'w')", [](Dataset& d) { d.space = Space::kScalar; }},
      {"f: 33 dimensions (tensor 'w')", [](Dataset& d) { d.dims.assign(33, 1); }},
      {"f: a dimension of 2^63 or more (tensor 'w')", [](Dataset& d) { d.dims = {1ull << 63}; }},
      {"f: more than 2^63 bytes by its shape (tensor 'w')",
       [](Dataset& d) { d.dims = {1ull << 61}; }},
      {"f: more than 2^63 bytes by its shape (tensor 'w')",
       [](Dataset& d) {
         d.dims = {1ull << 33, 1ull << 33, 0};
       }},
      {"f: its data are in other files (external storage) (tensor 'w')",
       [](Dataset& d) { d.external_files = 1; }},
      {"f: a virtual dataset, whose data are in other files (tensor 'w')",
       [](Dataset& d) { d.layout = Layout::kVirtual; }},
      {"f: an unknown layout (tensor 'w')", [](Dataset& d) { d.layout = Layout::kOther; }},
      {"f: 24 of its 24 bytes are not stored, and the file states no fill value (tensor 'w')",
       [](Dataset& d) { d.address = kNoAddress; }},
      {"f: 23 bytes are stored, expected 24 (tensor 'w')", [](Dataset& d) { d.stored_bytes = 23; }},
      {"f: 24 bytes at offset 9977 are outside of the data of a file of 10000 bytes (tensor 'w')",
       [](Dataset& d) { d.address = 9977; }},
      {"f: 24 bytes at offset 18446744073709551606 are outside of the data of a file of 10000 "
       "bytes "
       "(tensor 'w')",
       [](Dataset& d) { d.address = UINT64_MAX - 9; }},
      {"f: 24 bytes at offset 47 are outside of the data of a file of 10000 bytes (tensor 'w')",
       [](Dataset& d) { d.address = 47; }},
      {"f: its bytes at offset 123 are also those of 'w' (tensor 'w')",
       [](Dataset& d) { d.object = 123; }},
      {"f: 0 bytes are stored, expected 24 (tensor 'w')",
       [](Dataset& d) {
         d.layout = Layout::kCompact;
         d.stored_bytes = 0;
       }},
      {"f: a path that is not UTF-8 text (tensor 'w\\xff')", [](Dataset& d) { d.path = "w\xff"; }},
      {"f: a path that is not UTF-8 text (tensor 'a\\x00')",
       [](Dataset& d) { d.path = std::string("a\0", 2); }},
      {"f: a path that is not UTF-8 text", [](Dataset& d) { d.path = ""; }},
  };
  for (const Case& c : cases) {
    Dataset dataset = contiguous("w", 100, {2, 3});
    c.change(dataset);
    EXPECT_EQ(verdict(dataset), c.message);
  }
}

TEST(Hdf5Check, ChunksMustCoverTheShapeOnce) {
  struct Case {
    std::string message;
    std::function<void(Dataset&)> change;
  };
  const std::string place = "f: a chunk outside of its shape (tensor 'w')";
  const Case cases[] = {
      {"accepted", [](Dataset&) {}},
      {"f: 4 of its 20 bytes are not stored, and the file states no fill value (tensor 'w')",
       [](Dataset& d) { d.chunks.pop_back(); }},
      {"f: 4 chunks are stored, expected 3 (tensor 'w')",
       [](Dataset& d) {
         d.chunks.push_back({1024, 8, 0, {4}});
       }},
      {"f: two chunks in one place (tensor 'w')",
       [](Dataset& d) { d.chunks[1].coordinates = {4}; }},
      {place, [](Dataset& d) { d.chunks[1].coordinates = {3}; }},
      {place, [](Dataset& d) { d.chunks[1].coordinates = {6}; }},
      {place, [](Dataset& d) { d.chunks[1].coordinates = {}; }},
      {place,
       [](Dataset& d) {
         d.chunks[1].coordinates = {2, 0};
       }},
      {"f: chunks of another rank than its shape (tensor 'w')",
       [](Dataset& d) {
         d.chunk_dims = {2, 1};
       }},
      {"f: chunks must have 1 to 67108864 bytes (tensor 'w')",
       [](Dataset& d) { d.chunk_dims = {0}; }},
      {"f: chunks must have 1 to 67108864 bytes (tensor 'w')",
       [](Dataset& d) { d.chunk_dims = {1ull << 62}; }},
      {"f: a chunk of 7 stored bytes, not 8 (tensor 'w')",
       [](Dataset& d) { d.chunks[0].bytes = 7; }},
      {"f: a chunk of 8 stored bytes, not 12 (tensor 'w')",
       [](Dataset& d) {
         d.filters = {{kFletcher32, {}}};
       }},
      {"accepted",  // skipped in all of them
       [](Dataset& d) {
         d.filters = {{kFletcher32, {}}};
         for (Chunk& chunk : d.chunks) chunk.skipped = 1;
       }},
      {"f: a chunk that skips a filter that it does not have (tensor 'w')",
       [](Dataset& d) { d.chunks[0].skipped = 1; }},
      {"f: 8 bytes at offset 9993 are outside of the data of a file of 10000 bytes (tensor 'w')",
       [](Dataset& d) { d.chunks[0].address = 9993; }},
      {"f: its bytes at offset 1015 are also those of 'w' (tensor 'w')",
       [](Dataset& d) { d.chunks[2].address = 1015; }},
      {"f: the filter 6 (tensor 'w')",
       [](Dataset& d) {
         d.filters = {{6, {}}};
       }},
      {"f: has the filter 1 twice (tensor 'w')",
       [](Dataset& d) {
         d.filters = {{kDeflate, {}}, {kDeflate, {}}};
       }},
      {"f: shuffled by another size than that of its elements (tensor 'w')",
       [](Dataset& d) {
         d.filters = {{kShuffle, {2}}};
       }},
      {"f: partial chunks that are not filtered (tensor 'w')",
       [](Dataset& d) { d.chunk_options = 2; }},
      {"f: a chunk of 1 stored bytes, not 4000 deflated (tensor 'w')",
       [](Dataset& d) {
         d.filters = {{kDeflate, {}}};
         d.chunk_dims = {1000};
         d.chunks = {{1000, 1, 0, {0}}};
         d.chunks[0].bytes = 1;
       }},
      // A deflated chunk is never so much larger than its contents.
      {"f: a chunk of 800 stored bytes, not 8 deflated (tensor 'w')",
       [](Dataset& d) {
         d.filters = {{kDeflate, {}}};
         d.chunks[0].bytes = 800;
       }},
      {"f: a chunk of 0 stored bytes, not 8 deflated (tensor 'w')",
       [](Dataset& d) {
         d.filters = {{kDeflate, {}}};
         d.chunks[0].bytes = 0;
       }},
      {"f: two of its chunks are the bytes at offset 1000 (tensor 'w')",
       [](Dataset& d) {
         d.filters = {{kDeflate, {}}};
         d.chunks[1].address = 1000;
       }},
      {"f: filtered chunks of 80000000 bytes side by side, more than 67108864 (tensor 'w')",
       [](Dataset& d) {
         d.filters = {{kShuffle, {4}}};
         d.dims = {1, 20'000'000};
         d.chunk_dims = {1, 10'000'000};
         d.chunks = {{1000, 40'000'000, 0, {0, 0}}, {1000, 40'000'000, 0, {0, 10'000'000}}};
       }},
  };
  for (const Case& c : cases) {
    Dataset dataset = chunked();
    c.change(dataset);
    EXPECT_EQ(verdict(dataset), c.message);
  }
  EXPECT_EQ(verdict(chunked(), 512), "f: chunked data in a file with a user block (tensor 'w')");
}

TEST(Hdf5Check, FillValuesStandForWhatIsNotStored) {
  const std::vector<std::byte> value = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  Description description;
  description.datasets = {contiguous("a", 100, {2, 3}), chunked()};
  description.datasets[0].address = kNoAddress;
  description.datasets[1].chunks.erase(description.datasets[1].chunks.begin());
  description.datasets[1].type.big_endian = true;
  description.fills = {{"a", value}, {"w", value}};
  const auto file = check(description, 0, kFileBytes, "f");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors[0].fill, value);
  EXPECT_EQ(file->tensors[0].entry.offset, 0u);
  EXPECT_EQ(file->tensors[1].fill, (std::vector<std::byte>{value.rbegin(), value.rend()}));

  description.fills[0].element.pop_back();
  EXPECT_EQ(verdict(description),
            "f: 24 of its 24 bytes are not stored, and the file states no fill value (tensor "
            "'a')");
  description.fills[0].element = value;
  // A megabyte of fill values is always allowed. Beyond that the size of the file limits them.
  description.datasets[0].dims = {1 << 17, 2};
  EXPECT_EQ(verdict(description), "f: more than 1048576 bytes are fill values (tensor 'w')");
  description.datasets[0].dims = {1ull << 40, 1ull << 20};
  EXPECT_EQ(verdict(description), "f: more than 1048576 bytes are fill values (tensor 'a')");
  description.datasets.erase(description.datasets.begin());
  EXPECT_EQ(verdict(description), "accepted");
  description.datasets[0].dims = {1ull << 60};
  EXPECT_EQ(verdict(description), "f: more than 1048576 bytes are fill values (tensor 'w')");
}

TEST(Hdf5Check, DatasetsDoNotShareBytesButByTwoNames) {
  Description description;
  description.datasets = {contiguous("a", 100, {6}), contiguous("b", 124, {6}),
                          contiguous("a", 100, {6})};
  description.datasets[2].path = "tied";
  description.datasets[1].object = 5000;
  EXPECT_EQ(verdict(description), "accepted");
  description.datasets[1].address = 120;
  EXPECT_EQ(verdict(description), "f: its bytes at offset 120 are also those of 'a' (tensor 'b')");
  description.datasets[1].path = "a";
  EXPECT_EQ(verdict(description), "f: listed twice (tensor 'a')");
}

TEST(Hdf5Check, OnlyHardLinksAreTaken) {
  const std::pair<LinkKind, std::string> cases[] = {
      {LinkKind::kSoft, "f: a soft link (tensor 'x')"},
      {LinkKind::kExternal, "f: a link to another file (external link) (tensor 'x')"},
      {LinkKind::kUserDefined, "f: a user-defined link (tensor 'x')"},
  };
  for (const auto& [kind, message] : cases) {
    Description description = sample();
    description.links = {{"x", kind}};
    EXPECT_EQ(verdict(description), message);
  }
}

TEST(Hdf5Check, Bfloat16NeedsTheAttributeOrALegacyFile) {
  Description description;
  description.datasets = {contiguous("w", 100, {6})};
  description.datasets[0].type = {.type_class = TypeClass::kOpaque, .name = "", .size = 2};
  description.datasets[0].stored_bytes = 12;
  EXPECT_NE(verdict(description), "accepted");
  for (const Attribute& mark :
       {Attribute{"w", "dtype", {"bfloat16"}}, Attribute{"", "layer_names", {"w"}},
        Attribute{"model_weights", "layer_names0", {"w"}}}) {
    description.attributes = {mark};
    const auto file = check(description, 0, kFileBytes, "f");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->tensors[0].entry.dtype, DType::kBF16);
  }
  description.attributes = {{"w", "dtype", {"float16"}}, {"v", "dtype", {"bfloat16"}}};
  EXPECT_NE(verdict(description), "accepted");
}

TEST(Hdf5Check, TheOptimizerIsLeftOutOfKerasFilesOnly) {
  Description description;
  description.datasets = {contiguous("optimizer/vars/0", 100, {1})};
  description.datasets[0].type = {.type_class = TypeClass::kOther, .name = "string"};
  EXPECT_EQ(verdict(description), "f: elements of type string (tensor 'optimizer/vars/0')");
  description.datasets.push_back(contiguous("layers/dense/vars/0", 200, {1}));
  const auto file = check(description, 0, kFileBytes, "f");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors.size(), 1u);
  EXPECT_EQ(file->optimizer_bytes, 4u);
}

TEST(Hdf5Check, ListedWeightsMustBeThere) {
  Description description;
  description.datasets = {contiguous("model_weights/fc/fc/kernel", 100, {1})};
  description.attributes = {{"model_weights", "layer_names", {"fc"}},
                            {"model_weights/fc", "weight_names0", {"fc/kernel"}},
                            {"optimizer_weights", "weight_names", {"Adam/m"}}};
  EXPECT_EQ(verdict(description), "accepted");
  description.attributes[1].values.push_back("fc/bias");
  EXPECT_EQ(verdict(description),
            "f: listed as a weight, but not in the file (tensor 'model_weights/fc/fc/bias')");
}

// -- filters

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

TEST(Hdf5Chunks, Fletcher32SumsBigEndianWords) {
  EXPECT_EQ(fletcher32({}), 0u);
  EXPECT_EQ(fletcher32(bytes({1, 2})), 0x01020102u);
  EXPECT_EQ(fletcher32(bytes({1, 2, 3, 4})), 0x05080406u);
  EXPECT_EQ(fletcher32(bytes({1, 2, 3})), 0x05040402u);  // an odd last byte is the high byte
  EXPECT_EQ(fletcher32(std::vector<std::byte>(100000, std::byte{0xff})), 0xffffffffu);
}

TEST(Hdf5Chunks, FiltersAreUndoneFromTheLast) {
  const ChunkShape shape{8, 4};
  const std::vector<Filter> shuffle = {{kShuffle, {4}}};
  EXPECT_EQ(unfilter_chunk(bytes({1, 5, 2, 6, 3, 7, 4, 8}), shuffle, 0, shape).value(),
            bytes({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(unfilter_chunk(bytes({1, 5, 2, 6, 3, 7, 4, 8}), shuffle, 1, shape).value(),
            bytes({1, 5, 2, 6, 3, 7, 4, 8}));
  const std::vector<Filter> sum = {{kFletcher32, {}}};
  const auto wrong = unfilter_chunk(bytes({1, 2, 3, 4, 0, 0, 0, 1}), sum, 0, {4, 4});
  EXPECT_EQ(wrong.error().message,
            "the fletcher32 sum of a chunk is 0x05080406, not 0x01000000 as stored");
  EXPECT_EQ(unfilter_chunk(bytes({1, 2, 3, 4, 6, 4, 8, 5}), sum, 0, {4, 4}).value(),
            bytes({1, 2, 3, 4}));
  EXPECT_FALSE(unfilter_chunk(bytes({1, 2}), sum, 0, {4, 4}));
  EXPECT_FALSE(unfilter_chunk(bytes({1, 2, 3}), {}, 0, {4, 4}));
}

TEST(Hdf5Chunks, AStreamInflatesToTheChunkAndNoFurther) {
  const std::vector<Filter> deflate = {{kDeflate, {}}};
  // A stored block of zlib with "abcd".
  const auto stream =
      bytes({0x78, 0x01, 0x01, 4, 0, 0xfb, 0xff, 'a', 'b', 'c', 'd', 0x03, 0xd8, 0x01, 0x8b});
  EXPECT_EQ(unfilter_chunk(stream, deflate, 0, {4, 4}).value(), bytes({'a', 'b', 'c', 'd'}));
  EXPECT_FALSE(unfilter_chunk(stream, deflate, 0, {8, 4}));
  EXPECT_FALSE(unfilter_chunk(stream, deflate, 0, {2, 2}));
  auto longer = stream;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(unfilter_chunk(longer, deflate, 0, {4, 4}));
  auto damaged = stream;
  damaged.back() ^= std::byte{1};
  EXPECT_FALSE(unfilter_chunk(damaged, deflate, 0, {4, 4}));
}

}  // namespace
}  // namespace ferry::hdf5::check_test
