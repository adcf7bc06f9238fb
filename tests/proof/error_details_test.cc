#include "proof/error_details.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ferry::proof::error_details_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<int64_t> tokens(int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(100 + i);
  return ids;
}

DetailCollector collector(int64_t positions, int64_t columns, const ParityBounds& bounds = {}) {
  return DetailCollector(tokens(positions), columns, bounds);
}

uint64_t count(const auto& bins) {
  uint64_t sum = 0;
  for (const uint64_t bin : bins) sum += bin;
  return sum;
}

TEST(ErrorDetails, TheLargestErrorIsPlacedByPositionAndChannel) {
  DetailCollector details = collector(3, 128);
  details.add_rows("h", 0, 2, std::vector<float>{1, 2, 3, 4}, std::vector<float>{1, 2, 3, 7});
  details.add_part("h", 2, 0, std::vector<float>{5}, std::vector<float>{5});
  details.add_part("h", 2, 1, std::vector<float>{1}, std::vector<float>{6});
  const CaseDetails found = details.take();
  const TensorDetails& h = found.tensors.at("h");
  ASSERT_TRUE(h.worst.has_value());
  EXPECT_EQ(h.worst->position, 2);
  EXPECT_EQ(h.worst->channel, 1);
  EXPECT_EQ(h.worst->error, 5);
  EXPECT_EQ(h.worst->got, 1);
  EXPECT_EQ(h.worst->want, 6);
  ASSERT_EQ(h.log10_error.size(), 3u);
  EXPECT_EQ(h.log10_error[0], kEqualLog10);
  // The errors are 0 and 3 for values 3 and 7, and 0 and 5 for values 5 and 6.
  EXPECT_NEAR(*h.log10_error[1], std::log10(3 / std::sqrt(9.0 + 49.0)), 1e-6);
  EXPECT_NEAR(*h.log10_error[2], std::log10(5 / std::sqrt(25.0 + 36.0)), 1e-6);
}

TEST(ErrorDetails, EqualValuesHaveNoWorst) {
  DetailCollector details = collector(1, 128);
  details.add_rows("h", 0, 1, std::vector<float>{1, 2}, std::vector<float>{1, 2});
  EXPECT_FALSE(details.take().tensors.at("h").worst.has_value());
}

TEST(ErrorDetails, NaNIsTheLargestErrorAndZerosThatDifferAreOutOfScale) {
  DetailCollector details = collector(2, 128);
  details.add_rows("h", 0, 2, std::vector<float>{9, kNaN, 1, 0}, std::vector<float>{1, 2, 0, 0});
  const CaseDetails found = details.take();
  const TensorDetails& h = found.tensors.at("h");
  EXPECT_EQ(h.worst->channel, 1);
  EXPECT_EQ(h.worst->error, kBeyondAnyBound);
  EXPECT_EQ(h.log10_error[0], kNotFiniteLog10);
  EXPECT_EQ(h.log10_error[1], kNotFiniteLog10);
}

// Ten positions are in four columns: three positions in each, and one in the last.
TEST(ErrorDetails, AColumnHasTheWorstOfItsPositions) {
  DetailCollector details = collector(10, 4);
  for (int64_t t = 0; t < 10; ++t) {
    const float error = t == 4 ? 0.5F : t == 9 ? 0.25F : 0.0F;
    details.add_part("h", t, 0, std::vector<float>{1 + error}, std::vector<float>{1});
  }
  const CaseDetails found = details.take();
  EXPECT_EQ(found.positions_per_column, 3);
  const auto& cells = found.tensors.at("h").log10_error;
  ASSERT_EQ(cells.size(), 4u);
  EXPECT_EQ(cells[0], kEqualLog10);
  EXPECT_NEAR(*cells[1], std::log10(0.5), 1e-6);
  EXPECT_EQ(cells[2], kEqualLog10);
  EXPECT_NEAR(*cells[3], std::log10(0.25), 1e-6);
}

TEST(ErrorDetails, WhatWasNotComparedHasNoValue) {
  DetailCollector details = collector(2, 128);
  details.add_logits(1, std::vector<float>{1, 0}, std::vector<float>{1, 0});
  const CaseDetails found = details.take();
  EXPECT_FALSE(found.tensors.at("logits").log10_error[0].has_value());
  EXPECT_FALSE(found.columns[0].compared);
  EXPECT_TRUE(found.columns[1].compared);
}

TEST(ErrorDetails, TheWorseOfTwoWaysCounts) {
  DetailCollector details = collector(1, 128);
  details.add_part("h", 0, 0, std::vector<float>{3}, std::vector<float>{1});
  details.close_way();
  details.add_part("h", 0, 0, std::vector<float>{2}, std::vector<float>{1});
  const CaseDetails found = details.take();
  EXPECT_EQ(found.tensors.at("h").worst->error, 2);
  EXPECT_NEAR(*found.tensors.at("h").log10_error[0], std::log10(2.0), 1e-6);
}

TEST(ErrorDetails, StatesHaveNoPositions) {
  DetailCollector details = collector(5, 128);
  details.add_whole("state", std::vector<float>{0, 1, 2}, std::vector<float>{0, 1, 4});
  const CaseDetails found = details.take();
  const TensorDetails& state = found.tensors.at("state");
  EXPECT_FALSE(state.worst->position.has_value());
  EXPECT_EQ(state.worst->channel, 2);
  EXPECT_TRUE(state.log10_error.empty());
}

