// Indices of operators' arguments, for code that inspects the steps of a method. The names are
// those of the table in formats/pte/op_schema.cc, and a test compares the two. This is not a public
// header.
#pragma once

#include <cstddef>
#include <string_view>

namespace ferry::runner::ops {

struct Bmm {
  static constexpr std::string_view kName = "aten::bmm.out";
  enum Arg : size_t { kSelf, kMat2, kOut };
};

struct Cat {
  static constexpr std::string_view kName = "aten::cat.out";
  enum Arg : size_t { kTensors, kDim, kOut };
};

struct CustomSdpa {
  static constexpr std::string_view kName = "llama::custom_sdpa.out";
  enum Arg : size_t {
    kQuery,
    kKey,
    kValue,
    kStartPos,
    kAttnMask,
    kDropoutP,
    kIsCausal,
    kScale,
    kOut
  };
};

struct DequantizePerTensor {
  static constexpr std::string_view kName = "quantized_decomposed::dequantize_per_tensor.out";
  enum Arg : size_t { kInput, kScale, kZeroPoint, kQuantMin, kQuantMax, kDtype, kOutDtype, kOut };
};

struct DequantizePerToken {
  static constexpr std::string_view kName = "quantized_decomposed::dequantize_per_token.out";
  enum Arg : size_t {
    kInput,
    kScales,
    kZeroPoints,
    kQuantMin,
    kQuantMax,
    kDtype,
    kOutputDtype,
    kOut
  };
};

struct Embedding {
  static constexpr std::string_view kName = "aten::embedding.out";
  enum Arg : size_t { kWeight, kIndices, kPaddingIdx, kScaleGradByFreq, kSparse, kOut };
};

struct Linear {
  static constexpr std::string_view kName = "aten::linear.out";
  enum Arg : size_t { kInput, kWeight, kBias, kOut };
};

struct MixedLinear {
  static constexpr std::string_view kName = "quantized_decomposed::mixed_linear.out";
  enum Arg : size_t { kInput, kWeight, kWeightScales, kWeightZeroPoints, kDtype, kOut };
};

struct QuantizePerTensor {
  static constexpr std::string_view kName = "quantized_decomposed::quantize_per_tensor.out";
  enum Arg : size_t { kInput, kScale, kZeroPoint, kQuantMin, kQuantMax, kDtype, kOut };
};

struct SelectCopy {
  static constexpr std::string_view kName = "aten::select_copy.int_out";
  enum Arg : size_t { kSelf, kDim, kIndex, kOut };
};

struct SliceCopy {
  static constexpr std::string_view kName = "aten::slice_copy.Tensor_out";
  enum Arg : size_t { kSelf, kDim, kStart, kEnd, kStep, kOut };
};

struct ToCopy {
  static constexpr std::string_view kName = "aten::_to_copy.out";
  enum Arg : size_t { kSelf, kNonBlocking, kMemoryFormat, kOut };
};

// The result of a view shares the memory of `self`.
struct View {
  static constexpr std::string_view kName = "executorch_prim::et_view.default";
  enum Arg : size_t { kSelf, kSize, kOut };
};

}  // namespace ferry::runner::ops
