// Where errors are: what a report shows beside the metrics. Collected only where it is asked for.
// Memory does not depend on the length of a prompt or the size of the vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "proof/bounds.h"

namespace ferry::proof {

// Where the largest difference of a tensor is. Values that are not finite are the largest.
struct ErrorPlace {
  double error = 0;
  // None of tensors whose first axis is not the position: then `channel` counts within all of it.
  std::optional<int64_t> position = {};
  int64_t channel = 0;  // within the position; of caches head * dim + index
  float got = 0, want = 0;
};

// The error of a position: log10 of the rms of the differences over the rms of the expected values.
// Equal values and values that are not finite stand at the ends.
inline constexpr float kEqualLog10 = -16, kNotFiniteLog10 = 16;

struct TensorDetails {
  std::optional<ErrorPlace> worst;  // none where all values are equal
  // The worst position of each column; none where none was compared. Empty without positions.
  std::vector<std::optional<float>> log10_error;
};

struct CandidateToken {
  int64_t id = 0;
  double got = 0, want = 0;             // probabilities
  int64_t got_rank = 0, want_rank = 0;  // 1 is the likeliest
};
struct PositionDetails {
  int64_t position = 0, token = 0;
  double kl = 0, max_abs = 0;
  bool finite = true;               // `got`; otherwise candidates have no values of it
  std::vector<CandidateToken> top;  // the likeliest of both, by `want_rank`
};
// The worst position of a column.
struct ColumnDetails {
  double kl = 0, max_abs = 0;
  bool top1 = true;
  bool compared = false;
};

struct ErrorHistogram {
  // Edges are powers of the square root of ten from 10^kFirstDecade, and of two from
  // 2^kFirstUnit; the first and the last bin have what is beyond too.
  static constexpr int kFirstDecade = -12, kFirstUnit = -8;
  uint64_t zero = 0, not_finite = 0;
  std::array<uint64_t, 36> decades = {};
  std::optional<DType> unit = {};  // units in the last place of the expected value in this dtype
  std::array<uint64_t, 32> units = {};
};

struct ChosenToken {
  int64_t got = 0, want = 0;
};

struct CaseDetails {
  std::vector<int64_t> tokens;  // the first ones of the prompt
  int64_t positions_per_column = 1;
  std::map<std::string, TensorDetails> tensors;  // by name; "logits" is one of them
  std::vector<ColumnDetails> columns;            // of the logits
  ErrorHistogram histogram;                      // of the logits, or the last output
  std::vector<PositionDetails> first, worst;     // by position; by KL, largest first
  std::vector<int64_t> continuation;             // of the reference
  std::vector<ChosenToken> chosen;               // of its tokens, as far as they were compared
};

class DetailCollector {
 public:
  // `columns`: how many a prompt has at most.
  DetailCollector(std::span<const int64_t> tokens, int64_t columns, const ParityBounds& bounds);

  // `rows` positions of a tensor, of equal width.
  void add_rows(const std::string& tensor, int64_t position, int64_t rows,
                std::span<const float> got, std::span<const float> want);
  // A part of a position, which begins at `channel`. Parts of a position follow each other.
  void add_part(const std::string& tensor, int64_t position, int64_t channel,
                std::span<const float> got, std::span<const float> want);
  // A tensor without positions.
  void add_whole(const std::string& tensor, std::span<const float> got,
                 std::span<const float> want);
  // A whole tensor in the shape of references.
  void add_tensor(const ReferenceTensor& tensor, const Shape& shape, std::span<const float> got,
                  std::span<const float> want);
  void add_logits(int64_t position, std::span<const float> got, std::span<const float> want);
  void add_choice(int64_t got, int64_t want) { details_.chosen.push_back({got, want}); }
  void set_continuation(std::vector<int64_t> ids) { details_.continuation = std::move(ids); }
  // Whatever comes next is of another execution of the same prompt: the worst of both counts.
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
  // If an encoder has several outputs, the last one counts.
  void count_output(std::span<const float> got, std::span<const float> want);
  void close_position(const std::string& name, const Sums& sums);
  void add_column(int64_t position, const PositionDetails& row, bool top1);
  void keep_row(PositionDetails row, std::span<const float> got, std::span<const float> want);

  CaseDetails details_;
  std::vector<int64_t> tokens_;
  std::map<std::string, Sums> open_;  // positions that may get more parts
};

// Columns of a prompt where a report has `prompts` of them: the report stays small.
int64_t columns_for(size_t prompts);

}  // namespace ferry::proof
