// Strided pieces: no operation on a list of pieces changes the elements or their order.
#include "core/strided.h"

#include <gtest/gtest.h>

#include <limits>

namespace ferry::strided_test {
namespace {

using Pieces = std::vector<StridedPiece>;
using Elements = std::vector<std::pair<size_t, int64_t>>;  // (tensor, element) pairs

Elements elements_of(const Pieces& pieces) {
  Elements elements;
  for (const StridedPiece& piece : pieces) {
    for_each_run(piece, [&](int64_t offset, int64_t count) {
      for (int64_t i = 0; i < count; ++i) elements.emplace_back(piece.tensor, offset + i);
    });
  }
  return elements;
}

struct Random {
  uint64_t state;
  int64_t below(int64_t n) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(n));
  }
};

// Makes a piece of a tensor that has 2000 elements or more.
StridedPiece random_piece(Random& random, int64_t offset, int64_t stride) {
  StridedPiece piece{.tensor = static_cast<size_t>(random.below(2)),
                     .offset = random.below(offset)};
  for (int64_t axes = random.below(4); axes > 0; --axes) {
    piece.axes.push_back({random.below(5), random.below(stride)});
  }
  return piece;
}

TEST(Strided, RunsAreTheElementsOfTheWalk) {
  const StridedPiece piece = {.offset = 3, .axes = {{2, 100}, {3, 10}, {2, 1}}};
  std::vector<int64_t> seen;
  for_each_run(piece, [&](int64_t offset, int64_t count) {
    EXPECT_EQ(count, 2);
    seen.push_back(offset);
  });
  EXPECT_EQ(seen, (std::vector<int64_t>{3, 13, 23, 103, 113, 123}));
  EXPECT_EQ(elements_of({run_piece(1, 7, 1)}), (Elements{{1, 7}}));
  EXPECT_EQ(elements_of({run_piece(1, 7, 0)}), Elements{});
  EXPECT_EQ(elements_of({{.offset = 5, .axes = {{2, 0}}}}), (Elements{{0, 5}, {0, 5}}));
}

TEST(Strided, FoldingKeepsTheElements) {
  Random random{1};
  for (int round = 0; round < 2000; ++round) {
    Pieces pieces;
    for (int64_t left = random.below(8); left > 0; --left) {
      pieces.push_back(random_piece(random, 10, 4));
    }
    const Pieces fewer = folded(pieces);
    ASSERT_EQ(elements_of(fewer), elements_of(pieces)) << round;
    EXPECT_LE(fewer.size(), pieces.size());
  }
}

TEST(Strided, PiecesAtAConstantDistanceBecomeOne) {
  const Pieces rows = {run_piece(0, 0, 4), run_piece(0, 8, 4), run_piece(0, 16, 4)};
  EXPECT_EQ(folded(rows), (Pieces{{.axes = {{3, 8}, {4, 1}}}}));
  EXPECT_EQ(folded(Pieces{run_piece(0, 2, 3), run_piece(0, 5, 4)}), (Pieces{run_piece(0, 2, 7)}));
  // The two halves of heads of two pairs are interleaved, which takes two levels.
  const Pieces pairs = {{.offset = 0, .axes = {{2, 2}}},
                        {.offset = 1, .axes = {{2, 2}}},
                        {.offset = 4, .axes = {{2, 2}}},
                        {.offset = 5, .axes = {{2, 2}}}};
  EXPECT_EQ(folded(pairs), (Pieces{{.axes = {{2, 4}, {2, 1}, {2, 2}}}}));
  EXPECT_EQ(folded(Pieces{run_piece(0, 0, 4), run_piece(1, 4, 4)}).size(), 2u);
}

TEST(Strided, ASelectionIsTakenElementByElement) {
  Random random{2};
  for (int round = 0; round < 2000; ++round) {
    Pieces from;
    for (int64_t left = 1 + random.below(4); left > 0; --left) {
      from.push_back(random_piece(random, 1000, 50));
    }
    const Elements sequence = elements_of(from);
    if (sequence.empty()) continue;
    Pieces what;
    for (int64_t left = random.below(4); left > 0; --left) {
      StridedPiece piece = random_piece(random, std::ssize(sequence), 3);
      if (end_of(piece).value() <= std::ssize(sequence)) what.push_back(std::move(piece));
    }
    Elements expected;
    for (const auto& [tensor, at] : elements_of(what)) {
      expected.push_back(sequence[static_cast<size_t>(at)]);
    }
    ASSERT_EQ(elements_of(select(from, what)), expected) << round;
  }
}

TEST(Strided, RowsBecomeElements) {
  const Pieces rows = {{.offset = 1, .axes = {{2, 3}}}, run_piece(0, 0, 2)};
  EXPECT_EQ(rows_to_elements(rows, 5),
            (Pieces{{.offset = 5, .axes = {{2, 15}, {5, 1}}}, run_piece(0, 0, 10)}));
  EXPECT_EQ(rows_to_elements(rows, 1), rows);
}

TEST(Strided, TheEndIsKnownOrRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(end_of(run_piece(0, 3, 4)), 7);
  EXPECT_EQ(end_of({.offset = 2, .axes = {{3, 10}, {2, 4}}}), 27);
  EXPECT_EQ(end_of({.offset = 2, .axes = {{0, 10}, {kMost, kMost}}}), 2);
  EXPECT_EQ(end_of({.offset = -1}), std::nullopt);
  EXPECT_EQ(end_of({.axes = {{2, -1}}}), std::nullopt);
  EXPECT_EQ(end_of({.axes = {{-2, 1}}}), std::nullopt);
  EXPECT_EQ(end_of({.offset = kMost}), std::nullopt);
  EXPECT_EQ(end_of({.axes = {{kMost, 2}}}), std::nullopt);
  EXPECT_EQ(end_of({.axes = {{kMost, 0}, {kMost, 0}}}), std::nullopt);
}

}  // namespace
}  // namespace ferry::strided_test
