// File names by which a folder is recognised as a checkpoint.
#pragma once

#include <string_view>

namespace ferry::formats {

inline constexpr std::string_view kSingleFile = "model.safetensors";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kTorchFile = "pytorch_model.bin";
inline constexpr std::string_view kTorchIndexFile = "pytorch_model.bin.index.json";
inline constexpr std::string_view kKerasFile = "model.weights.h5";
inline constexpr std::string_view kKerasIndexFile = "model.weights.json";
// The order is that of transformers (safetensors before PyTorch, the single file before the index),
// followed by the files of KerasHub.
inline constexpr std::string_view kKnownFiles[] = {kSingleFile,     kIndexFile, kTorchFile,
                                                   kTorchIndexFile, kKerasFile, kKerasIndexFile};

}  // namespace ferry::formats
