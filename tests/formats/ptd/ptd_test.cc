#include "formats/ptd/ptd.h"

#include "tests/formats/program_files.h"

namespace ferry::ptd::ptd_test {
namespace {

const std::vector<NamedTensor> kTensors = {
    {"tok.weight", DType::kBF16, {3, 2}, 1},
    {"norm.weight", DType::kF32, {5}, 0},
    {"head.weight", DType::kBF16, {3, 2}, 1},  // tied
    {"scalar", DType::kI64, {}, 2},
};
const std::vector<uint64_t> kSizes = {20, 12, 8};

std::vector<std::byte> file_of(const Layout& layout) {
  std::vector<std::byte> file = layout.head;
  file.resize(layout.file_bytes);
  return file;
}

TEST(Ptd, WhatIsPlannedIsRead) {
  const auto layout = plan_data_file(kTensors, kSizes);
  ASSERT_TRUE(layout) << layout.error().message;
  const auto file = file_of(*layout);
  const auto data = read_data_file(file, "x.ptd");
  ASSERT_TRUE(data) << data.error().message;
  ASSERT_EQ(data->tensors.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(data->tensors[i].key, kTensors[i].key);
    EXPECT_EQ(data->tensors[i].dtype, kTensors[i].dtype);
    EXPECT_EQ(data->tensors[i].sizes, kTensors[i].sizes);
    EXPECT_EQ(data->tensors[i].segment, kTensors[i].segment);
  }
  ASSERT_EQ(data->segments.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(data->segments[i].offset, layout->segments[i].offset);
    EXPECT_EQ(data->segments[i].size, kSizes[i]);
  }
}

TEST(Ptd, SegmentsAreAlignedAndTheLastEndsTheFile) {
  const auto layout = plan_data_file(kTensors, kSizes);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->segments[0].offset, layout->head.size());
  for (const Segment& segment : layout->segments) EXPECT_EQ(segment.offset % 128, 0u);
  EXPECT_EQ(layout->file_bytes, layout->segments[2].offset + 8);
}

TEST(Ptd, ACutFileNamesTheTensorThatIsCut) {
  const auto layout = plan_data_file(kTensors, kSizes);
  ASSERT_TRUE(layout);
  std::vector<std::byte> file = file_of(*layout);
  file.pop_back();
  const auto data = read_data_file(file, "x.ptd");
  ASSERT_FALSE(data);
  EXPECT_EQ(data.error().message,
            "x.ptd: segment 2 (offset 256, 8 bytes) exceeds the 263 bytes of data (tensor "
            "'scalar')");
}

TEST(Ptd, ReadsTheOfficialFile) {
  const auto file = read_test_file("official_pte/linear_ext.ptd");
  const auto data = read_data_file(file, "linear_ext.ptd");
  ASSERT_TRUE(data) << data.error().message;
  ASSERT_EQ(data->tensors.size(), 2u);
  EXPECT_EQ(data->tensors[0].key, "l.weight");
  EXPECT_EQ(data->tensors[0].sizes, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(data->tensors[1].key, "l.bias");
  EXPECT_EQ(data->tensors[1].dtype, DType::kF32);
  EXPECT_EQ(data->segments[data->tensors[0].segment].offset, 0x180u);
  EXPECT_EQ(data->segments[data->tensors[1].segment].offset, 0x200u);
}

TEST(Ptd, OurHeaderOfTheOfficialTensorsSaysTheSame) {
  const auto file = read_test_file("official_pte/llama_tiny_ext.ptd");
  const auto official = read_data_file(file, "llama_tiny_ext.ptd");
  ASSERT_TRUE(official) << official.error().message;
  EXPECT_EQ(official->tensors.size(), 29u);
  std::vector<uint64_t> sizes;
  for (const Segment& segment : official->segments) sizes.push_back(segment.size);
  const auto layout = plan_data_file(official->tensors, sizes);
  ASSERT_TRUE(layout);
  const auto ours = read_data_file(file_of(*layout), "ours.ptd");
  ASSERT_TRUE(ours) << ours.error().message;
  ASSERT_EQ(ours->tensors.size(), official->tensors.size());
  const uint64_t base = ours->segments[0].offset, official_base = official->segments[0].offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(ours->segments[i].offset - base, official->segments[i].offset - official_base);
  }
}

// An int8 embedding and a delegate use the same codes under two names.
TEST(Ptd, DataOfDelegatesHaveNoLayoutAndMayShareSegments) {
  const std::vector<NamedTensor> tensors = {{"table", DType::kI8, {3, 4}, 0},
                                            {"head", DType::kU8, {}, 0, false},
                                            {"head.scales", DType::kU8, {}, 1, false}};
  const auto layout = plan_data_file(tensors, {12, 7});
  ASSERT_TRUE(layout) << layout.error().message;
  const auto data = read_data_file(file_of(*layout), "x.ptd");
  ASSERT_TRUE(data) << data.error().message;
  ASSERT_EQ(data->tensors.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(data->tensors[i].key, tensors[i].key);
    EXPECT_EQ(data->tensors[i].sizes, tensors[i].sizes);
    EXPECT_EQ(data->tensors[i].segment, tensors[i].segment);
    EXPECT_EQ(data->tensors[i].is_tensor, tensors[i].is_tensor);
  }
}

TEST(Ptd, ReadsOfficialDataOfDelegates) {
  const auto file = read_test_file("xnnpack/linear_8da8w_pc_ext.ptd");
  const auto data = read_data_file(file, "linear.ptd");
  ASSERT_TRUE(data) << data.error().message;
  ASSERT_EQ(data->tensors.size(), 2u);
  for (const NamedTensor& tensor : data->tensors) EXPECT_FALSE(tensor.is_tensor);
  EXPECT_EQ(data->segments[data->tensors[0].segment].size, 96u * 64);
  EXPECT_EQ(data->segments[data->tensors[1].segment].size, 96u * 4);
}

TEST(Ptd, EmptyFileIsValid) {
  const auto layout = plan_data_file({}, {});
  ASSERT_TRUE(layout);
  EXPECT_TRUE(read_data_file(file_of(*layout), "x.ptd"));
}

struct Case {
  const char* message;
  std::vector<NamedTensor> tensors;
  std::vector<uint64_t> sizes;
};

TEST(Ptd, RefusesLiesAndNamesTheTensor) {
  const Case kCases[] = {
      {"its name occurs twice (tensor 'a')",
       {{"a", DType::kU8, {1}, 0}, {"a", DType::kU8, {1}, 0}},
       {1}},
      {"in segment 1 of 1 (tensor 'a')", {{"a", DType::kU8, {1}, 1}}, {1}},
      {"4 bytes, segment 0 has 3 (tensor 'a')", {{"a", DType::kF32, {1}, 0}}, {3}},
      {"4 bytes, segment 0 has 5 (tensor 'a')", {{"a", DType::kF32, {1}, 0}}, {5}},
      {"dimension -1 (tensor 'a')", {{"a", DType::kU8, {-1}, 0}}, {1}},
      {"its size overflows (tensor 'a')",
       {{"a", DType::kU8, {INT32_MAX, INT32_MAX, INT32_MAX}, 0}},
       {1}},
      {"rank 17 (tensor 'a')", {{"a", DType::kU8, std::vector<int32_t>(17, 1), 0}}, {1}},
      {"a name that is empty", {{"", DType::kU8, {1}, 0}}, {1}},
      {"in segment 1 of 1 (tensor 'a')", {{"a", DType::kU8, {}, 1, false}}, {1}},
      {"tensor 'a\\x1b[2J'", {{"a\x1b[2J", DType::kU8, {2}, 0}}, {1}},
  };
  for (const Case& c : kCases) {
    const auto layout = plan_data_file(c.tensors, c.sizes);
    ASSERT_TRUE(layout);
    const auto data = read_data_file(file_of(*layout), "x.ptd");
    SCOPED_TRACE(c.message);
    ASSERT_FALSE(data);
    EXPECT_NE(data.error().message.find(c.message), std::string::npos) << data.error().message;
    EXPECT_EQ(data.error().code, ErrorCode::kBadInput);
  }
}

TEST(Ptd, RefusesMoreDataThanAFileHolds) { EXPECT_FALSE(plan_data_file({}, {UINT64_MAX, 1})); }

}  // namespace
}  // namespace ferry::ptd::ptd_test
