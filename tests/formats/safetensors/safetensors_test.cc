#include <gtest/gtest.h>

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "core/file.h"
#include "core/json.h"
#include "core/sha256.h"
#include "formats/safetensors/safetensors.h"
#include "formats/safetensors/writer.h"
#include "tests/formats/corpus.h"
#include "tests/formats/temp_dir.h"

namespace ferry::formats::safetensors_test {
namespace {

// Size of the tensor data in the file whose header is mixed.header.
constexpr uint64_t kMixedData = 386276;

// Returns a file with this header and `data` zero bytes after it.
std::string file_text(std::string_view json, size_t data) {
  std::string text(8, '\0');
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(json.size() >> (8 * i));
  return text + std::string(json) + std::string(data, '\0');
}

std::string parse_message(std::string_view json, uint64_t data) {
  const auto bytes = std::as_bytes(std::span(json));
  const auto entries = parse_safetensors_header(bytes, 8 + json.size() + data, "f");
  return entries ? "accepted" : entries.error().message;
}

TEST(Safetensors, EntriesAreOrderedByPlaceAndTheHeaderIsKept) {
  TempDir dir;
  const std::string json = R"({"z":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                           R"("b":{"dtype":"BF16","shape":[],"data_offsets":[2,4]},)"
                           R"("e":{"dtype":"F32","shape":[0,9],"data_offsets":[2,2]}})";
  const std::string text = file_text(json, 4);
  const auto source = checkpoint::open_tensors(dir.write("x.safetensors", text)).value();
  ASSERT_EQ(source->entries().size(), 3u);
  EXPECT_EQ(source->entries()[0].name, "z");
  EXPECT_EQ(source->entries()[1].name, "e");
  EXPECT_EQ(source->entries()[2].name, "b");
  EXPECT_EQ(source->entries()[2].offset, 8 + json.size() + 2);
  EXPECT_EQ(source->entries()[2].bytes, 2u);
  EXPECT_EQ(source->files()[0].name, "x.safetensors");
  EXPECT_EQ(source->files()[0].bytes, text.size());
  ASSERT_EQ(source->files()[0].header.size(), 8 + json.size());
  EXPECT_EQ(std::memcmp(source->files()[0].header.data(), text.data(), 8 + json.size()), 0);
}

TEST(Safetensors, RefusesWithTheReason) {
  struct Case {
    std::string json;
    uint64_t data;
    std::string message;
  };
  const auto u8 = [](std::string_view name, int begin, int end) {
    return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name,
                       end - begin, begin, end);
  };
  const Case cases[] = {
      {"{" + u8("a", 0, 1) + "," + u8("b", 2, 3) + "}", 3,
       "f: a hole before data offset 2, the data before it end at 1 (tensor 'b')"},
      {"{" + u8("a", 0, 2) + "," + u8("b", 1, 3) + "}", 3,
       "f: an overlap at data offset 1, the data before it end at 2 (tensor 'b')"},
      {"{" + u8("a", 0, 1) + "}", 3, "f: 2 bytes after the last tensor (offset 62)"},
      {"{" + u8("a", 0, 1) + "," + u8("a", 1, 2) + "}", 2, "f: there twice (tensor 'a')"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[1,0]}})", 1,
       "f: data_offsets end at 0 before they begin at 1 (tensor 'a')"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1,
       "f: the field 'data_offsets' is not an array of two unsigned integers (tensor 'a')"},
      {R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1,
       "f: the field 'shape' is not an array of unsigned integers (tensor 'a')"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}})", 1,
       "f: the field 'shape' is not an array of unsigned integers (tensor 'a')"},
      {R"({"a":["U8",[1],[0,1]]})", 1, "f: not an object (tensor 'a')"},
      {R"({"__metadata__":{"k":"v","k":"w"}})", 0, "f: the key 'k' is there twice in __metadata__"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "f: the key '__metadata__' is there twice"},
      {R"({"__metadata__":1})", 0, "f: __metadata__ is not an object"},
      {"[]", 0, "f: the header is not a JSON object"},
      {"{", 0, "f: not valid JSON: unexpected end of input (offset 9)"},
  };
  for (const Case& c : cases) EXPECT_EQ(parse_message(c.json, c.data), c.message);
}

TEST(Safetensors, AcceptsWhatTheReferenceAccepts) {
  EXPECT_EQ(parse_message(R"( {"__metadata__":null}  )", 0), "accepted");
  EXPECT_EQ(parse_message(R"({"__metadata__":{"format":"pt"}})", 0), "accepted");
  EXPECT_EQ(parse_message(R"({"":{"data_offsets":[0,0],"shape":[0],"dtype":"F64"}})", 0),
            "accepted");
  EXPECT_EQ(parse_message(R"({"a\u0000":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}})", 0),
            "accepted");
}

TEST(Safetensors, RankIsBounded) {
  for (int rank : {64, 65}) {
    std::string shape = "1";
    for (int i = 1; i < rank; ++i) shape += ",1";
    const std::string message =
        parse_message(R"({"a":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,1]}})", 1);
    EXPECT_EQ(message, rank == 64 ? "accepted" : "f: more than 64 dimensions (tensor 'a')");
  }
}

