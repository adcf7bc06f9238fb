// Details of errors that a report shows beside the metrics. They are collected only on request.
// Their memory does not depend on the length of a prompt or the size of the vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "proof/bounds.h"

namespace ferry::proof {

// The place of the largest difference in a tensor. Values that are not finite count as the largest.
struct ErrorPlace {
  double error = 0;
  // nullopt for tensors whose first axis is not the position; `channel` is then an index into the
  // whole tensor.
  std::optional<int64_t> position = {};
  int64_t channel = 0;  // index in the position; for caches head * dim + index
  float got = 0, want = 0;
};

// The error of a position is log10 of (rms of the differences / rms of the expected values). These
// values stand for equal values and for values that are not finite.
inline constexpr float kEqualLog10 = -16, kNotFiniteLog10 = 16;

struct TensorDetails {
  std::optional<ErrorPlace> worst;  // nullopt if all values are equal
  // The worst position of each column; nullopt if no position of the column was compared. Empty for
  // tensors without positions.
  std::vector<std::optional<float>> log10_error;
};

struct CandidateToken {
  int64_t id = 0;
  double got = 0, want = 0;             // probabilities
  int64_t got_rank = 0, want_rank = 0;  // 1 is the likeliest token
};
struct PositionDetails {
  int64_t position = 0, token = 0;
  double kl = 0, max_abs = 0;
  // Whether `got` is finite; if not, candidates have no probabilities from `got`.
  bool finite = true;
  std::vector<CandidateToken> top;  // the likeliest tokens of both, by `want_rank`
};
// The worst position of a column.
struct ColumnDetails {
  double kl = 0, max_abs = 0;
  bool top1 = true;
  bool compared = false;
};

struct ErrorHistogram {
  // Bin edges are powers of the square root of ten from 10^kFirstDecade, and powers of two from
  // 2^kFirstUnit. The first and the last bin also have all values beyond the edges.
  static constexpr int kFirstDecade = -12, kFirstUnit = -8;
  uint64_t zero = 0, not_finite = 0;
  std::array<uint64_t, 36> decades = {};
  // Dtype that defines the unit in the last place of the expected value.
  std::optional<DType> unit = {};
  std::array<uint64_t, 32> units = {};
};

struct ChosenToken {
  int64_t got = 0, want = 0;
};

struct CaseDetails {
  std::vector<int64_t> tokens;  // the first tokens of the prompt
  int64_t positions_per_column = 1;
  std::map<std::string, TensorDetails> tensors;  // by name; includes "logits"
  std::vector<ColumnDetails> columns;            // for the logits
  ErrorHistogram histogram;                      // for the logits, or the last output
  std::vector<PositionDetails> first, worst;     // by position; by KL, largest first
  std::vector<int64_t> continuation;             // continuation of the reference
  std::vector<ChosenToken> chosen;  // tokens of the continuation, as far as they were compared
};

class DetailCollector {
 public:
  // `columns` is the largest number of columns of a prompt.
  DetailCollector(std::span<const int64_t> tokens, int64_t columns, const ParityBounds& bounds);

  // Adds `rows` positions of a tensor, which have equal widths.
  void add_rows(const std::string& tensor, int64_t position, int64_t rows,
                std::span<const float> got, std::span<const float> want);
  // Adds a part of a position that begins at `channel`. Parts of a position must follow each other.
  void add_part(const std::string& tensor, int64_t position, int64_t channel,
                std::span<const float> got, std::span<const float> want);
  // Adds a tensor without positions.
  void add_whole(const std::string& tensor, std::span<const float> got,
                 std::span<const float> want);
  // Adds a whole tensor in the shape that references have.
  void add_tensor(const ReferenceTensor& tensor, const Shape& shape, std::span<const float> got,
                  std::span<const float> want);
  void add_logits(int64_t position, std::span<const float> got, std::span<const float> want);
  void add_choice(int64_t got, int64_t want) { details_.chosen.push_back({got, want}); }
  void set_continuation(std::vector<int64_t> ids) { details_.continuation = std::move(ids); }
  // Ends one execution of the prompt. Later values belong to another execution, and the worst
  // values of all executions are kept.
  void close_way();
  CaseDetails take();

 private:
  struct Sums {
    int64_t position = -1;
    double error = 0, want = 0;
    bool finite = true;
  };
  void place_worst(TensorDetails& tensor, std::optional<int64_t> position, int64_t channel,
                   std::span<const float> got, std::span<const float> want);
  // The last output that is counted replaces the others, if an encoder has several.
  void count_output(std::span<const float> got, std::span<const float> want);
  void close_position(const std::string& name, const Sums& sums);
  void add_column(int64_t position, const PositionDetails& row, bool top1);
  void keep_row(PositionDetails row, std::span<const float> got, std::span<const float> want);

  CaseDetails details_;
  std::vector<int64_t> tokens_;
  std::map<std::string, Sums> open_;  // positions that may get more parts
};

// Returns the columns per prompt for a report of `prompts` prompts, so that the report stays small.
int64_t columns_for(size_t prompts);

}  // namespace ferry::proof
