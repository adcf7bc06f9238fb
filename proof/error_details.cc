#include "proof/error_details.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "proof/parity.h"
#include "runner/sampler.h"

namespace ferry::proof {
namespace {

using Row = std::span<const float>;

constexpr size_t kKeptTokens = 256;
constexpr size_t kKeptRows = 5;
constexpr size_t kCandidates = 8;
constexpr int64_t kMostColumns = 128, kLeastColumns = 8, kAllColumns = 256;

bool is_finite(Row values) {
  return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
}

// Returns the upper edges of the bins, which are half a decade wide.
const std::array<double, 36>& decade_edges() {
  static const std::array<double, 36> edges = [] {
    std::array<double, 36> table{};
    for (size_t i = 0; i < table.size(); ++i) {
      table[i] = std::pow(10.0, ErrorHistogram::kFirstDecade + 0.5 * static_cast<double>(i + 1));
    }
    return table;
  }();
  return edges;
}

// Returns the exponent of the unit in the last place of `value` in a dtype.
int unit_exponent(float value, DType dtype) {
  constexpr int kBias = 127;
  const int exponent = static_cast<int>((std::bit_cast<uint32_t>(value) >> 23) & 0xffU) - kBias;
  if (dtype == DType::kF16) return std::max(exponent, -14) - 10;
  return std::max(exponent, -126) - (dtype == DType::kBF16 ? 7 : 23);
}

void count_error(ErrorHistogram& histogram, float got, float want) {
  const double error = std::fabs(static_cast<double>(got) - static_cast<double>(want));
  if (error == 0) {
    histogram.zero += 1;
    return;
  }
  if (!std::isfinite(error)) {
    histogram.not_finite += 1;
    return;
  }
  const auto& edges = decade_edges();
  const auto bin = std::upper_bound(edges.begin(), edges.end() - 1, error) - edges.begin();
  histogram.decades[static_cast<size_t>(bin)] += 1;
  if (!histogram.unit) return;
  const int exponent = std::ilogb(error) - unit_exponent(want, *histogram.unit);
  const int most = static_cast<int>(histogram.units.size()) - 1;
  const int unit = std::clamp(exponent - ErrorHistogram::kFirstUnit, 0, most);
  histogram.units[static_cast<size_t>(unit)] += 1;
}

// Returns nullopt for quantised values, because units in the last place mean nothing for them.
std::optional<DType> unit_of(const ParityBounds& bounds) {
  if (bounds.coded_db) return std::nullopt;
  if (!bounds.rounding) return DType::kF32;
  const bool is_float = *bounds.rounding == DType::kF16 || *bounds.rounding == DType::kBF16;
  return is_float ? bounds.rounding : std::nullopt;
}

// Returns ids of the largest logits, largest first. Of equal logits, the lowest id comes first.
std::vector<int64_t> likeliest(Row row) {
  std::vector<int64_t> ids(row.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  const size_t count = std::min(kCandidates, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<int64_t>(count), ids.end(),
                    [row](int64_t a, int64_t b) {
                      const float x = row[static_cast<size_t>(a)], y = row[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  ids.resize(count);
  return ids;
}

int64_t rank_of(Row row, int64_t id) {
  const float value = row[static_cast<size_t>(id)];
  int64_t rank = 1;
  for (size_t i = 0; i < row.size(); ++i) {
    rank += row[i] > value || (row[i] == value && static_cast<int64_t>(i) < id) ? 1 : 0;
  }
  return rank;
}

std::vector<CandidateToken> candidates(Row got, Row want, bool finite) {
  std::vector<int64_t> ids = likeliest(want);
  if (finite) {
    for (const int64_t id : likeliest(got)) {
      if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
    }
  }
  const double want_norm = log_sum_exp(want);
  const double got_norm = finite ? log_sum_exp(got) : 0;
  std::vector<CandidateToken> tokens;
  for (const int64_t id : ids) {
    CandidateToken& token = tokens.emplace_back();
    token.id = id;
    token.want = std::exp(want[static_cast<size_t>(id)] - want_norm);
    token.want_rank = rank_of(want, id);
    if (!finite) continue;
    token.got = std::exp(got[static_cast<size_t>(id)] - got_norm);
    token.got_rank = rank_of(got, id);
  }
  std::ranges::sort(tokens, {}, &CandidateToken::want_rank);
  return tokens;
}

}  // namespace

int64_t columns_for(size_t prompts) {
  const auto share = kAllColumns / static_cast<int64_t>(std::max<size_t>(1, prompts));
  return std::clamp(share, kLeastColumns, kMostColumns);
}

DetailCollector::DetailCollector(std::span<const int64_t> tokens, int64_t columns,
                                 const ParityBounds& bounds)
    : tokens_(tokens.begin(), tokens.end()) {
  const auto count = std::max<int64_t>(1, std::ssize(tokens_));
  details_.tokens.assign(
      tokens_.begin(),
      tokens_.begin() + std::ssize(tokens.first(std::min(tokens.size(), kKeptTokens))));
  details_.positions_per_column = (count + columns - 1) / columns;
  const int64_t per_column = details_.positions_per_column;
  details_.columns.resize(static_cast<size_t>((count + per_column - 1) / per_column));
  details_.histogram.unit = unit_of(bounds);
}

void DetailCollector::place_worst(TensorDetails& tensor, std::optional<int64_t> position,
                                  int64_t channel, Row got, Row want) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    const double error = std::isfinite(difference) ? difference : kBeyondAnyBound;
    if (error == 0 || (tensor.worst && error <= tensor.worst->error)) continue;
    tensor.worst = {error, position, channel + static_cast<int64_t>(i), got[i], want[i]};
  }
}

void DetailCollector::close_position(const std::string& name, const Sums& sums) {
  if (sums.position < 0) return;
  float value = kNotFiniteLog10;
  if (sums.finite) {
    // If all expected values are 0, every error counts as infinitely large.
    const double ratio =
        sums.error == 0 ? -kNotFiniteLog10 : std::log10(sums.error / sums.want) / 2;
    value = std::clamp(static_cast<float>(ratio), kEqualLog10, kNotFiniteLog10);
  }
  std::vector<std::optional<float>>& cells = details_.tensors[name].log10_error;
  cells.resize(details_.columns.size());
  const auto column = static_cast<size_t>(sums.position / details_.positions_per_column);
  if (column >= cells.size()) return;
  cells[column] = std::max(cells[column].value_or(value), value);
}

void DetailCollector::add_part(const std::string& tensor, int64_t position, int64_t channel,
                               Row got, Row want) {
  Sums& sums = open_[tensor];
  if (sums.position != position) {
    close_position(tensor, sums);
    sums = Sums{.position = position};
  }
  for (size_t i = 0; i < want.size(); ++i) {
    const double g = got[i], w = want[i];
    sums.finite = sums.finite && std::isfinite(g);
    sums.error += (g - w) * (g - w);
    sums.want += w * w;
  }
  place_worst(details_.tensors[tensor], position, channel, got, want);
}

void DetailCollector::add_rows(const std::string& tensor, int64_t position, int64_t rows, Row got,
                               Row want) {
  const size_t width = want.size() / static_cast<size_t>(std::max<int64_t>(1, rows));
  for (int64_t r = 0; r < rows; ++r) {
    const size_t at = static_cast<size_t>(r) * width;
    add_part(tensor, position + r, 0, got.subspan(at, width), want.subspan(at, width));
  }
}

void DetailCollector::add_whole(const std::string& tensor, Row got, Row want) {
  place_worst(details_.tensors[tensor], std::nullopt, 0, got, want);
}

void DetailCollector::add_column(int64_t position, const PositionDetails& row, bool top1) {
  const auto at = static_cast<size_t>(position / details_.positions_per_column);
  if (at >= details_.columns.size()) return;
  ColumnDetails& column = details_.columns[at];
  column.compared = true;
  column.kl = std::max(column.kl, row.kl);
  column.max_abs = std::max(column.max_abs, row.max_abs);
  column.top1 = column.top1 && top1;
}

// If a position has several rows, the worst row is kept.
void DetailCollector::keep_row(PositionDetails row, Row got, Row want) {
  std::vector<PositionDetails>&first = details_.first, &worst = details_.worst;
  const auto same = [&](const PositionDetails& other) { return other.position == row.position; };
  const auto in_first = std::ranges::find_if(first, same);
  const auto in_worst = std::ranges::find_if(worst, same);
  const bool is_first = row.position < static_cast<int64_t>(kKeptRows) &&
                        (in_first == first.end() || in_first->kl < row.kl);
  const bool is_worst = row.kl > 0 && (in_worst != worst.end()
                                           ? in_worst->kl < row.kl
                                           : worst.size() < kKeptRows || worst.back().kl < row.kl);
  if (!is_first && !is_worst) return;
  row.top = candidates(got, want, row.finite);
  if (is_first) {
    if (in_first != first.end()) first.erase(in_first);
    first.push_back(row);
    std::ranges::sort(first, {}, &PositionDetails::position);
  }
  if (!is_worst) return;
  if (in_worst != worst.end()) worst.erase(in_worst);
  worst.push_back(std::move(row));
  std::ranges::stable_sort(worst, std::ranges::greater(), &PositionDetails::kl);
  if (worst.size() > kKeptRows) worst.pop_back();
}

void DetailCollector::add_tensor(const ReferenceTensor& tensor, const Shape& shape, Row got,
                                 Row want) {
  if (tensor.is_encoded()) count_output(got, want);
  const bool has_rows = tensor.is_probe() || tensor.kind == ReferenceTensor::Kind::kState;
  if (has_rows) return add_rows(tensor.name, 0, shape[1], got, want);
  if (!tensor.is_kv_cache()) return add_whole(tensor.name, got, want);
  // The shape is [1, heads, T, dim].
  const auto width = static_cast<size_t>(shape[3]);
  for (int64_t t = 0; t < shape[2]; ++t) {
    for (int64_t h = 0; h < shape[1]; ++h) {
      const size_t at = static_cast<size_t>(h * shape[2] + t) * width;
      add_part(tensor.name, t, h * shape[3], got.subspan(at, width), want.subspan(at, width));
    }
  }
}

void DetailCollector::count_output(Row got, Row want) {
  details_.histogram = {.unit = details_.histogram.unit};
  for (size_t i = 0; i < want.size(); ++i) count_error(details_.histogram, got[i], want[i]);
}

void DetailCollector::add_logits(int64_t position, Row got, Row want) {
  add_part("logits", position, 0, got, want);
  PositionDetails row;
  row.position = position;
  row.token = position < std::ssize(tokens_) ? tokens_[static_cast<size_t>(position)] : 0;
  row.finite = is_finite(got);
  for (size_t i = 0; i < want.size(); ++i) {
    count_error(details_.histogram, got[i], want[i]);
    const double error = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    row.max_abs = std::max(row.max_abs, std::isfinite(error) ? error : kBeyondAnyBound);
  }
  row.kl = row.finite ? kl_divergence(got, want) : kBeyondAnyBound;
  if (!std::isfinite(row.kl)) row.kl = kBeyondAnyBound;
  add_column(position, row, row.finite && runner::argmax(got) == runner::argmax(want));
  keep_row(std::move(row), got, want);
}

void DetailCollector::close_way() {
  for (const auto& [name, sums] : open_) close_position(name, sums);
  open_.clear();
}

CaseDetails DetailCollector::take() {
  close_way();
  return std::move(details_);
}

}  // namespace ferry::proof
