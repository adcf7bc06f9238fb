// Importance matrices: files that gguf-py wrote, files of our own, and malformed ones.
#include "dialects/gguf/file/importance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "core/atomic_file.h"
#include "tests/formats/temp_dir.h"

namespace ferry::formats::importance_test {
namespace {

const std::vector<float> kQueries = {0, 0.125, 0.3125, 1, 2, 0.015625, 0.875, 0.375};
const std::vector<float> kExperts = {0.5, 1, 1.5, 2, 1, 1, 1, 1, 1, 2, 3, 4};

ImportanceSums sums() {
  ImportanceSums sums;
  sums.text = "some.txt";
  sums.chunks = 2;
  sums.chunk_tokens = 4;
  sums.entries["blk.0.attn_q.weight"] = {{0, 1, 2.5, 8, 16, 0.125, 7, 3}, {8}};
  sums.entries["blk.0.ffn_up_exps.weight"] = {{1, 2, 3, 4, 0, 0, 0, 0, 5, 10, 15, 20}, {2, 0, 5}};
  return sums;
}

std::string write(const TempDir& dir, const std::string& name, std::span<const std::byte> bytes) {
  EXPECT_TRUE(write_atomically(dir / name, bytes, IfExists::kReplace));
  return dir / name;
}

void expect_entries(const std::string& path) {
  const auto matrix = read_importance_matrix(path);
  ASSERT_TRUE(matrix) << matrix.error().message;
  ASSERT_EQ(matrix->size(), 2);
  EXPECT_EQ(*matrix->at("blk.0.attn_q.weight"), kQueries);
  EXPECT_EQ(*matrix->at("blk.0.ffn_up_exps.weight"), kExperts);
}

TEST(ImportanceMatrix, BothFormatsHaveTheMeans) {
  const TempDir dir;
  expect_entries(std::string(FERRY_TESTDATA) + "/gguf/imatrix.gguf");
  const auto gguf = importance_gguf(sums());
  ASSERT_TRUE(gguf);
  expect_entries(write(dir, "a.gguf", *gguf));
  expect_entries(write(dir, "a.dat", importance_records(sums())));
}

TEST(ImportanceMatrix, TheFileIsThatOfGgufPy) {
  std::ifstream in(std::string(FERRY_TESTDATA) + "/gguf/imatrix.gguf", std::ios::binary);
  const std::string theirs{std::istreambuf_iterator<char>(in), {}};
  const auto ours = importance_gguf(sums());
  ASSERT_TRUE(ours);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(ours->data()), ours->size()), theirs);
}

TEST(ImportanceMatrix, FilesThatAreCutAreRefused) {
  const TempDir dir;
  for (const bool records : {false, true}) {
    const auto whole = records ? importance_records(sums()) : *importance_gguf(sums());
    // The name of the text behind the records is not read, nor is the padding of the last tensor.
    const size_t end = whole.size() - (records ? 16 : 20);
    for (size_t length = 0; length < end; ++length) {
      const auto read = read_importance_matrix(write(dir, "x", std::span(whole).first(length)));
      ASSERT_FALSE(read) << length;
      EXPECT_EQ(read.error().code, ErrorCode::kBadInput) << read.error().message;
    }
  }
}

TEST(ImportanceMatrix, NumbersThatAreNoneAreRefusedByName) {
  const TempDir dir;
  for (const float wrong : {-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    ImportanceSums broken = sums();
    broken.entries["blk.0.attn_q.weight"].sums[3] = wrong;
    for (const auto& bytes : {importance_records(broken), *importance_gguf(broken)}) {
      const auto read = read_importance_matrix(write(dir, "x", bytes));
      ASSERT_FALSE(read);
      EXPECT_NE(read.error().message.find("'blk.0.attn_q.weight': column 3"), std::string::npos)
          << read.error().message;
    }
  }
  const auto model = read_importance_matrix(std::string(FERRY_TESTDATA) + "/gguf/smollm3.gguf");
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("has no entry of an importance matrix"), std::string::npos);
}

}  // namespace
}  // namespace ferry::formats::importance_test
