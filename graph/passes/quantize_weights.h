// quantize_weights: matrices of linear and embedding nodes become integer codes and scales.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor_source.h"
#include "graph/graph.h"
#include "graph/quantization/scheme.h"

namespace ferry::graph {

// What becomes of the matrix of a linear node. The first two are executed by the XNNPACK delegate,
// with activations of 8 bits ("8da": 8-bit dynamic activations).
struct LinearQuantization {
  enum class Kind {
    kNone,   // stays as it is
    k8da4w,  // 4-bit codes, a bf16 scale for each group of a row
    k8da8w,  // 8-bit codes, an f32 scale for each row
    kInt8,   // the same codes with f32 activations, by quantized_decomposed::mixed_linear
  } kind = Kind::kNone;
  int64_t group = 32;  // of k8da4w: a multiple of 32
  bool operator==(const LinearQuantization&) const = default;
};
// "8da4w-g32", "8da8w", "int8", "none"
std::string name_of(const LinearQuantization& linear);

// What becomes of the table of an embedding node: rows of codes, with f32 scales.
struct EmbeddingQuantization {
  int bits = 0;       // 0: stays as it is; 4 or 8
  int64_t group = 0;  // columns that share a scale; 0: all of a row
  bool operator==(const EmbeddingQuantization&) const = default;
};
// "4,32", "8", "none"
std::string name_of(const EmbeddingQuantization& embedding);

// For the linear weights whose name, with or without ".weight", matches the pattern; '*' stands for
// any characters. The last rule that matches a weight decides.
struct QuantizeRule {
  std::string pattern;
  LinearQuantization linear;
};

struct QuantizeOptions {
  LinearQuantization linears = {};
  EmbeddingQuantization embeddings = {};
  std::vector<QuantizeRule> rules = {};
  ScaleMethod method = ScaleMethod::kBf16First;

  bool quantizes() const;  // anything at all
};

struct QuantizedModel {
  Model model;
  // How many matrices each kind applies to, in words, in a fixed order: "8da4w-g32 x 14". For the
  // manifest; empty if there is none.
  std::string summary;
  std::vector<size_t> used_rules;  // indices of the rules that matched something, ascending
};

// For a bound model, before cast_weights. Every linear weight is quantised, also the head's, but
// not the routers' (Value::keep_f32). Linear nodes of the delegated kinds that read the same
// activation become one node. The matrices of routed experts become tables of rows, from which the
// program takes those of one expert as an embedding does. A matrix that the checkpoint stores in
// blocks of Q8_0 keeps its codes and scales, where they become kInt8 or 8-bit rows of an embedding.
// kUsage, with every matrix, where the group does not divide a row.
Result<QuantizedModel> quantize_weights(Model model, const QuantizeOptions& options,
                                        const TensorSource& source);

}  // namespace ferry::graph
