#include "proof/matched_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/text.h"
#include "graph/recipe.h"
#include "proof/matched_vectors.h"
#include "proof/weight_proof.h"
#include "proof/weight_rows.h"

namespace ferry::proof {
namespace {

// A code is the nearest if it is within half a step. Quotients are f32 when codes are chosen.
constexpr double kHalfStep = 0.5 + 1e-4;
// Some quantisers choose codes before they round the scale to bf16.
constexpr double kScaleRounding = 1.0 / 256;
// Codes that are chosen for the least error of outputs are often not the nearest. A damaged weight
// has few of these.
constexpr double kChosenOtherwise = 0.05;
// A group loses no more than plain rounding does; the factor allows for scales in bf16.
constexpr double kCoarseGroup = 1.02;
constexpr double kSmallestScale = 0x1p-23;
// Rows that are looked at before a weight is compared with a matrix.
constexpr int64_t kSampledRows = 8;
// Noise of a row of codes is below half of its signal; another row's is above.
constexpr double kAlike = 0.5;

bool is_table(const std::string& weight) { return weight.ends_with("embeddings.weight"); }

// How the values of one weight differ from those of a matrix.
struct Comparison {
  int64_t values = 0, wrong = 0, coarse = 0;
  std::string first;  // the first difference, in words

  void add(Comparison other) {
    values += other.values;
    wrong += other.wrong;
    coarse += other.coarse;
    if (first.empty()) first = std::move(other.first);
  }
};

class ValueCheck {
 public:
  ValueCheck(const ProgramMatrix& matrix, const MatchedPlace& place)
      : matrix_(matrix), place_(place), last_(last_code(matrix)) {
    most_ = kHalfStep;
    if (matrix.scale_dtype != DType::kF32) most_ += (last_ + 1) * kScaleRounding;
  }

  void add(int64_t row, std::span<const float> want) {
    const int64_t at = place_.row_of(row);
    have_.resize(want.size());
    matrix_.read_row(at, have_);
    out.values += std::ssize(want);
    if (matrix_.is_coded()) return add_codes(row, at, want);
    stored_.resize(want.size() * static_cast<size_t>(dtype_bytes(matrix_.dtype)));
    rounded_.resize(want.size());
    from_f32(matrix_.dtype, want.data(), stored_.data(), want.size());
    to_f32(matrix_.dtype, stored_.data(), rounded_.data(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      if (have_[i] == rounded_[i]) continue;
      if (out.wrong++ == 0) describe(row, i, want[i]);
    }
  }

  Comparison out;

 private:
  static double last_code(const ProgramMatrix& matrix) {
    const auto [least, greatest] = matrix.code_range();
    return (greatest - least - 1) / 2.0;
  }

  void describe(int64_t row, size_t column, float want) {
    out.first =
        fmt::format("row {}, column {}: {:.6g} for {:.6g}", row, column, have_[column], want);
  }

  void add_codes(int64_t row, int64_t at, std::span<const float> want) {
    const auto [least, greatest] = matrix_.code_range();
    const auto size = want.size() / static_cast<size_t>(matrix_.groups);
    for (size_t begin = 0, group = 0; begin < want.size(); begin += size, ++group) {
      const double scale = matrix_.scale(at, static_cast<int64_t>(group));
      const double zero = matrix_.zero_point(at, static_cast<int64_t>(group));
      // Values beyond the codes at both ends have no nearer one. Half a code allows for rounding.
      const double low = (least + 0.5 - zero) * scale, high = (greatest - 0.5 - zero) * scale;
      double noise = 0, largest = 0;
      for (size_t i = begin; i < begin + size; ++i) {
        const double error = double{want[i]} - have_[i];
        noise += error * error;
        largest = std::max(largest, std::fabs(double{want[i]}));
        const bool beyond = error > 0 ? have_[i] >= high : have_[i] <= low;
        if (std::fabs(error) <= most_ * scale || beyond) continue;
        if (out.wrong++ == 0) {
          describe(row, i, want[i]);
          out.first += fmt::format(", step {:.3g}", scale);
        }
      }
      const double half = std::max(largest / last_, kSmallestScale) / 2;
      if (noise > kCoarseGroup * static_cast<double>(size) * half * half) count_coarse(row, group);
    }
  }

  void count_coarse(int64_t row, size_t group) {
    if (out.coarse++ > 0 || !out.first.empty()) return;
    out.first =
        fmt::format("row {}, group {}: its scale loses more than plain rounding would", row, group);
  }

  const ProgramMatrix& matrix_;
  const MatchedPlace& place_;
  double last_, most_ = 0;
  std::vector<float> have_, rounded_;
  std::vector<std::byte> stored_;
};

}  // namespace

int64_t MatchedPlace::row_of(int64_t row) const { return first + order.place_of(row - begin); }

class WeightMatcher {
 public:
  WeightMatcher(const plan::Conversion& layers, MatchedWeights& out)
      : layers_(layers), source_(*layers.mapped.source), out_(out), weights_(matrices_of(layers)) {}