TEST(Safetensors, MetadataIsBounded) {
  std::string json = R"({"__metadata__":{"k":"")";
  for (int i = 0; i < 65536; ++i) json += fmt::format(R"(,"{}":"")", i);
  EXPECT_EQ(parse_message(json + "}}", 0), "f: more than 65536 keys in __metadata__");
}

TEST(Safetensors, ManyTensorsAreRead) {
  std::string json = "{";
  for (int i = 0; i < 50000; ++i) {
    json +=
        fmt::format(R"("t{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}},)", i, i, i + 1);
  }
  json.back() = '}';
  EXPECT_EQ(parse_message(json, 50000), "accepted");
}

TEST(Safetensors, ALongHeaderIsReadAndNotKept) {
  TempDir dir;
  const std::string json = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  const std::string padding((16 << 20) + 1 - json.size(), ' ');
  const auto kept =
      checkpoint::open_tensors(dir.write("a.safetensors", file_text(json + padding.substr(1), 4)))
          .value();
  EXPECT_EQ(kept->files()[0].header.size(), 8u + (16 << 20));
  const auto not_kept =
      checkpoint::open_tensors(dir.write("b.safetensors", file_text(json + padding, 4))).value();
  EXPECT_TRUE(not_kept->files()[0].header.empty());
  EXPECT_EQ(not_kept->entries()[0].offset, 9u + (16 << 20));
}

TEST(Safetensors, AFileThatChangesIsNoticed) {
  TempDir dir;
  const std::string json = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  const std::string path = dir.write("x.safetensors", file_text(json, 4));
  const auto source = checkpoint::open_tensors(path).value();
  std::vector<std::byte> bytes(4);
  EXPECT_TRUE(source->read(0, 0, bytes));
  std::filesystem::resize_file(path, 8 + json.size() + 2);
  const Status status = source->read(0, 0, bytes);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
}

TEST(Safetensors, ReadsOutsideOfATensorAreRefused) {
  TempDir dir;
  const std::string json = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  const auto source =
      checkpoint::open_tensors(dir.write("x.safetensors", file_text(json, 4))).value();
  std::vector<std::byte> bytes(3);
  EXPECT_TRUE(source->read(0, 1, bytes));
  EXPECT_FALSE(source->read(0, 2, bytes));
  EXPECT_FALSE(source->read(0, UINT64_MAX, bytes));
  EXPECT_FALSE(source->read(1, 0, {}));
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  TempDir dir;
  const std::string data = "0123456789abcdef";
  const auto bytes = std::as_bytes(std::span(data));
  const std::vector<TensorData> tensors = {
      {{"b\n\"é", DType::kU8, {3}}, bytes.first(3)},
      {{"long", DType::kI64, {1, 2}}, bytes},
      {{"empty", DType::kF32, {0}}, {}},
      {{"a", DType::kU8, {}}, bytes.last(1)},
  };
  const std::string path = dir / "out.safetensors";
  ASSERT_TRUE(write_safetensors(path, tensors, {{"format", "pt"}}));
  const auto source = checkpoint::open_tensors(path).value();
  EXPECT_EQ(source->files()[0].header.size() % 8, 0u);
  ASSERT_EQ(source->entries().size(), 4u);
  const std::vector<std::string> order = {"long", "empty", "a", "b\n\"é"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(source->entries()[i].name, order[i]);
    const auto it = std::find_if(tensors.begin(), tensors.end(),
                                 [&](const TensorData& t) { return t.spec.name == order[i]; });
    EXPECT_EQ(source->entries()[i].shape, it->spec.shape);
    EXPECT_EQ(sha_of_entry(*source, i), to_hex(sha256(it->bytes)));
  }
}

TEST(SafetensorsWriter, HeaderEqualsThatOfTheReferenceLibrary) {
  const std::string header =
      read_text_file(FERRY_TESTDATA "/safetensors/mixed.header", 1 << 20).value();
  const auto bytes = std::as_bytes(std::span(header));
  const auto entries =
      parse_safetensors_header(bytes.subspan(8), header.size() + kMixedData, "mixed.header")
          .value();
  std::vector<TensorSpec> specs;
  for (const TensorEntry& e : entries) specs.push_back({e.name, e.dtype, e.shape});
  std::reverse(specs.begin(), specs.end());
  const SafetensorsLayout layout = plan_safetensors(specs, {{"format", "pt"}}).value();
  EXPECT_TRUE(std::ranges::equal(layout.head, bytes));
  EXPECT_EQ(layout.offsets.front(), entries.back().offset);
}

TEST(SafetensorsWriter, RefusesWhatTheFormatCannotHold) {
  EXPECT_FALSE(plan_safetensors({{"a", DType::kF4, {3}}}));
  EXPECT_FALSE(plan_safetensors({{"a", DType::kU8, {-1}}}));
  EXPECT_FALSE(plan_safetensors({{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}));
  EXPECT_FALSE(plan_safetensors({{"\xff", DType::kU8, {1}}}));
  EXPECT_FALSE(plan_safetensors({{"__metadata__", DType::kU8, {1}}}));
}

TEST(SafetensorsWriter, NeverOverwrites) {
  TempDir dir;
  const std::string path = dir.write("x.safetensors", "mine");
  EXPECT_FALSE(write_safetensors(path, {}));
  EXPECT_EQ(read_text_file(path, 10).value(), "mine");
}

}  // namespace
}  // namespace ferry::formats::safetensors_test
