// Indices of operators' arguments, for code that inspects nodes of a graph or steps of a method.
// The names are those of the table in formats/pte/op_schema.cc, and a test compares the two.
#pragma once

#include <cstddef>
#include <string_view>

namespace ferry::pte::ops {

struct Add {
  static constexpr std::string_view kName = "aten::add.out";
  enum Arg : size_t { kSelf, kOther, kAlpha, kOut };
};

// Elementwise operators of two tensors: mul.out, div.out, and add.out up to its kOther.
struct Binary {
  static constexpr std::string_view kName = "aten::mul.out";
  enum Arg : size_t { kSelf, kOther, kOut };
};

struct Bmm {
  static constexpr std::string_view kName = "aten::bmm.out";
  enum Arg : size_t { kSelf, kMat2, kOut };
};

struct Cat {
  static constexpr std::string_view kName = "aten::cat.out";
  enum Arg : size_t { kTensors, kDim, kOut };
};

// The buffer `self` is also the result.
struct Copy {
  static constexpr std::string_view kName = "aten::copy_";
  enum Arg : size_t { kSelf, kSrc, kNonBlocking };
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

struct BlockLinear {
  static constexpr std::string_view kName = "ferry::block_linear.out";
  enum Arg : size_t { kInput, kBlocks, kEncoding, kOut };
};

struct Embedding {
  static constexpr std::string_view kName = "aten::embedding.out";
  enum Arg : size_t { kWeight, kIndices, kPaddingIdx, kScaleGradByFreq, kSparse, kOut };
};

struct Expand {
  static constexpr std::string_view kName = "aten::expand_copy.out";
  enum Arg : size_t { kSelf, kSize, kImplicit, kOut };
};

// executorch_prim::add.Scalar, and sub.Scalar with the same arguments.
struct IntBinary {
  static constexpr std::string_view kName = "executorch_prim::add.Scalar";
  enum Arg : size_t { kA, kB, kOut };
};

struct LayerNorm {
  static constexpr std::string_view kName = "aten::native_layer_norm.out";
  enum Arg : size_t { kInput, kNormalizedShape, kWeight, kBias, kEps, kOut0, kOut1, kOut2 };
};

struct Linear {
  static constexpr std::string_view kName = "aten::linear.out";
  enum Arg : size_t { kInput, kWeight, kBias, kOut };
};

struct Mean {
  static constexpr std::string_view kName = "aten::mean.out";
  enum Arg : size_t { kSelf, kDims, kKeepDim, kDtype, kOut };
};

struct MixedLinear {
  static constexpr std::string_view kName = "quantized_decomposed::mixed_linear.out";
  enum Arg : size_t { kInput, kWeight, kWeightScales, kWeightZeroPoints, kDtype, kOut };
};

struct Permute {
  static constexpr std::string_view kName = "aten::permute_copy.out";
  enum Arg : size_t { kSelf, kDims, kOut };
};

struct QuantizePerTensor {
  static constexpr std::string_view kName = "quantized_decomposed::quantize_per_tensor.out";
  enum Arg : size_t { kInput, kScale, kZeroPoint, kQuantMin, kQuantMax, kDtype, kOut };
};

struct Rsqrt {
  static constexpr std::string_view kName = "aten::rsqrt.out";
  enum Arg : size_t { kSelf, kOut };
};

struct SelectCopy {
  static constexpr std::string_view kName = "aten::select_copy.int_out";
  enum Arg : size_t { kSelf, kDim, kIndex, kOut };
};

struct SliceCopy {
  static constexpr std::string_view kName = "aten::slice_copy.Tensor_out";
  enum Arg : size_t { kSelf, kDim, kStart, kEnd, kStep, kOut };
};

struct Softmax {
  static constexpr std::string_view kName = "aten::_softmax.out";
  enum Arg : size_t { kSelf, kDim, kHalfToFloat, kOut };
};

struct SplitWithSizes {
  static constexpr std::string_view kName = "aten::split_with_sizes_copy.out";
  enum Arg : size_t { kSelf, kSplitSizes, kDim, kOut };
};

struct SymSize {
  static constexpr std::string_view kName = "aten::sym_size.int";
  enum Arg : size_t { kSelf, kDim, kOut };
};

struct ToCopy {
  static constexpr std::string_view kName = "aten::_to_copy.out";
  enum Arg : size_t { kSelf, kNonBlocking, kMemoryFormat, kOut };
};

struct Unsqueeze {
  static constexpr std::string_view kName = "aten::unsqueeze_copy.out";
  enum Arg : size_t { kSelf, kDim, kOut };
};

// The result of a view shares the memory of `self`.
struct View {
  static constexpr std::string_view kName = "executorch_prim::et_view.default";
  enum Arg : size_t { kSelf, kSize, kOut };
};

struct Where {
  static constexpr std::string_view kName = "aten::where.self_out";
  enum Arg : size_t { kCondition, kSelf, kOther, kOut };
};

// The buffer `cache` is changed, and `out` is not used.
struct UpdateCache {
  static constexpr std::string_view kName = "llama::update_cache.out";
  enum Arg : size_t { kValue, kCache, kStartPos, kOut };
};

struct UpdateCacheIndices {
  static constexpr std::string_view kName = "llama::update_cache_with_indices.out";
  enum Arg : size_t { kValue, kCache, kStartPos, kIndices, kOut };
};

}  // namespace ferry::pte::ops