  Status run(ThreadPool& pool, const Progress& progress) {
    out_.weights_ = weights_.size();
    for (const WeightRows& weight : weights_) FERRY_RETURN_IF_ERROR(match(weight));
    FERRY_RETURN_IF_ERROR(compare_values(pool, progress));
    find_strangers();
    check_order();
    return source_.check_unchanged();
  }

 private:
  const ProgramMatrix& matrix(size_t index) const { return out_.matrices_[index]; }
  // The matrix of a weight that was found, or the first of several.
  const ProgramMatrix& matrix_of(const WeightRows& weight) const {
    return matrix(out_.places_.at(weight.name).front().matrix);
  }

  // -- finding

  static std::vector<int64_t> sampled_rows(int64_t rows) {
    std::vector<int64_t> list;
    const int64_t step = std::max<int64_t>(1, rows / kSampledRows) | 1;
    for (int64_t i = 0; i < std::min(kSampledRows, rows); ++i)
      list.push_back((1 + i * step) % rows);
    return list;
  }

  // The values of a row of a matrix; those that were read are kept.
  const std::vector<float>& row_of(size_t index, int64_t row) {
    std::vector<float>& values = read_[{index, row}];
    if (values.empty()) {
      values.resize(static_cast<size_t>(matrix(index).columns));
      matrix(index).read_row(row, values);
    }
    return values;
  }

  static bool alike(const ProgramMatrix& matrix, std::span<const float> have,
                    std::span<const float> want) {
    double signal = 0, noise = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double error = double{want[i]} - have[i];
      signal += double{want[i]} * want[i];
      noise += error * error;
    }
    return noise <= (matrix.is_coded() ? kAlike : 1e-4) * signal;
  }

  // Returns how many of the sampled rows are alike.
  int64_t likeness(const MatchedPlace& place, const std::vector<int64_t>& rows,
                   const std::vector<std::vector<float>>& values) {
    int64_t count = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      count += alike(matrix(place.matrix), row_of(place.matrix, place.row_of(rows[i])), values[i]);
    }
    return count;
  }

  // The rows where a weight may begin in a matrix that joins weights of one layer.
  std::set<int64_t> beginnings(const WeightRows& weight, const ProgramMatrix& in) const {
    std::set<int64_t> list = {0};
    if (in.rows <= weight.rows) return list;
    list.insert(in.rows - weight.rows);
    const int64_t layer = layer_of(weight.name);
    for (const WeightRows& other : weights_) {
      if (other.columns != weight.columns || layer_of(other.name) != layer) continue;
      if (other.rows + weight.rows <= in.rows) list.insert(other.rows);
    }
    return list;
  }

  std::vector<MatchedPlace> candidates(const WeightRows& weight, size_t index) const {
    const ProgramMatrix& in = matrix(index);
    std::vector<MatchedPlace> list;
    if (in.columns != weight.columns || in.rows < weight.rows) return list;
    const std::vector<RowOrder> orders = orders_of(weight, layers_.mapped.config);
    for (const int64_t first : beginnings(weight, in)) {
      for (const RowOrder& order : orders) {
        list.push_back({.rows = weight.rows, .matrix = index, .first = first, .order = order});
      }
    }
    return list;
  }

  Status match(const WeightRows& weight) {
    const std::vector<int64_t> rows = sampled_rows(weight.rows);
    std::vector<std::vector<float>> values(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      values[i].resize(static_cast<size_t>(weight.columns));
      FERRY_RETURN_IF_ERROR(read_rows(weight, source_, rows[i], values[i]));
    }
    using Rank = std::tuple<int64_t, bool, bool>;  // likeness, used as the weight is, not yet taken
    std::optional<std::pair<Rank, MatchedPlace>> best;
    for (size_t index = 0; index < out_.matrices_.size(); ++index) {
      for (const MatchedPlace& place : candidates(weight, index)) {
        const int64_t alike = likeness(place, rows, values);
        if (2 * alike <= std::ssize(rows)) continue;
        const Rank rank = {alike, matrix(index).table == is_table(weight.name),
                           !taken_.contains({index, place.first})};
        if (!best || rank > best->first) best.emplace(rank, place);
      }
      // Programs read most weights in the model's order, so the best one is often found early.
      if (best && best->first == Rank(std::ssize(rows), true, true)) break;
    }
    if (!best) return match_parts(weight);
    take(weight, {best->second});
    return {};
  }

