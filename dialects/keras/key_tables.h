// The variables of each backbone: where they are in the file, their shape there, and the Hugging
// Face key that they become. Data only; keys.cc applies it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "converters/config/model_config.h"

namespace ferry::converters {

// What becomes of the stored tensor.
enum class KerasOp : uint8_t {
  kCopy,
  kTranspose,            // [A, B] -> [B, A]
  kMergeFirst,           // [H, hd, D] -> [H * hd, D]
  kMergeLastTranspose,   // [D, H, hd] -> [H * hd, D]
  kMergeFirstTranspose,  // [H, hd, D] -> [D, H * hd]
  kSwapLastMergeFirst,   // [H, D, hd] -> [H * hd, D]
  kFlatten,              // [H, hd] -> [H * hd]
  kTransposeEach,        // [E, A, B] -> [E, B, A]
  kAddMiddle,            // [A, B] -> [A, 1, B]
  kAfterTwoRows,         // [P, D] -> [2 + P, D]; nobody reads the two rows before
};

// Rows of one key are parts of one tensor, one after the other: rows of a matrix, or of the matrix
// of each expert.
struct KerasRow {
  std::string_view path, key;
  KerasOp op;
  std::string_view shape;  // as stored: one letter for each dimension, see keras_dim()
};

enum class KerasLayer : uint8_t { kAny, kDense, kExperts, kAttention, kLinearAttention };

// Rows of the layers of one kind, with paths and keys below the layer.
struct KerasLayerRows {
  std::span<const KerasRow> rows;
  KerasLayer of = KerasLayer::kAny;
};

struct KerasFamily {
  std::string_view model_type;  // of the text part
  std::string_view decoder;     // class of a layer, as in paths
  std::string_view layers;      // what keys of layers begin with; the number follows
  std::string_view final_norm;  // class of an RMS norm behind the layers; empty: `outside` has it
  std::span<const KerasRow> outside;  // whole paths and keys
  std::span<const KerasLayerRows> inside;
  std::string_view unread = {};  // what the paths of variables begin with that make no weight
};

std::span<const KerasFamily> keras_families();

bool is_keras_layer(KerasLayer kind, const ModelConfig& config, int64_t layer);

// The output matrix beside the embedding.
inline constexpr std::string_view kKerasHead = "layers/reversible_embedding/vars/1";

// V vocabulary, D hidden, M MLP, P positions; H heads, K key-value heads, d size of a head, f
// half of it, t three times it; Q and R are H * d and K * d; E experts, X size of one, Y two sizes,
// S size of the shared one; 1 is one. 0 for other letters.
int64_t keras_dim(char letter, const ModelConfig& config);

}  // namespace ferry::converters
