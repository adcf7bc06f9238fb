#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/checkpoint.h"
#include "core/checked.h"
#include "core/file.h"
#include "core/json.h"
#include "core/sha256.h"
#include "dialects/gguf/file/gguf.h"
#include "dialects/gguf/file/header.h"
#include "tests/formats/corpus.h"
#include "tests/formats/temp_dir.h"

namespace ferry::formats::gguf_test {
namespace {

std::vector<std::byte> stored_bytes(const TensorSource& source, size_t index) {
  std::vector<std::byte> bytes(source.entries()[index].bytes);
  const Status status = source.read(index, 0, bytes);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  return bytes;
}

// Returns the values of a tensor, decoded where it is stored in blocks.
std::vector<std::byte> values_of(const TensorSource& source, size_t index) {
  const std::vector<std::byte> stored = stored_bytes(source, index);
  const BlockEncoding* encoding = source.entries()[index].encoding;
  if (encoding == nullptr) return stored;
  std::vector<float> values(stored.size() / encoding->bytes * encoding->elements);
  for (size_t block = 0; block * encoding->bytes < stored.size(); ++block) {
    encoding->decode(stored.data() + block * encoding->bytes,
                     values.data() + block * encoding->elements);
  }
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Builds valid or invalid files piece by piece.
class FileText {
 public:
  template <class T>
  FileText& number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  FileText& text(std::string_view value) {
    number<uint64_t>(value.size()).text_ += value;
    return *this;
  }
  FileText& head(uint64_t tensors, uint64_t items, uint32_t version = 3) {
    text_ += "GGUF";
    return number(version).number(tensors).number(items);
  }
  FileText& key(std::string_view name, GgufValueType type) {
    return text(name).number(static_cast<uint32_t>(type));
  }
  FileText& array(std::string_view name, GgufValueType type, uint64_t count) {
    return key(name, GgufValueType::kArray).number(static_cast<uint32_t>(type)).number(count);
  }
  FileText& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type,
                   uint64_t offset) {
    text(name).number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t size : dims) number(size);
    return number(type).number(offset);
  }
  FileText& pad(size_t alignment = 32) {
    text_.resize((text_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  FileText& data(size_t bytes) {
    text_.append(bytes, '\1');
    return *this;
  }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

Result<GgufHeader> parse(std::string_view file) {
  const auto bytes = std::as_bytes(std::span(file));
  const GgufRead read = [bytes](uint64_t offset, std::span<std::byte> out) -> Status {
    EXPECT_TRUE(offset <= bytes.size() && out.size() <= bytes.size() - offset);
    std::ranges::copy(bytes.subspan(offset, out.size()), out.begin());
    return {};
  };
  return read_gguf_header(read, bytes.size(), "f");
}

std::string parse_message(const FileText& file) {
  const auto header = parse(file.str());
  return header ? "accepted" : header.error().message;
}

// Every block type that we read is compared with the values of the reference implementation.
TEST(Gguf, BlockTypesGiveTheReferenceValuesToTheBit) {
  std::set<std::string> seen;
  for (const std::string name : {"mixA", "mixB"}) {
    const std::string path = FERRY_TESTDATA "/gguf/" + name + ".rows";
    const auto source = open_gguf(path + ".gguf").value().source;
    const auto golden = checkpoint::open_tensors(path + ".safetensors").value();
    ASSERT_EQ(source->entries().size(), golden->entries().size());
    for (size_t i = 0; i < source->entries().size(); ++i) {
      const TensorEntry& entry = source->entries()[i];
      SCOPED_TRACE(name + " " + entry.name);
      const auto same = std::ranges::find(golden->entries(), entry.name, &TensorEntry::name);
      ASSERT_NE(same, golden->entries().end());
      EXPECT_EQ(entry.dtype, DType::kF32);
      EXPECT_EQ(entry.shape, same->shape);
      EXPECT_EQ(values_of(*source, i),
                values_of(*golden, static_cast<size_t>(same - golden->entries().begin())));
    }
    const std::string text = read_text_file(path + ".gguf", 1 << 20).value();
    const GgufHeader header = parse(text).value();
    for (const GgufTensor& tensor : header.tensors) seen.emplace(tensor.type->name);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"F32", "Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q5_0",
                                         "Q5_1", "Q5_K", "Q6_K", "Q8_0"}));
}

// The reference writer made this file: it has q8_0 matrices and f32 vectors.
TEST(Gguf, AFileOfTheReferenceWriterHasTheReferenceValues) {
  const auto source = open_gguf(FERRY_TESTDATA "/gguf/gemma3_q8_0.gguf").value().source;
  const std::string path = FERRY_TESTDATA "/gguf/gemma3_q8_0.sha256.json";
  const auto digests = parse_json(read_text_file(path, 1 << 20).value(), path).value();
  ASSERT_EQ(source->entries().size(), digests.size());
  for (size_t i = 0; i < source->entries().size(); ++i) {
    const TensorEntry& entry = source->entries()[i];
    EXPECT_EQ(to_hex(sha256(values_of(*source, i))), digests.at(entry.name)) << entry.name;
  }
  EXPECT_EQ(source->entries()[0].name, "token_embd.weight");
}

TEST(Gguf, AnyRangeOfTheStoredBytesCanBeRead) {
  const auto source = open_gguf(FERRY_TESTDATA "/gguf/mixB.rows.gguf").value().source;
  for (size_t i = 0; i < source->entries().size(); ++i) {
    const std::vector<std::byte> whole = stored_bytes(*source, i);
    for (const size_t offset : {0u, 4u, 124u, 128u, 132u, 1020u, 1024u}) {
      for (const size_t size : {0u, 4u, 8u, 128u, 256u, 900u}) {
        if (offset + size > whole.size()) continue;
        std::vector<std::byte> part(size);
        ASSERT_TRUE(source->read(i, offset, part));
        EXPECT_TRUE(std::ranges::equal(part, std::span(whole).subspan(offset, size)));
      }
    }
  }
}

// The files have q8_0 and q4_0 tensors, among others. `inspect` shows these numbers.
TEST(Gguf, HeaderPaddingAndStoredBytesAreTheWholeFile) {
  constexpr uint64_t kAlignment = 32;
  std::set<std::string_view> forms;
  for (const char* name : {"/gguf/llama3_tied_q8_0.gguf", "/gguf/mixA.rows.gguf"}) {
    const auto source = open_gguf(std::string(FERRY_TESTDATA) + name).value().source;
    uint64_t end = source->files()[0].header.size();
    uint64_t last = end;
    for (const TensorEntry& entry : source->entries()) {
      forms.insert(entry.form());
      last = end + entry.stored_bytes();
      end = align_up(last, kAlignment);
    }
    const uint64_t file = source->files()[0].bytes;
    EXPECT_TRUE(file == end || file == last) << name << " " << file << " " << last;
  }
  EXPECT_TRUE(forms.contains("q8_0") && forms.contains("q4_0"));
}

TEST(Gguf, PlainTypesPassAsTheyAreStored) {
  struct Case {
    uint32_t type;
    DType dtype;
    uint64_t bytes;
  };
  const Case cases[] = {
      {0, DType::kF32, 4},  {1, DType::kF16, 2},  {30, DType::kBF16, 2}, {24, DType::kI8, 1},
      {25, DType::kI16, 2}, {26, DType::kI32, 4}, {27, DType::kI64, 8},  {28, DType::kF64, 8},
  };
  TempDir dir;
  for (const Case& c : cases) {
    FileText file;
    file.head(1, 0).tensor("w", {3, 2}, c.type, 0).pad();
    const size_t start = file.str().size();
    for (uint64_t i = 0; i < 6 * c.bytes; ++i) file.number(static_cast<uint8_t>(200 + i));
    const std::string path = dir.write(fmt::format("{}.gguf", c.type), file.str());
    const auto source = open_gguf(path).value().source;
    const TensorEntry& entry = source->entries()[0];
    EXPECT_EQ(entry.dtype, c.dtype);
    EXPECT_EQ(entry.shape, (Shape{2, 3}));
    EXPECT_EQ(entry.bytes, 6 * c.bytes);
    const auto stored = std::as_bytes(std::span(file.str())).subspan(start);
    EXPECT_TRUE(std::ranges::equal(values_of(*source, 0), stored));
  }
}

TEST(Gguf, TheHeaderIsAllThatPrecedesTheData) {
  TempDir dir;
  FileText file;
  file.head(2, 1).key("general.alignment", GgufValueType::kU32).number<uint32_t>(128);
  file.tensor("b", {5}, 0, 0).tensor("a", {1}, 0, 128).pad(128);
  const std::string head = file.str();
  file.data(20).pad(128).data(4);
  const auto source = open_gguf(dir.write("x.gguf", file.str())).value().source;
  ASSERT_EQ(source->files().size(), 1u);
  EXPECT_EQ(source->files()[0].name, "x.gguf");
  EXPECT_EQ(source->files()[0].bytes, file.str().size());
  EXPECT_TRUE(std::ranges::equal(source->files()[0].header, std::as_bytes(std::span(head))));
  EXPECT_EQ(source->entries()[0].name, "b");
  EXPECT_EQ(source->entries()[0].offset, head.size());
  EXPECT_EQ(source->entries()[1].offset, head.size() + 128);
}

TEST(Gguf, MetadataAreReadByType) {
  const GgufFile opened = open_gguf(FERRY_TESTDATA "/gguf/gemma3_q8_0.gguf").value();
  const GgufMetadata& metadata = opened.metadata;
  EXPECT_EQ(metadata.items().size(), 28u);
  EXPECT_EQ(metadata.text("general.architecture").value(), "gemma3");
  EXPECT_EQ(metadata.integer("gemma3.embedding_length").value(), 32);
  EXPECT_EQ(metadata.real("gemma3.rope.freq_base").value(), 1e6);
  const auto tokens = metadata.texts("tokenizer.ggml.tokens").value();
  ASSERT_EQ(tokens.size(), 300u);
  EXPECT_EQ(tokens[2], "<bos>");
  EXPECT_EQ(metadata.integers("tokenizer.ggml.token_type").value().size(), 300u);
  EXPECT_EQ(metadata.find("absent"), nullptr);
}

TEST(Gguf, MetadataAsJsonHaveTheNumbersThatTheWriterMeant) {
  const GgufFile opened = open_gguf(FERRY_TESTDATA "/gguf/gemma3_q8_0.gguf").value();
  const nlohmann::json all = opened.metadata.to_json().value();
  EXPECT_EQ(all.size(), 28u);
  EXPECT_EQ(all["gemma3.embedding_length"], 32);
  EXPECT_EQ(all["gemma3.attention.layer_norm_rms_epsilon"], 1e-6);  // the file stores it as f32
  EXPECT_EQ(all["tokenizer.ggml.tokens"][2], "<bos>");
  EXPECT_EQ(all["tokenizer.ggml.add_bos_token"], false);
}

TEST(Gguf, MetadataWithTooManyElementsHaveNoJson) {
  TempDir dir;
  FileText file;
  file.head(0, 1).array("big", GgufValueType::kU8, GgufMetadata::kMaxJsonElements + 1);
  file.data(GgufMetadata::kMaxJsonElements + 1);
  const GgufFile opened = open_gguf(dir.write("x.gguf", file.str())).value();
  const auto all = opened.metadata.to_json();
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, ErrorCode::kUnsupported);
}

TEST(Gguf, MetadataOfAnotherKindAreRefused) {
  TempDir dir;
  FileText file;
  file.head(0, 7).key("u", GgufValueType::kU64).number(UINT64_MAX);
  file.key("i", GgufValueType::kI8).number<int8_t>(-5);
  file.key("b", GgufValueType::kBool).number<uint8_t>(2);
  file.key("d", GgufValueType::kF64).number(0.1);
  file.array("r", GgufValueType::kF32, 2).number(1.5f).number(-2.0f);
  file.array("n", GgufValueType::kI16, 0);
  file.key("s", GgufValueType::kString).text("\xff");
  const GgufFile opened = open_gguf(dir.write("x.gguf", file.str())).value();
  const GgufMetadata& metadata = opened.metadata;
  EXPECT_EQ(metadata.integer("i").value(), -5);
  EXPECT_TRUE(metadata.boolean("b").value());
  EXPECT_EQ(metadata.real("d").value(), 0.1);
  EXPECT_EQ(metadata.reals("r").value(), (std::vector<double>{1.5, -2.0}));
  EXPECT_TRUE(metadata.integers("n").value().empty());
  EXPECT_EQ(metadata.text("s").value(), "\xff");
  const std::string f = dir / "x.gguf";
  EXPECT_EQ(metadata.integer("u").error().message,
            f + ": not an integer below 2^63, but u64 (key 'u')");
  EXPECT_EQ(metadata.text("r").error().message,
            f + ": not a string, but an array of f32 (key 'r')");
  EXPECT_EQ(metadata.reals("d").error().message, f + ": not an array of floats, but f64 (key 'd')");
  EXPECT_EQ(metadata.real("x").error().message, f + ": not in the metadata (key 'x')");
  const nlohmann::json all = metadata.to_json().value();
  EXPECT_EQ(all.size(), 7u);
  EXPECT_EQ(all["u"], UINT64_MAX);
  EXPECT_EQ(all["i"], -5);
  EXPECT_EQ(all["b"], true);
  EXPECT_EQ(all["r"], nlohmann::json({1.5, -2.0}));
  EXPECT_EQ(all["n"], nlohmann::json::array());
  EXPECT_EQ(all["s"], "\xff");
  EXPECT_FALSE(metadata.integer("b"));
  EXPECT_FALSE(metadata.boolean("i"));
  EXPECT_FALSE(metadata.real("i"));
  EXPECT_FALSE(metadata.texts("r"));
  EXPECT_FALSE(metadata.integers("r"));
}

TEST(Gguf, RefusesAFalseHeaderWithTheReason) {
  const auto head = [](uint64_t tensors, uint64_t items) {
    return FileText().head(tensors, items);
  };
  const std::pair<FileText, std::string> cases[] = {
      {FileText().number('G'), "f: 4 bytes are needed, and the file has 1 left (offset 0)"},
      {FileText().head(0, 0, 1), "f: GGUF version 1 is not supported (offset 4)"},
      {FileText().head(0, 0, 0x3000000), "f: big-endian GGUF files are not supported (offset 4)"},
      {head(1, 0), "f: 1 tensors, more than a file of 24 bytes can hold (offset 8)"},
      {head(0, 5).data(64), "f: 5 keys, more than a file of 88 bytes can hold (offset 16)"},
      {head(0, 70000).data(1000000), "f: more than 65536 keys (offset 16)"},
      {head(0, 1).text("").data(32), "f: a key of 0 bytes, not 1 to 65535 (offset 24)"},
      {head(0, 1).text("a\n").data(32),
       "f: a key 'a\\n' with characters that do not print (offset 24)"},
      {head(0, 1).array("k", GgufValueType::kArray, 0).data(8),
       "f: an array of arrays (key 'k', offset 41)"},
      {head(0, 1).array("k", GgufValueType::kU64, uint64_t{1} << 61).data(8),
       "f: 2305843009213693952 elements, more than a file of 57 bytes can hold (key 'k', offset "
       "41)"},
      {head(0, 1).array("k", GgufValueType::kString, 2).text("a").number(UINT64_MAX),
       "f: 18446744073709551615 bytes are needed, and the file has 0 left (key 'k', offset 66)"},
      {head(0, 1).key("general.alignment", GgufValueType::kU32).number(0),
       "f: general.alignment 0 is not a u32 power of two (offset 53)"},
      {head(0, 1).key("general.alignment", GgufValueType::kI32).number(32),
       "f: general.alignment 32 is not a u32 power of two (offset 53)"},
  };
  for (const auto& [file, message] : cases) EXPECT_EQ(parse_message(file), message);
}

TEST(Gguf, RefusesAFalseTensorWithTheReason) {
  const auto one = [](std::vector<uint64_t> dims, uint32_t type, uint64_t offset = 0) {
    return FileText().head(1, 0).tensor("w", std::move(dims), type, offset).pad().data(32);
  };
  const auto two = [](uint64_t offset) {
    return FileText().head(2, 0).tensor("a", {9}, 0, 0).tensor("b", {1}, 0, offset).pad().data(192);
  };
  const std::pair<FileText, std::string> cases[] = {
      {one({8}, 0), "accepted"},
      {one({}, 0), "accepted"},
      {one({0, 7}, 0).data(0), "f: 32 bytes after the last tensor (offset 96)"},
      {one({1, 1, 1, 1, 1}, 0), "f: 5 dimensions, more than 4 (tensor 'w', offset 33)"},
      {one({uint64_t{1} << 63}, 0),
       "f: a dimension of 9223372036854775808 (tensor 'w', offset 37)"},
      {one({uint64_t{1} << 62}, 24),
       "f: 4611686018427387904 bytes at data offset 0, but the file has 32 bytes of data (tensor "
       "'w', offset 64)"},
      {one({uint64_t{1} << 62}, 0),
       "f: the shape [4611686018427387904] has too many elements (tensor 'w', offset 49)"},
      {one({32, 2}, 12),
       "f: rows of 32 elements are not whole Q4_K blocks of 256 (tensor 'w', offset 57)"},
      {one({}, 8), "f: rows of 1 elements are not whole Q8_0 blocks of 32 (tensor 'w', offset 41)"},
      {one({256}, 21), "f: tensors of type IQ3_S are not supported (tensor 'w', offset 45)"},
      {one({256}, 4), "f: tensors of type 4 are not supported (tensor 'w', offset 45)"},
      {one({8}, 0, 32),
       "f: a hole before it: the data are at 32, but belong at 0 (tensor 'w', offset 64)"},
      {one({9}, 0),
       "f: 36 bytes at data offset 0, but the file has 32 bytes of data (tensor 'w', "
       "offset 64)"},
      {two(32), "f: an overlap: the data are at 32, but belong at 64 (tensor 'b', offset 96)"},
      {two(36), "f: not aligned: the data are at 36, but belong at 64 (tensor 'b', offset 96)"},
      {two(UINT64_MAX - 31),
       "f: a hole before it: the data are at 18446744073709551584, but "
       "belong at 64 (tensor 'b', offset 96)"},
      {two(64), "f: 124 bytes after the last tensor (offset 164)"},
      {FileText().head(2, 0).tensor("a", {1}, 0, 0).tensor("a", {1}, 0, 32).pad().data(36),
       "f: a tensor name 'a' is there twice (offset 57)"},
  };
  for (const auto& [file, message] : cases) EXPECT_EQ(parse_message(file), message);
}

TEST(Gguf, TheLastTensorMayLackItsPadding) {
  for (const size_t bytes : {35u, 36u, 37u, 64u, 65u}) {
    const FileText file = FileText().head(1, 0).tensor("w", {9}, 0, 0).pad().data(bytes);
    EXPECT_EQ(parse(file.str()).has_value(), bytes >= 36 && bytes <= 64) << bytes;
  }
}

// A header whose claimed length exceeds the limit is refused, whatever the size of the file.
TEST(Gguf, HeadersAreBounded) {
  FileText file;
  file.head(0, 1).key("k", GgufValueType::kString).number(kMaxGgufHeaderBytes);
  const GgufRead read = [&](uint64_t offset, std::span<std::byte> out) -> Status {
    const auto bytes = std::as_bytes(std::span(file.str()));
    EXPECT_EQ(offset, 0u);
    std::ranges::copy(bytes.first(std::min(bytes.size(), out.size())), out.begin());
    return {};
  };
  const auto header = read_gguf_header(read, uint64_t{1} << 40, "f");
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().message,
            "f: the header is longer than 67108864 bytes (key 'k', offset 45)");
}

// The reader returns, whatever byte is changed and wherever the file ends.
TEST(Gguf, DamageNeverCrashes) {
  const std::string valid = read_text_file(FERRY_TESTDATA "/gguf/mixA.rows.gguf", 1 << 20).value();
  const size_t head = valid.size() - parse(valid)->tensors.back().entry.bytes;
  size_t accepted = 0;
  for (size_t i = 0; i < head; i += 3) {
    std::string damaged = valid;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x80);
    accepted += parse(damaged).has_value();
    EXPECT_FALSE(parse(std::string_view(valid).substr(0, i)));
  }
  EXPECT_GT(accepted, 0u);  // some changes only alter the value of a key
}