  void take(const WeightRows& weight, std::vector<MatchedPlace> places) {
    for (const MatchedPlace& place : places) taken_.insert({place.matrix, place.first});
    out_.coded_ += matrix(places.front().matrix).is_coded() ? 1 : 0;
    out_.places_.emplace(weight.name, std::move(places));
  }

  // Finds a weight that the program has split into matrices of fewer rows.
  Status match_parts(const WeightRows& weight) {
    std::vector<MatchedPlace> places;
    for (int64_t begin = 0; begin < weight.rows;) {
      const std::optional<MatchedPlace> part = FERRY_TRY(part_at(weight, begin));
      if (!part) return {};
      places.push_back(*part);
      begin += part->rows;
    }
    take(weight, std::move(places));
    return {};
  }

  // Returns the whole matrix that rows from `begin` on are like.
  Result<std::optional<MatchedPlace>> part_at(const WeightRows& weight, int64_t begin) {
    for (size_t index = 0; index < out_.matrices_.size(); ++index) {
      const ProgramMatrix& in = matrix(index);
      if (in.columns != weight.columns || in.rows > weight.rows - begin || is_taken(index))
        continue;
      const std::vector<int64_t> rows = sampled_rows(in.rows);
      std::vector<std::vector<float>> values(rows.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        values[i].resize(static_cast<size_t>(weight.columns));
        FERRY_RETURN_IF_ERROR(read_rows(weight, source_, begin + rows[i], values[i]));
      }
      const MatchedPlace place = {.rows = in.rows, .matrix = index};
      if (2 * likeness(place, rows, values) <= std::ssize(rows)) continue;
      MatchedPlace found = place;
      found.begin = begin;
      return std::optional(found);
    }
    return std::optional<MatchedPlace>();
  }

  // -- comparing

  Result<Comparison> compare(const WeightRows& weight) const {
    Comparison all;
    for (const MatchedPlace& place : out_.places_.at(weight.name)) {
      all.add(FERRY_TRY(compare(weight, place)));
    }
    return all;
  }

  Result<Comparison> compare(const WeightRows& weight, const MatchedPlace& place) const {
    ValueCheck check(matrix(place.matrix), place);
    const int64_t step = std::max<int64_t>(1, (int64_t{1} << 16) / weight.columns);
    const int64_t end = place.begin + place.rows;
    std::vector<float> values;
    for (int64_t first = place.begin; first < end; first += step) {
      const int64_t count = std::min(step, end - first);
      values.resize(static_cast<size_t>(count * weight.columns));
      FERRY_RETURN_IF_ERROR(read_rows(weight, source_, first, values));
      for (int64_t i = 0; i < count; ++i) {
        check.add(first + i, std::span(values).subspan(static_cast<size_t>(i * weight.columns),
                                                       static_cast<size_t>(weight.columns)));
      }
    }
    return std::move(check.out);
  }