TEST(ErrorDetails, HistogramCountsHalfDecadesAndUnitsInTheLastPlace) {
  DetailCollector details = collector(1, 128);
  const float unit = std::ldexp(1.0F, -23);  // of values from 1 to 2 in f32
  details.add_logits(0, std::vector<float>{1, 1 + 3 * unit, 1.2F, kNaN},
                     std::vector<float>{1, 1, 1, 1});
  const ErrorHistogram& histogram = details.take().histogram;
  EXPECT_EQ(histogram.zero, 1u);
  EXPECT_EQ(histogram.not_finite, 1u);
  EXPECT_EQ(count(histogram.decades), 2u);
  // 3.6e-7 is between 10^-6.5 and 10^-6. 0.2 is between 10^-1 and 10^-0.5.
  EXPECT_EQ(histogram.decades[11], 1u);
  EXPECT_EQ(histogram.decades[22], 1u);
  ASSERT_EQ(histogram.unit, DType::kF32);
  // 3 units are between 2^1 and 2^2. 0.2 is 1677721.6 units, which is above 2^20.
  EXPECT_EQ(histogram.units[1 - ErrorHistogram::kFirstUnit], 1u);
  EXPECT_EQ(histogram.units[20 - ErrorHistogram::kFirstUnit], 1u);
}

TEST(ErrorDetails, UnitsAreThoseOfTheRounding) {
  ParityBounds bounds;
  bounds.rounding = DType::kBF16;
  DetailCollector details = collector(1, 128, bounds);
  details.add_logits(0, std::vector<float>{4.0F + 0.03125F}, std::vector<float>{4});
  const ErrorHistogram& histogram = details.take().histogram;
  // From 4 on, bf16 has steps of 2^-5.
  EXPECT_EQ(histogram.units[0 - ErrorHistogram::kFirstUnit], 1u);
  bounds.coded_db = 5;
  EXPECT_FALSE(collector(1, 128, bounds).take().histogram.unit.has_value());
}

TEST(ErrorDetails, TablesHaveTheFirstPositionsAndThoseOfTheLargestKl) {
  DetailCollector details = collector(20, 128);
  for (int64_t t = 0; t < 20; ++t) {
    // A larger shift of the first logit gives a larger KL divergence.
    const float shift = t % 2 == 0 ? 0.0F : static_cast<float>(t) / 10;
    details.add_logits(t, std::vector<float>{1 + shift, 2, 3}, std::vector<float>{1, 2, 3});
  }
  const CaseDetails found = details.take();
  std::vector<int64_t> first, worst;
  for (const PositionDetails& row : found.first) first.push_back(row.position);
  for (const PositionDetails& row : found.worst) worst.push_back(row.position);
  EXPECT_EQ(first, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(worst, (std::vector<int64_t>{19, 17, 15, 13, 11}));
  EXPECT_EQ(found.worst[0].token, 119);
  EXPECT_TRUE(found.columns[2].top1);
}

TEST(ErrorDetails, CandidatesAreTheLikeliestOfBothSides) {
  DetailCollector details = collector(1, 128);
  std::vector<float> want(20), got(20);
  for (size_t i = 0; i < want.size(); ++i) want[i] = -static_cast<float>(i);
  got = want;
  got[15] = 5;  // ours prefers another token
  details.add_logits(0, got, want);
  const CaseDetails found = details.take();
  ASSERT_EQ(found.worst.size(), 1u);
  const std::vector<CandidateToken>& top = found.worst[0].top;
  ASSERT_EQ(top.size(), 9u);  // the top 8 of the reference, and ours
  EXPECT_EQ(top[0].id, 0);
  EXPECT_EQ(top[0].want_rank, 1);
  EXPECT_EQ(top[0].got_rank, 2);
  EXPECT_EQ(top[8].id, 15);
  EXPECT_EQ(top[8].want_rank, 16);
  EXPECT_EQ(top[8].got_rank, 1);
  double want_sum = 0, got_sum = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    want_sum += std::exp(double{want[i]});
    got_sum += std::exp(double{got[i]});
  }
  EXPECT_NEAR(top[8].got, std::exp(5.0) / got_sum, 1e-9);
  EXPECT_NEAR(top[8].want, std::exp(-15.0) / want_sum, 1e-9);
  EXPECT_FALSE(found.columns[0].top1);
}

TEST(ErrorDetails, LogitsThatAreNotFiniteHaveNoProbabilities) {
  DetailCollector details = collector(1, 128);
  details.add_logits(0, std::vector<float>{kNaN, 1}, std::vector<float>{2, 1});
  const CaseDetails found = details.take();
  ASSERT_EQ(found.worst.size(), 1u);
  EXPECT_FALSE(found.worst[0].finite);
  EXPECT_EQ(found.worst[0].kl, kBeyondAnyBound);
  EXPECT_FALSE(found.columns[0].top1);
}

// The columns of a report are shared by its prompts, so many prompts have few columns each.
TEST(ErrorDetails, ColumnsAreSharedByPrompts) {
  EXPECT_EQ(columns_for(1), 128);
  EXPECT_EQ(columns_for(2), 128);
  EXPECT_EQ(columns_for(8), 32);
  EXPECT_EQ(columns_for(10000), 8);
}

}  // namespace
}  // namespace ferry::proof::error_details_test
