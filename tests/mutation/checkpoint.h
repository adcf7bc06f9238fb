// A checkpoint in memory, config and tensors. The kinds of wrong conversion change it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace ferry::mutation {

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::string bytes;  // row-major, little-endian
  bool operator==(const Tensor&) const = default;

  // Matrices are stored [in,out], as in GPT-2 and in some fused experts. Their columns are what is
  // called rows here.
  bool transposed = false;

  // Rows are what a converter splits and reorders: the elements of a vector, the rows of a matrix,
  // the rows of all matrices of a stack one after the other, or the kernels of a convolution.
  int64_t rows() const;
  size_t row_bytes() const;
  std::string row(int64_t i) const;
  void set_row(int64_t i, const std::string& row);
  float value(size_t element) const;
  void set_value(size_t element, float value);

 private:
  size_t size() const { return static_cast<size_t>(dtype_bytes(dtype)); }
  // inner() is the number of elements of a row of a transposed tensor, element_at() the offset of
  // one of them.
  int64_t inner() const { return shape[shape.size() - 2]; }
  size_t element_at(int64_t in, int64_t i) const {
    const int64_t width = shape.back();
    return static_cast<size_t>((i / width * inner() + in) * width + i % width) * size();
  }
};

// Rows of one tensor in an order that has a meaning, such as the rows of all keys.
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

// Returns the part of a config that describes the language model.
const nlohmann::json& text_config(const nlohmann::json& config);

// These functions throw std::runtime_error, because any failure ends the mutation test.
Checkpoint read_checkpoint(const std::string& directory);
std::map<std::string, Tensor> read_tensors(const std::string& path);
// Writes model.safetensors and config.json to a new directory, and copies the other JSON files of
// `like`.
void write_checkpoint(const Checkpoint& checkpoint, const std::string& like,
                      const std::string& directory);
// Returns the keys that only one checkpoint has, or that differ.
std::set<std::string> changed_keys(const Checkpoint& a, const Checkpoint& b);

void swap_rows(Checkpoint& c, const Rows& a, const Rows& b);
// Row i of `rows` becomes the former row order[i].
void reorder_rows(Checkpoint& c, const Rows& rows, const std::vector<int64_t>& order);
void zero_rows(Checkpoint& c, const Rows& rows);
void swap_tensors(Checkpoint& c, const std::string& a, const std::string& b);

}  // namespace ferry::mutation
