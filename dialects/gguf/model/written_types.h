// The types of the tensors in a GGUF file: those that llama.cpp's converter (f32, f16, bf16, q8_0)
// and its llama-quantize (all others) choose. Sources: conversion/base.py, src/llama-quant.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "converters/config/model_config.h"
#include "core/dtype.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/architecture.h"
#include "graph/recipe.h"

namespace ferry::converters {

// The type that names a file; `general.file_type` is its number.
enum class GgufFileType {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ2_K,
  kQ2_K_S,
  kQ3_K_S,
  kQ3_K_M,
  kQ3_K_L,
  kQ4_0,
  kQ4_1,
  kQ4_K_S,
  kQ4_K_M,
  kQ5_0,
  kQ5_1,
  kQ5_K_S,
  kQ5_K_M,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
};

struct GgufFileTypeInfo {
  GgufFileType type;
  std::string_view name;  // "q4_k_m"
  uint32_t number;        // value of general.file_type
  bool mixed;             // written by llama-quantize, which sorts tensors and appends keys
};
// All types, in the order in which help lists them.
std::span<const GgufFileTypeInfo> gguf_file_types();
const GgufFileTypeInfo& gguf_file_type_info(GgufFileType type);
std::optional<GgufFileType> gguf_file_type_of(std::string_view name);

enum class GgufElement {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,  // kept as stored; Ferry makes no such blocks of values
};
uint32_t gguf_type_id(GgufElement type);
// Returns nullopt for a type that Ferry does not make of values.
std::optional<GgufElement> gguf_element_of(uint32_t id);

struct GgufNamedShape {
  std::string_view name;
  Shape shape;
  bool is_mxfp4 = false;  // stored in MXFP4 blocks, which files of every type keep
};

// Returns the number of `general.file_type`.
uint32_t gguf_file_type_number(GgufFileType type, bool has_mxfp4);
// The number of files with f32, f16 or bf16 beside MXFP4.
inline constexpr uint32_t kGgufMxfp4FileType = 38;

// Whether the values of a recipe are rows of MXFP4 blocks as they are stored.
bool is_stored_mxfp4(const graph::Recipe& recipe, const TensorSource& source);

// The facts about a model that llama-quantize uses.
struct GgufModelSizes {
  int64_t layers = 0, experts = 0;
  int64_t queries_of_key = 1;  // query heads that share a key and value head, of the first layer
  bool is_70b = false;         // its attn_v matrices have fewer rows, and get more bits
};
GgufModelSizes gguf_model_sizes(const GgufArchitecture& architecture, const ModelConfig& config);

// Returns a type for each of `tensors`, in any order. A tensor whose rows are not whole blocks gets
// another type, at last F16. Source for MXFP4: conversion/gpt_oss.py. llama-quantize does the same
// where --tensor-type says so, and takes no such file otherwise.
std::vector<GgufElement> choose_gguf_types(std::span<const GgufNamedShape> tensors,
                                           GgufFileType type, const GgufModelSizes& sizes,
                                           bool has_importance);

// Whether an importance matrix changes blocks of this type.
bool gguf_takes_importance(GgufElement type);

// Whether llama-quantize refuses a tensor of this type without an importance matrix.
bool gguf_needs_importance(std::string_view name, GgufElement type, GgufFileType file_type);

// Returns the order of llama-quantize: by layer, then by name. Tensors of no layer come first.
std::vector<size_t> gguf_name_order(std::span<const GgufNamedShape> tensors);

// Gives the recipe, made of tensors of `source`, the type. `importance` is null, or has a number
// for each column of each matrix; it has no effect on types without a search.
Status apply_gguf_type(graph::Recipe& recipe, GgufElement type, const TensorSource& source,
                       const std::string& name,
                       std::shared_ptr<const std::vector<float>> importance = {});

}  // namespace ferry::converters
