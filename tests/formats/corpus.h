// Corpora of hostile checkpoints in testdata/hostile. Each has a verdicts.json.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/tensor_source.h"

namespace ferry {

// The checkpoints that torch.save wrote.
inline const std::string kTorch = FERRY_TESTDATA "/torch/";

inline nlohmann::json corpus(const std::string& format) {
  const std::string path = std::string(FERRY_TESTDATA "/hostile/") + format + "/verdicts.json";
  return parse_json(read_text_file(path, 1 << 20).value(), path).value();
}

inline std::string sha_of_entry(const TensorSource& source, size_t index) {
  std::vector<std::byte> bytes(source.entries()[index].bytes);
  const Status status = source.read(index, 0, bytes);
  return status ? to_hex(sha256(bytes)) : status.error().message;
}

inline void expect_good_message(const Error& error, const nlohmann::json& item) {
  const std::string& m = error.message;
  EXPECT_LE(m.size(), 400u) << m;
  EXPECT_TRUE(error.code == ErrorCode::kBadInput || error.code == ErrorCode::kUnsupported) << m;
  EXPECT_TRUE(std::none_of(m.begin(), m.end(), [](char c) { return c >= 0 && c < 32; })) << m;
  if (item.contains("tensor")) {
    EXPECT_NE(m.find("'" + item["tensor"].get<std::string>() + "'"), std::string::npos) << m;
  }
}

// Expects the tensors that the reference library gives, as `item` states them.
inline void expect_tensors(const TensorSource& source, const nlohmann::json& item) {
  EXPECT_EQ(source.entries().size(), item["tensors"].size());
  for (size_t i = 0; i < source.entries().size(); ++i) {
    const TensorEntry& entry = source.entries()[i];
    const auto& expected = item["tensors"].at(entry.name);
    EXPECT_EQ(dtype_info(entry.dtype).safetensors, expected["dtype"]);
    EXPECT_EQ(nlohmann::json(entry.shape), expected["shape"]);
    EXPECT_EQ(sha_of_entry(source, i), expected["sha256"]);
  }
}

}  // namespace ferry
