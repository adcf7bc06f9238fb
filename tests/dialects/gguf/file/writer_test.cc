// GGUF files: the layout, read back by the reader, and splits.
#include "dialects/gguf/file/writer.h"
#include "dialects/gguf/file/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "dialects/gguf/file/header.h"

namespace ferry::formats::writer_test {
namespace {

GgufTensorInfo tensor(std::string name, Shape shape, uint32_t type) {
  return {.name = std::move(name), .shape = std::move(shape), .type = type};
}

Result<GgufHeader> read_back(const GgufLayout& layout) {
  std::vector<std::byte> bytes = layout.head;
  bytes.resize(layout.file_bytes);
  const GgufRead read = [&](uint64_t offset, std::span<std::byte> out) -> Status {
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return {};
  };
  return read_gguf_header(read, bytes.size(), "memory");
}

TEST(GgufWriter, WhatIsWrittenIsRead) {
  const std::vector<GgufKeyValue> keys = {{"general.architecture", std::string("llama")},
                                          {"a.u16", uint16_t{7}},
                                          {"a.u32", uint32_t{8}},
                                          {"a.i32", int32_t{-9}},
                                          {"a.f32", 0.5f},
                                          {"a.flag", true},
                                          {"a.ints", std::vector<int32_t>{1, -2}},
                                          {"a.reals", std::vector<float>{1.5f}},
                                          {"a.flags", std::vector<bool>{true, false}},
                                          {"a.texts", std::vector<std::string>{"x", "", "yz"}}};
  const std::vector<GgufTensorInfo> tensors = {tensor("one", {3}, 0), tensor("two", {2, 64}, 8),
                                               tensor("three", {2, 3, 4}, 1)};
  const Result<GgufLayout> layout = lay_out_gguf(keys, tensors);
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_EQ(layout->head.size() % 32, 0);
  const Result<GgufHeader> header = read_back(*layout);
  ASSERT_TRUE(header) << header.error().message;

  const GgufMetadata metadata(header->items, header->bytes, "memory");
  ASSERT_EQ(metadata.items().size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(metadata.items()[i].key, keys[i].key);
  EXPECT_EQ(metadata.find("a.u32")->type, GgufValueType::kU32);
  EXPECT_EQ(metadata.find("a.u16")->type, GgufValueType::kU16);
  EXPECT_EQ(*metadata.integer("a.i32"), -9);
  EXPECT_EQ(*metadata.real("a.f32"), 0.5);
  EXPECT_TRUE(*metadata.boolean("a.flag"));
  EXPECT_EQ(*metadata.integers("a.ints"), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(metadata.texts("a.texts")->at(2), "yz");

  ASSERT_EQ(header->tensors.size(), 3);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorEntry& entry = header->tensors[i].entry;
    EXPECT_EQ(entry.name, tensors[i].name);
    EXPECT_EQ(entry.shape, tensors[i].shape);
    EXPECT_EQ(entry.offset, layout->offsets[i]);
    EXPECT_EQ(entry.bytes, tensors[i].bytes());
  }
}

// Values from another file are written unchanged, whatever their type.
TEST(GgufWriter, StoredValuesAreTakenOver) {
  const std::vector<GgufKeyValue> keys = {{"a.texts", std::vector<std::string>{"x", "", "yz"}},
                                          {"a.number", uint32_t{5}},
                                          {"a.text", std::string("long enough")}};
  const GgufTensorInfo tensors[] = {tensor("t", {1}, 0)};
  const GgufLayout first = *lay_out_gguf(keys, tensors);
  const GgufHeader header = *read_back(first);
  const GgufMetadata metadata(header.items, header.bytes, "memory");
  std::vector<GgufKeyValue> copied;
  for (const GgufItem& item : metadata.items()) {
    const std::span<const std::byte> stored = metadata.stored(item);
    copied.push_back({item.key, GgufStoredValue{{stored.begin(), stored.end()}}});
  }
  EXPECT_EQ(lay_out_gguf(copied, tensors)->head, first.head);
}

TEST(GgufWriter, RefusesWhatReadersWouldNot) {
  const auto refused = [](std::vector<GgufKeyValue> keys, std::vector<GgufTensorInfo> tensors,
                          std::string_view why) {
    const Result<GgufLayout> layout = lay_out_gguf(keys, tensors);
    ASSERT_FALSE(layout) << why;
    EXPECT_EQ(layout.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(layout.error().message.find(why), std::string::npos) << layout.error().message;
  };
  refused({{"a", true}, {"a", false}}, {}, "there twice");
  refused({{"", true}}, {}, "empty");
  refused({}, {tensor("t", {1}, 0), tensor("t", {1}, 0)}, "there twice");
  refused({}, {tensor(std::string(64, 'x'), {1}, 0)}, "more than 63 bytes");
  refused({}, {tensor("t", {1, 1, 1, 1, 1}, 0)}, "no form");
  refused({}, {tensor("t", {48}, 8)}, "no form");
  refused({}, {tensor("t", {32}, 999)}, "no form");
}

// Files are split as by llama.cpp's converter.
TEST(GgufWriter, PartsEndBeforeTheyAreTooLarge) {
  std::vector<GgufTensorInfo> tensors;
  for (const int64_t bytes : {100, 300, 50, 50, 200, 10}) {
    tensors.push_back(tensor("t" + std::to_string(tensors.size()), {bytes / 2}, 1));
  }
  using Parts = std::vector<size_t>;
  EXPECT_EQ(gguf_parts(tensors, 0, 0), (Parts{6}));
  EXPECT_EQ(gguf_parts(tensors, 0, 4), (Parts{4, 2}));
  EXPECT_EQ(gguf_parts(tensors, 200, 0), (Parts{1, 1, 2, 1, 1}));
  EXPECT_EQ(gguf_parts(tensors, 1000, 2), (Parts{2, 2, 2}));
  EXPECT_EQ(gguf_part_name("model", 2, 13), "model-00002-of-00013.gguf");
  const std::vector<GgufKeyValue> keys = gguf_split_keys(1, 3, 290);
  EXPECT_EQ(keys[0], (GgufKeyValue{"split.no", uint16_t{1}}));
  EXPECT_EQ(keys[1], (GgufKeyValue{"split.count", uint16_t{3}}));
  EXPECT_EQ(keys[2], (GgufKeyValue{"split.tensors.count", int32_t{290}}));
}

}  // namespace
}  // namespace ferry::formats::writer_test
