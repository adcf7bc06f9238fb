// A checkpoint in memory, config and tensors, which the kinds of wrong conversion change.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"

namespace ferry::mutation {

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::string bytes;  // row-major, little-endian
  bool operator==(const Tensor&) const = default;

  // Whether its matrices are stored [in,out], as those of GPT-2 and of some fused experts: their
  // columns are what are rows elsewhere.
  bool transposed = false;

  // Rows are what a converter splits and reorders: the elements of a vector, the rows of a matrix,
  // the rows of all matrices of a stack one after the other, the kernels of a convolution.
  int64_t rows() const;
  size_t row_bytes() const;
  std::string row(int64_t i) const;
  void set_row(int64_t i, const std::string& row);
  float value(size_t element) const;
  void set_value(size_t element, float value);

 private:
  size_t size() const { return static_cast<size_t>(dtype_bytes(dtype)); }
  // Of row `i` of a transposed tensor: how many elements it has, and where one of them is.
  int64_t inner() const { return shape[shape.size() - 2]; }
  size_t element_at(int64_t in, int64_t i) const {
    const int64_t width = shape.back();
    return static_cast<size_t>((i / width * inner() + in) * width + i % width) * size();
  }
};

// Rows of one tensor in an order that has a meaning, such as those of all keys.
struct Rows {
  std::string key;
  std::vector<int64_t> at;
};

struct Checkpoint {
  nlohmann::json config;
  std::map<std::string, Tensor> tensors;
  bool operator==(const Checkpoint&) const = default;

  Tensor& at(const std::string& key) { return tensors.at(key); }
  bool has(const std::string& key) const { return tensors.contains(key); }
};

// The part of a config that describes the language model.
const nlohmann::json& text_config(const nlohmann::json& config);

// Throws std::runtime_error, as all below, because nothing here is allowed to go wrong.
Checkpoint read_checkpoint(const std::string& directory);
std::map<std::string, Tensor> read_tensors(const std::string& path);
// model.safetensors and config.json in a new directory, with the other JSON files of `like`.
void write_checkpoint(const Checkpoint& checkpoint, const std::string& like,
                      const std::string& directory);
// Keys that only one has, or that differ.
std::set<std::string> changed_keys(const Checkpoint& a, const Checkpoint& b);

void swap_rows(Checkpoint& c, const Rows& a, const Rows& b);
// Row i of `rows` becomes what row order[i] of it was.
void reorder_rows(Checkpoint& c, const Rows& rows, const std::vector<int64_t>& order);
void zero_rows(Checkpoint& c, const Rows& rows);
void swap_tensors(Checkpoint& c, const std::string& a, const std::string& b);

}  // namespace ferry::mutation
