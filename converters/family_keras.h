// KerasArchitecture: how KerasHub stores the models of one model_type. It states the classes of the
// backbone and, for each variable, the path in the file, the shape there and the Hugging Face key
// that the variable becomes. Data only; dialects/keras/keys.cc applies it. Source: KerasHub 0.31
// and 0.32, and the files that they write.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ferry::converters {

// How a stored variable becomes a tensor of a checkpoint.
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
  kAfterTwoRows,         // [P, D] -> [2 + P, D]; no program reads the two rows before
};

// Rows with equal keys are parts of one tensor, one after the other: rows of a matrix, or of the
// matrix of each expert.
struct KerasRow {
  std::string_view path;
  std::string_view key;  // ends with kKerasTransposed where the rows are columns of the tensor
  KerasOp op;
  std::string_view
      shape;  // as stored: one letter for each dimension, see keras_dim() of dialects/keras/keys.cc
};

enum class KerasLayer : uint8_t { kAny, kDense, kExperts, kAttention, kLinearAttention };

// Rows of the layers of one kind, with paths and keys below the layer.
struct KerasLayerRows {
  std::span<const KerasRow> rows;
  KerasLayer kind = KerasLayer::kAny;
};

struct KerasArchitecture {
  std::string_view model_type = {};  // of the text part; by default the first type of its family
  std::vector<std::string_view>
      classes;               // of backbones, "Qwen3Backbone"; dialects/keras reads their options
  std::string_view decoder;  // the class of a layer, as in paths
  std::string_view layers = "model.layers.";  // precedes the number of the layer in a key
  std::string_view final_norm =
      {};  // the class of an RMS norm behind the layers; empty: `outside` has the norm
  std::span<const KerasRow> outside;  // whole paths and keys
  std::vector<KerasLayerRows> inside;
  std::string_view unread = {};  // what the paths of variables begin with that become no weight
};

}  // namespace ferry::converters
