// The reference is quantize_embeddings() of sentence-transformers.
#include "prompt/vector_codes.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "core/file.h"

namespace ferry::prompt::vector_codes_test {
namespace {

using Json = nlohmann::json;

// A NumPy file of version 1.0.
std::string numpy_file(const std::string& header, const std::vector<float>& values) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size());
  file += '\0';
  file += header;
  return file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}
std::string numpy_file(int64_t rows, int64_t columns, const std::vector<float>& values) {
  return numpy_file(
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns),
      values);
}
Result<VectorRanges> read(const std::string& file, int64_t width) {
  return read_vector_ranges(std::as_bytes(std::span(file)), "r.npy", width);
}

TEST(VectorCodes, AreThoseOfTheReference) {
  const Json golden = Json::parse(
      read_text_file(FERRY_TESTDATA "/encoder/vector_codes.json", uint64_t{1} << 20).value());
  std::vector<float> flat;
  for (const Json& row : golden["calibration"]) {
    for (const Json& value : row) flat.push_back(value.get<float>());
  }
  const auto rows = std::ssize(golden["calibration"]), columns = std::ssize(golden["vectors"][0]);
  const auto ranges = read(numpy_file(rows, columns, flat), columns);
  ASSERT_TRUE(ranges) << ranges.error().message;
  for (const std::string name : {"int8", "uint8", "binary", "ubinary"}) {
    const VectorPrecision precision = *find_vector_precision(name);
    const VectorCoder coder(precision, has_ranges(precision) ? *ranges : VectorRanges());
    const bool is_signed = name == "int8" || name == "binary";
    for (size_t i = 0; i < golden["vectors"].size(); ++i) {
      std::vector<int> got;
      for (const uint8_t code : coder.codes_of(golden["vectors"][i].get<std::vector<float>>())) {
        got.push_back(is_signed ? static_cast<int8_t>(code) : code);
      }
      EXPECT_EQ(got, golden[name][i].get<std::vector<int>>()) << name;
    }
  }
}

TEST(VectorCodes, FilesThatAreNoRangesAreRefused) {
  const std::vector<float> four = {1, 2, 3, 4};
  const std::string good = numpy_file(2, 2, four);
  EXPECT_TRUE(read(good, 2));
  EXPECT_FALSE(read(good, 3));
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(read(good.substr(0, size), 2));
  const float infinite = std::numeric_limits<float>::infinity();
  const char* f8 = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }";
  const char* other = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }";
  const char* huge =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 2), }";
  for (const std::string& bad :
       {numpy_file(1, 2, {1, 2}), numpy_file(3, 2, four), numpy_file(2, 2, {1, 2, 3, infinite}),
        numpy_file(f8, four), numpy_file(other, four), numpy_file(huge, four)}) {
    EXPECT_FALSE(read(bad, 2));
  }
}

}  // namespace
}  // namespace ferry::prompt::vector_codes_test
