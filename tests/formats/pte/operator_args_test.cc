// The named arguments of operators have the positions that the table of operators states.
#include "formats/pte/operator_args.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string_view>

#include "formats/pte/op_schema.h"

namespace ferry::pte::operator_args_test {
namespace {

struct Named {
  size_t index;
  std::string_view name;
};

void expect_args(std::string_view op, std::initializer_list<Named> args) {
  SCOPED_TRACE(op);
  const OpSchema* schema = find_op_schema(op);
  ASSERT_NE(schema, nullptr);
  ASSERT_EQ(schema->args.size(), args.size());
  for (const Named& arg : args) EXPECT_EQ(schema->args.at(arg.index).name, arg.name);
}

TEST(OperatorArgs, AreThoseOfTheTable) {
  using namespace ops;
  expect_args(Bmm::kName, {{Bmm::kSelf, "self"}, {Bmm::kMat2, "mat2"}, {Bmm::kOut, "out"}});
  expect_args(Cat::kName, {{Cat::kTensors, "tensors"}, {Cat::kDim, "dim"}, {Cat::kOut, "out"}});
  using Sdpa = CustomSdpa;
  expect_args(Sdpa::kName, {{Sdpa::kQuery, "query"},
                            {Sdpa::kKey, "key"},
                            {Sdpa::kValue, "value"},
                            {Sdpa::kStartPos, "start_pos"},
                            {Sdpa::kAttnMask, "attn_mask"},
                            {Sdpa::kDropoutP, "dropout_p"},
                            {Sdpa::kIsCausal, "is_causal"},
                            {Sdpa::kScale, "scale"},
                            {Sdpa::kOut, "out"}});
  expect_args(Embedding::kName, {{Embedding::kWeight, "weight"},
                                 {Embedding::kIndices, "indices"},
                                 {Embedding::kPaddingIdx, "padding_idx"},
                                 {Embedding::kScaleGradByFreq, "scale_grad_by_freq"},
                                 {Embedding::kSparse, "sparse"},
                                 {Embedding::kOut, "out"}});
  expect_args(Linear::kName, {{Linear::kInput, "input"},
                              {Linear::kWeight, "weight"},
                              {Linear::kBias, "bias"},
                              {Linear::kOut, "out"}});
  expect_args(SelectCopy::kName, {{SelectCopy::kSelf, "self"},
                                  {SelectCopy::kDim, "dim"},
                                  {SelectCopy::kIndex, "index"},
                                  {SelectCopy::kOut, "out"}});
  expect_args(SliceCopy::kName, {{SliceCopy::kSelf, "self"},
                                 {SliceCopy::kDim, "dim"},
                                 {SliceCopy::kStart, "start"},
                                 {SliceCopy::kEnd, "end"},
                                 {SliceCopy::kStep, "step"},
                                 {SliceCopy::kOut, "out"}});
  expect_args(ToCopy::kName, {{ToCopy::kSelf, "self"},
                              {ToCopy::kNonBlocking, "non_blocking"},
                              {ToCopy::kMemoryFormat, "memory_format"},
                              {ToCopy::kOut, "out"}});
  expect_args(UpdateCache::kName, {{UpdateCache::kValue, "value"},
                                   {UpdateCache::kCache, "cache"},
                                   {UpdateCache::kStartPos, "start_pos"},
                                   {UpdateCache::kOut, "out"}});
  using ByIndices = UpdateCacheIndices;
  expect_args(ByIndices::kName, {{ByIndices::kValue, "value"},
                                 {ByIndices::kCache, "cache"},
                                 {ByIndices::kStartPos, "start_pos"},
                                 {ByIndices::kIndices, "indices"},
                                 {ByIndices::kOut, "out"}});
  expect_args(View::kName, {{View::kSelf, "self"}, {View::kSize, "size"}, {View::kOut, "out"}});
}

TEST(OperatorArgs, OfGraphsAreThoseOfTheTable) {
  using namespace ops;
  using Split = SplitWithSizes;
  expect_args(
      Add::kName,
      {{Add::kSelf, "self"}, {Add::kOther, "other"}, {Add::kAlpha, "alpha"}, {Add::kOut, "out"}});
  expect_args(Binary::kName,
              {{Binary::kSelf, "self"}, {Binary::kOther, "other"}, {Binary::kOut, "out"}});
  expect_args(Copy::kName,
              {{Copy::kSelf, "self"}, {Copy::kSrc, "src"}, {Copy::kNonBlocking, "non_blocking"}});
  expect_args(Expand::kName, {{Expand::kSelf, "self"},
                              {Expand::kSize, "size"},
                              {Expand::kImplicit, "implicit"},
                              {Expand::kOut, "out"}});
  expect_args(IntBinary::kName,
              {{IntBinary::kA, "a"}, {IntBinary::kB, "b"}, {IntBinary::kOut, "out"}});
  expect_args(Permute::kName,
              {{Permute::kSelf, "self"}, {Permute::kDims, "dims"}, {Permute::kOut, "out"}});
  expect_args(Softmax::kName, {{Softmax::kSelf, "self"},
                               {Softmax::kDim, "dim"},
                               {Softmax::kHalfToFloat, "half_to_float"},
                               {Softmax::kOut, "out"}});
  expect_args(Split::kName, {{Split::kSelf, "self"},
                             {Split::kSplitSizes, "split_sizes"},
                             {Split::kDim, "dim"},
                             {Split::kOut, "out"}});
  expect_args(SymSize::kName,
              {{SymSize::kSelf, "self"}, {SymSize::kDim, "dim"}, {SymSize::kOut, "out"}});
  expect_args(Unsqueeze::kName,
              {{Unsqueeze::kSelf, "self"}, {Unsqueeze::kDim, "dim"}, {Unsqueeze::kOut, "out"}});
  expect_args(Where::kName, {{Where::kCondition, "condition"},
                             {Where::kSelf, "self"},
                             {Where::kOther, "other"},
                             {Where::kOut, "out"}});
}

TEST(OperatorArgs, OfCodesAreThoseOfTheTable) {
  using namespace ops;
  using Dequantize = DequantizePerTensor;
  expect_args(Dequantize::kName, {{Dequantize::kInput, "input"},
                                  {Dequantize::kScale, "scale"},
                                  {Dequantize::kZeroPoint, "zero_point"},
                                  {Dequantize::kQuantMin, "quant_min"},
                                  {Dequantize::kQuantMax, "quant_max"},
                                  {Dequantize::kDtype, "dtype"},
                                  {Dequantize::kOutDtype, "out_dtype"},
                                  {Dequantize::kOut, "out"}});
  using Rows = DequantizePerToken;
  expect_args(Rows::kName, {{Rows::kInput, "input"},
                            {Rows::kScales, "scales"},
                            {Rows::kZeroPoints, "zero_points"},
                            {Rows::kQuantMin, "quant_min"},
                            {Rows::kQuantMax, "quant_max"},
                            {Rows::kDtype, "dtype"},
                            {Rows::kOutputDtype, "output_dtype"},
                            {Rows::kOut, "out"}});
  expect_args(LayerNorm::kName, {{LayerNorm::kInput, "input"},
                                 {LayerNorm::kNormalizedShape, "normalized_shape"},
                                 {LayerNorm::kWeight, "weight"},
                                 {LayerNorm::kBias, "bias"},
                                 {LayerNorm::kEps, "eps"},
                                 {LayerNorm::kOut0, "out0"},
                                 {LayerNorm::kOut1, "out1"},
                                 {LayerNorm::kOut2, "out2"}});
  expect_args(MixedLinear::kName, {{MixedLinear::kInput, "input"},
                                   {MixedLinear::kWeight, "weight"},
                                   {MixedLinear::kWeightScales, "weight_scales"},
                                   {MixedLinear::kWeightZeroPoints, "weight_zero_points"},
                                   {MixedLinear::kDtype, "dtype"},
                                   {MixedLinear::kOut, "out"}});
  using Quantize = QuantizePerTensor;
  expect_args(Quantize::kName, {{Quantize::kInput, "input"},
                                {Quantize::kScale, "scale"},
                                {Quantize::kZeroPoint, "zero_point"},
                                {Quantize::kQuantMin, "quant_min"},
                                {Quantize::kQuantMax, "quant_max"},
                                {Quantize::kDtype, "dtype"},
                                {Quantize::kOut, "out"}});
}

}  // namespace
}  // namespace ferry::pte::operator_args_test
