// GGUF files in memory, in the form that adopt_gguf() takes.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "dialects/gguf/model/adopt.h"

namespace ferry::converters {

using Json = nlohmann::json;
using Floats = std::vector<float>;

class GgufMemory : public TensorSource {
 public:
  void add(const std::string& name, const Shape& shape, Floats values = {}) {
    const auto count = static_cast<size_t>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
    if (values.empty()) {
      for (size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i) + 0.5f);
    }
    ASSERT_EQ(values.size(), count) << name;
    entries_.push_back({.name = name,
                        .dtype = DType::kF32,
                        .shape = shape,
                        .bytes = count * sizeof(float),
                        .offset = entries_.size()});
    values_.push_back(std::move(values));
  }
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    const auto bytes = std::as_bytes(std::span(values_.at(index))).subspan(offset, out.size());
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return {};
  }

 private:
  std::string path_ = "m.gguf";
  std::vector<SourceFile> files_ = {{"m.gguf", 0}};
  std::vector<TensorEntry> entries_;
  std::vector<Floats> values_;
};

inline Json llama_keys() {
  return {{"general.architecture", "llama"},    {"llama.block_count", 1},
          {"llama.context_length", 128},        {"llama.embedding_length", 8},
          {"llama.feed_forward_length", 6},     {"llama.attention.head_count", 2},
          {"llama.attention.head_count_kv", 1}, {"llama.attention.layer_norm_rms_epsilon", 1e-5},
          {"llama.rope.freq_base", 500000.0},   {"tokenizer.ggml.bos_token_id", 1},
          {"tokenizer.ggml.eos_token_id", 2}};
}

// Returns llama_keys() under the name of another architecture.
inline Json keys_of(const std::string& architecture) {
  const Json llama = llama_keys();
  Json keys;
  for (const auto& [key, value] : llama.items()) {
    keys[key.starts_with("llama.") ? architecture + key.substr(5) : key] = value;
  }
  keys["general.architecture"] = architecture;
  return keys;
}

// The model has two key heads of 2, four value heads of 3, three linear layers and one with full
// attention.
inline Json hybrid_keys(const std::string& architecture) {
  Json keys = {{"general.architecture", architecture}};
  const auto set = [&](const char* key, Json value) { keys[architecture + "." + key] = value; };
  set("block_count", 4);
  set("context_length", 64);
  set("embedding_length", 5);
  set("feed_forward_length", 6);
  set("attention.head_count", 2);
  set("attention.head_count_kv", 1);
  set("attention.key_length", 8);
  set("attention.value_length", 8);
  set("attention.layer_norm_rms_epsilon", 1e-6);
  set("rope.freq_base", 1e7);
  set("rope.dimension_count", 2);
  set("ssm.conv_kernel", 4);
  set("ssm.state_size", 2);
  set("ssm.group_count", 2);
  set("ssm.time_step_rank", 4);
  set("ssm.inner_size", 12);
  set("full_attention_interval", 4);
  return keys;
}

inline std::unique_ptr<GgufMemory> gguf_memory() {
  auto source = std::make_unique<GgufMemory>();
  source->add("token_embd.weight", {10, 8});
  return source;
}

struct AdoptedMemory : AdoptedGguf {
  std::unique_ptr<GgufMemory> source = {};

  const KeyedTensor* find(const std::string& key) const {
    for (const KeyedTensor& tensor : tensors.tensors) {
      if (tensor.key == key) return &tensor;
    }
    return nullptr;
  }
  // Returns the values of a tensor, by its Hugging Face key.
  Floats values_of(const std::string& key) const {
    const KeyedTensor* tensor = find(key);
    if (tensor == nullptr) {
      ADD_FAILURE() << "no tensor " << key;
      return {};
    }
    Floats values(tensor->recipe.output().bytes() / sizeof(float));
    EXPECT_TRUE(
        graph::materialize(tensor->recipe, *source, 0, std::as_writable_bytes(std::span(values))));
    return values;
  }
};

inline Result<AdoptedMemory> adopt(const Json& keys,
                                   std::unique_ptr<GgufMemory> source = gguf_memory(),
                                   const std::string& user = {}) {
  AdoptedMemory adopted{FERRY_TRY(adopt_gguf(*source, keys, user, "user.json"))};
  adopted.source = std::move(source);
  return adopted;
}

}  // namespace ferry::converters