  Status compare_values(ThreadPool& pool, const Progress& progress) {
    std::vector<const WeightRows*> found;
    uint64_t total = 0;
    for (const WeightRows& weight : weights_) {
      if (!out_.places_.contains(weight.name)) continue;
      found.push_back(&weight);
      total += static_cast<uint64_t>(weight.rows * weight.columns) * sizeof(float);
    }
    SharedProgress shared(progress, total);
    std::vector<Result<Comparison>> results(found.size(), Comparison{});
    pool.parallel_for(found.size(), [&](size_t i) {
      results[i] = compare(*found[i]);
      shared.advance(static_cast<uint64_t>(found[i]->rows * found[i]->columns) * sizeof(float));
    });
    uint64_t chosen = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const Comparison result = FERRY_TRY(std::move(results[i]));
      out_.values_ += static_cast<uint64_t>(result.values);
      out_.bytes_ += matrix_of(*found[i]).bytes_of(result.values);
      if (result.first.empty()) continue;
      const bool coded = matrix_of(*found[i]).is_coded();
      const auto values = static_cast<double>(result.values);
      if (coded && static_cast<double>(result.wrong) > kChosenOtherwise * values) chosen += 1;
      out_.different_.push_back(line_of(*found[i], result));
    }
    if (out_.coded_ == 0 || 2 * chosen < out_.coded_) return {};
    out_.undecided_ = fmt::format(
        "codes of {} of {} matrices are not those nearest to the checkpoint's values: they were "
        "chosen otherwise, or come of another checkpoint",
        chosen, out_.coded_);
    out_.different_.clear();
    return {};
  }

  std::string line_of(const WeightRows& weight, const Comparison& result) const {
    const ProgramMatrix& in = matrix_of(weight);
    const std::string what = result.wrong > 0
                                 ? fmt::format("{} of {} values differ by more than half a step",
                                               result.wrong, result.values)
                                 : fmt::format("{} groups lose too much", result.coarse);
    return fmt::format(
        "{} ({}): {}, first in {}", quoted(weight.name), in.place,
        in.is_coded() ? what : fmt::format("{} of {} values differ", result.wrong, result.values),
        result.first);
  }

  // -- what was not found

  bool is_taken(size_t index) const {
    const auto at = taken_.lower_bound({index, 0});
    return at != taken_.end() && at->first == index;
  }

  // Whether a weight that was not found has the size of this matrix.
  bool could_be_absent(const ProgramMatrix& in) const {
    return std::ranges::any_of(weights_, [&](const WeightRows& weight) {
      return weight.rows == in.rows && weight.columns == in.columns &&
             !out_.places_.contains(weight.name);
    });
  }

  // Matrices in codes or half precision that are like no weight: the program cannot be held to the
  // weights that it has.
  void find_strangers() {
    std::vector<std::string> strange;
    uint64_t all = 0;
    for (size_t i = 0; i < out_.matrices_.size(); ++i) {
      const ProgramMatrix& in = matrix(i);
      const bool rounded = in.is_coded() || in.dtype != DType::kF32;
      all += rounded ? 1 : 0;
      if (!rounded || is_taken(i) || (!in.is_coded() && !could_be_absent(in))) continue;
      strange.push_back(
          fmt::format("the matrix of {} x {} of {} is like no weight of the checkpoint", in.rows,
                      in.columns, in.place));
    }
    if (strange.empty()) return;
    if (2 * strange.size() < all) {
      out_.different_.insert(out_.different_.end(), strange.begin(), strange.end());
    } else if (out_.undecided_.empty()) {
      out_.undecided_ = fmt::format(
          "{} of {} matrices of the program are like no weight of the "
          "checkpoint",
          strange.size(), all);
    }
  }

  // Layers are executed one after the other, so weights of one kind are read in this order.
  void check_order() {
    std::map<std::string, std::map<int64_t, size_t>> kinds;
    for (const auto& [name, places] : out_.places_) {
      if (layer_of(name) < 0) continue;
      kinds[kind_of(name)].emplace(layer_of(name), places.front().matrix);
    }
    for (const auto& [kind, layers] : kinds) {
      for (auto next = layers.begin(), at = next; at != layers.end(); at = next) {
        if (++next == layers.end() || next->second >= at->second) continue;
        out_.different_.push_back(fmt::format("{} of layer {} is read before that of layer {} ({})",
                                              quoted(kind), next->first, at->first,
                                              matrix(next->second).place));
      }
    }
  }

  const plan::Conversion& layers_;
  const TensorSource& source_;
  MatchedWeights& out_;
  const std::vector<WeightRows> weights_;
  std::map<std::pair<size_t, int64_t>, std::vector<float>> read_;
  std::set<std::pair<size_t, int64_t>> taken_;  // matrix and first row
};

Result<MatchedWeights> MatchedWeights::find(const packer::Bundle& bundle,
                                            const plan::Conversion& layers, ThreadPool& pool,
                                            const Progress& progress) {
  MatchedWeights out;
  out.source_ = layers.mapped.source.get();
  ProgramConstants constants = FERRY_TRY(constants_of(bundle));
  out.matrices_ = std::move(constants.matrices);
  FERRY_RETURN_IF_ERROR(WeightMatcher(layers, out).run(pool, progress));
  out.vectors_ = FERRY_TRY(match_vectors(constants.vectors, layers));
  if (!out.undecided_.empty()) return out;
  out.different_.insert(out.different_.end(), out.vectors_.different.begin(),
                        out.vectors_.different.end());
  return out;
}

ReadWeight MatchedWeights::reader() const {
  return [this](const graph::Weight& weight, uint64_t offset, std::span<std::byte> out) -> Status {
    const auto found = places_.find(weight.name);
    if (found == places_.end()) return graph::materialize(weight.recipe, *source_, offset, out);
    const std::vector<MatchedPlace>& places = found->second;
    std::vector<float> row(static_cast<size_t>(matrices_[places.front().matrix].columns));
    const uint64_t row_bytes = row.size() * sizeof(float);
    while (!out.empty()) {
      const auto index = static_cast<int64_t>(offset / row_bytes);
      const uint64_t skip = offset % row_bytes;
      const uint64_t count = std::min<uint64_t>(row_bytes - skip, out.size());
      const auto place = std::ranges::find_if(
          places, [&](const MatchedPlace& part) { return index < part.begin + part.rows; });
      matrices_[place->matrix].read_row(place->row_of(index), row);
      std::ranges::copy(std::as_bytes(std::span(row)).subspan(skip, count), out.begin());
      out = out.subspan(count);
      offset += count;
    }
    return {};
  };
}

}  // namespace ferry::proof
