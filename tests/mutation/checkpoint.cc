#include "tests/mutation/checkpoint.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>

#include "checkpoint/checkpoint.h"
#include "formats/safetensors/writer.h"

namespace ferry::mutation {
namespace {

template <class T>
T require(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return *std::move(result);
}

}  // namespace

int64_t Tensor::rows() const {
  if (shape.size() < 2) return static_cast<int64_t>(bytes.size()) * 8 / dtype_bits(dtype);
  const int64_t width = transposed ? inner() : shape.back();
  int64_t rows = 1;
  for (const int64_t extent : shape) rows *= extent;
  return rows / width;
}

size_t Tensor::row_bytes() const { return bytes.size() / static_cast<size_t>(rows()); }

std::string Tensor::row(int64_t i) const {
  if (transposed) {
    std::string column;
    for (int64_t in = 0; in < inner(); ++in) column += bytes.substr(element_at(in, i), size());
    return column;
  }
  return bytes.substr(static_cast<size_t>(i) * row_bytes(), row_bytes());
}

void Tensor::set_row(int64_t i, const std::string& row) {
  for (int64_t in = 0; transposed && in < inner(); ++in) {
    bytes.replace(element_at(in, i), size(), row, static_cast<size_t>(in) * size(), size());
  }
  if (transposed) return;
  bytes.replace(static_cast<size_t>(i) * row_bytes(), row.size(), row);
}

float Tensor::value(size_t element) const {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, bytes.data() + 4 * element, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + 2 * element, sizeof bits);
  return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

void Tensor::set_value(size_t element, float value) {
  if (dtype == DType::kF32) {
    std::memcpy(bytes.data() + 4 * element, &value, sizeof value);
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
  std::memcpy(bytes.data() + 2 * element, &bits, sizeof bits);
}

std::map<std::string, Tensor> read_tensors(const std::string& path) {
  std::map<std::string, Tensor> tensors;
  const auto source = require(checkpoint::open_tensors(path));
  for (size_t i = 0; i < source->entries().size(); ++i) {
    const TensorEntry& entry = source->entries()[i];
    Tensor tensor{
        .dtype = entry.dtype, .shape = entry.shape, .bytes = std::string(entry.bytes, '\0')};
    const Status read = source->read(i, 0, std::as_writable_bytes(std::span(tensor.bytes)));
    if (!read) throw std::runtime_error(read.error().message);
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

const nlohmann::json& text_config(const nlohmann::json& config) {
  return config.contains("text_config") ? config["text_config"] : config;
}

Checkpoint read_checkpoint(const std::string& directory) {
  std::ifstream file(directory + "/config.json");
  Checkpoint checkpoint{nlohmann::json::parse(file), read_tensors(directory)};
  const nlohmann::json& config = text_config(checkpoint.config);
  const bool gpt2 = config.value("model_type", "") == "gpt2";
  const int64_t hidden = config.value("hidden_size", int64_t{0});
  for (auto& [key, tensor] : checkpoint.tensors) {
    const Shape& shape = tensor.shape;
    const bool conv1d = gpt2 && shape.size() == 2 && key.find(".h.") != key.npos;
    const bool gate_up = key.ends_with("experts.gate_up_proj") && shape.at(1) == hidden;
    const bool down = key.ends_with("experts.down_proj") && shape.at(1) != hidden;
    tensor.transposed = conv1d || gate_up || down;
  }
  return checkpoint;
}

void write_checkpoint(const Checkpoint& checkpoint, const std::string& like,
                      const std::string& directory) {
  std::filesystem::create_directories(directory);
  const std::filesystem::path generation = like + "/generation_config.json";
  if (exists(generation)) copy_file(generation, directory + "/generation_config.json");
  std::ofstream(directory + "/config.json") << checkpoint.config.dump(1) << "\n";
  std::vector<formats::TensorData> data;
  for (const auto& [key, tensor] : checkpoint.tensors) {
    data.push_back({{key, tensor.dtype, tensor.shape}, std::as_bytes(std::span(tensor.bytes))});
  }
  const Status written = formats::write_safetensors(directory + "/model.safetensors", data);
  if (!written) throw std::runtime_error(written.error().message);
}

std::set<std::string> changed_keys(const Checkpoint& a, const Checkpoint& b) {
  std::set<std::string> keys;
  for (const auto& [key, tensor] : a.tensors) {
    if (!b.has(key) || b.tensors.at(key) != tensor) keys.insert(key);
  }
  for (const auto& [key, tensor] : b.tensors) {
    if (!a.has(key)) keys.insert(key);
  }
  return keys;
}

void swap_rows(Checkpoint& c, const Rows& a, const Rows& b) {
  if (a.at.size() != b.at.size()) throw std::runtime_error("swap_rows: " + a.key + ", " + b.key);
  for (size_t i = 0; i < a.at.size(); ++i) {
    const std::string row = c.at(a.key).row(a.at[i]);
    c.at(a.key).set_row(a.at[i], c.at(b.key).row(b.at[i]));
    c.at(b.key).set_row(b.at[i], row);
  }
}

void reorder_rows(Checkpoint& c, const Rows& rows, const std::vector<int64_t>& order) {
  const Tensor before = c.at(rows.key);
  for (size_t i = 0; i < rows.at.size(); ++i) {
    c.at(rows.key).set_row(rows.at[i], before.row(rows.at[static_cast<size_t>(order.at(i))]));
  }
}

void zero_rows(Checkpoint& c, const Rows& rows) {
  Tensor& tensor = c.at(rows.key);
  for (int64_t row : rows.at) tensor.set_row(row, std::string(tensor.row_bytes(), '\0'));
}

void swap_tensors(Checkpoint& c, const std::string& a, const std::string& b) {
  std::swap(c.at(a), c.at(b));
}

}  // namespace ferry::mutation
