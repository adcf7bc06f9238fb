// quantize_weights turns matrices of linear and embedding nodes into integer codes and scales.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_source.h"
#include "graph/graph.h"
#include "graph/quantization/scheme.h"

namespace ferry::graph {

// The quantisation of a linear node's matrix. The XNNPACK delegate executes the first two kinds,
// with activations of 8 bits ("8da": 8-bit dynamic activations).
struct LinearQuantization {
  enum class Kind {
    kNone,   // not quantised
    k8da4w,  // 4-bit codes, a bf16 scale for each group of a row
    k8da8w,  // 8-bit codes, an f32 scale for each row
    kInt8,   // codes as in k8da8w with f32 activations, by quantized_decomposed::mixed_linear
    kKeep,   // codes of the checkpoint in the kind that can hold them
  } kind = Kind::kNone;
  int64_t group = 32;  // for k8da4w; a multiple of 32
  bool operator==(const LinearQuantization&) const = default;
};
// Returns names such as "8da4w-g32", "8da8w", "int8", "keep", "none".
std::string name_of(const LinearQuantization& linear);
// Return the form in which linear nodes, or nodes of experts, read the codes; not for kNone and
// kKeep.
QuantizationScheme scheme_of(const LinearQuantization& linear,
                             ScaleMethod method = ScaleMethod::kBf16First);
QuantizationScheme scheme_of_experts(const LinearQuantization& linear);

// The quantisation of an embedding node's table: rows of codes, with f32 scales.
struct EmbeddingQuantization {
  int bits = 0;       // 4 or 8; 0 for not quantised
  int64_t group = 0;  // columns that share a scale; 0 for a whole row
  bool operator==(const EmbeddingQuantization&) const = default;
};
// Returns names such as "4,32", "8", "none".
std::string name_of(const EmbeddingQuantization& embedding);

// A rule applies to linear weights whose name, with or without ".weight", matches the pattern. '*'
// stands for any characters. The last rule that matches a weight decides.
struct QuantizeRule {
  std::string pattern;
  LinearQuantization linear;
};

// CalibratedWeights holds the choices of a calibration, by names of weights.
struct CalibratedWeights {
  // Factors of columns, and of rows; see Recipe::smooth() and smooth_rows().
  std::map<std::string, std::shared_ptr<const std::vector<float>>, std::less<>> factors, rows;
  std::map<std::string, std::shared_ptr<const ChosenCodes>, std::less<>> codes;
  // The mean KL divergences, in nats per token, from the predictions in f32: of the model with
  // these codes, and with the nearest ones. Both are 0 if they were not measured. If the nearest
  // codes are better, they stay: the maps are empty.
  double divergence = 0, nearest_divergence = 0;
  size_t compared_tokens = 0;
};

struct QuantizeOptions {
  LinearQuantization linears = {};
  EmbeddingQuantization embeddings = {};
  std::vector<QuantizeRule> rules = {};
  // Whether the head of a tied model shares the 8-bit table of the embedding, unless a rule names
  // it. False for options that a manifest states: its rules are all that the conversion applied.
  bool shares_tied_table = true;
  ScaleMethod method = ScaleMethod::kBf16First;
  // The text that codes are calibrated with: its file, and in manifests the digest of its tokens.
  // Empty if codes are not calibrated.
  std::string calibration = {};
  // The result of the calibration. Without it, nothing but the plan of a conversion can be made.
  std::shared_ptr<const CalibratedWeights> calibrated = {};

  bool quantizes() const;  // whether any matrix is quantised
};
// Returns whether the pattern of a rule matches the name of a weight.
bool matches(const std::string& pattern, std::string_view name);

// How many matrices have another scheme than the one requested: by the names of the requested one
// and of theirs.
using ReplacedSchemes = std::map<std::string, std::map<std::string, int>>;

// KeptCodes counts the matrices for which kKeep was requested.
struct KeptCodes {
  int matrices = 0;  // that have the codes of the checkpoint
  int rounded = 0;   // of these, matrices whose scales are wider than those of the bundle
  int plain = 0;     // matrices that the checkpoint does not quantise, and neither does the bundle
  std::map<std::string, int> requantised = {};  // others, by the name of their scheme
};

struct QuantizedModel {
  Model model;
  // Says how many matrices have each kind, in a fixed order: "8da4w-g32 x 14". The manifest states
  // it. Empty if no matrix is quantised.
  std::string summary;
  std::vector<size_t> used_rules;  // ascending indices of the rules that matched a weight
  // Schemes of 4 bits whose group does not divide the rows of a matrix.
  ReplacedSchemes replaced;
  KeptCodes kept = {};
};

// The model must be bound and not cast by cast_weights. Every linear weight is quantised, also the
// head's, but not the routers' (Value::keep_f32). Linear nodes of the delegated kinds that read one
// activation become one node. The matrices of routed experts become tables of rows, from which the
// program takes the rows of one expert with an embedding operator. A matrix that the checkpoint
// stores in blocks of Q8_0 keeps its codes and scales if it becomes kInt8 or 8-bit rows of an
// embedding. With kKeep, a matrix of integers that a kind can hold keeps its codes: 4 bits whose
// groups are multiples of 32 become k8da4w, 8 bits with a scale for each row k8da8w, Q8_0 kInt8.
// Other matrices that the checkpoint quantises are quantised anew, to 4 bits if they take less than
// 5 bits an element there, else to 8; the others stay. If the group of a scale does not divide the
// rows of a matrix, the matrix has the largest smaller group that does, and 8 bits if there is
// none.
Result<QuantizedModel> quantize_weights(Model model, const QuantizeOptions& options,
                                        const TensorSource& source);

}  // namespace ferry::graph
