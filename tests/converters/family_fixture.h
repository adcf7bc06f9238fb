// testdata/families/NAME: the config and the tensors of a checkpoint that the reference saved.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "converters/assemble.h"
#include "core/checked.h"
#include "core/file.h"
#include "core/tensor_source.h"

namespace ferry::converters {

inline std::string family_file(const std::string& family, const std::string& name) {
  return std::string(FERRY_TESTDATA) + "/families/" + family + "/" + name;
}

// With `images`, the model has a vision tower that is built by choice.
inline ModelConfig family_config(const std::string& family, bool images = false) {
  const std::string text = read_text_file(family_file(family, "config.json"), 1 << 20).value();
  return parse_model_config(text, "", "config.json", nullptr, all_families(), {.images = images})
      .value();
}

// Parses lines of "NAME DTYPE DIM...".
inline std::vector<TensorEntry> family_tensors(const std::string& family) {
  std::ifstream in(family_file(family, "tensors.txt"));
  std::vector<TensorEntry> entries;
  for (std::string line; std::getline(in, line);) {
    std::istringstream row(line);
    TensorEntry entry{.name = {}, .dtype = DType::kF32, .shape = {}};
    std::string dtype;
    row >> entry.name >> dtype;
    entry.dtype = dtype_from_safetensors(dtype).value();
    for (int64_t dim = 0; row >> dim;) entry.shape.push_back(dim);
    entry.bytes = static_cast<uint64_t>(*checked_numel(entry.shape) * dtype_bytes(entry.dtype));
    entries.push_back(entry);
  }
  EXPECT_FALSE(entries.empty()) << family;
  return entries;
}

}  // namespace ferry::converters