TEST(Gguf, AFileThatChangesIsNoticed) {
  TempDir dir;
  const FileText file = FileText().head(1, 0).tensor("w", {32}, 8, 0).pad().data(34);
  const std::string path = dir.write("x.gguf", file.str());
  const auto source = open_gguf(path).value().source;
  std::vector<std::byte> bytes(34);
  EXPECT_TRUE(source->read(0, 0, bytes));
  EXPECT_TRUE(source->check_unchanged());
  std::filesystem::resize_file(path, file.str().size() - 1);
  EXPECT_EQ(source->read(0, 0, bytes).error().code, ErrorCode::kIo);
  EXPECT_EQ(source->check_unchanged().error().code, ErrorCode::kIo);
}

TEST(Gguf, ReadsOutsideOfATensorAreRefused) {
  TempDir dir;
  const FileText file = FileText().head(1, 0).tensor("w", {32}, 8, 0).pad().data(34);
  const auto source = open_gguf(dir.write("x.gguf", file.str())).value().source;
  std::vector<std::byte> bytes(12);
  EXPECT_TRUE(source->read(0, 22, bytes));
  EXPECT_FALSE(source->read(0, 23, bytes));
  EXPECT_FALSE(source->read(0, UINT64_MAX, bytes));
  EXPECT_FALSE(source->read(1, 0, {}));
}

}  // namespace
}  // namespace ferry::formats::gguf_test
