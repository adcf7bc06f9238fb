#include "proof/weight_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "core/text.h"
#include "graph/recipe.h"
#include "proof/parity.h"
#include "proof/stored_weights.h"

namespace ferry::proof {
namespace {

SquaredError error_of(std::span<const float> values, std::span<const float> stored) {
  SquaredError sums;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i], error = double{stored[i]} - value;
    sums.signal += value * value;
    sums.noise += error * error;
  }
  sums.values = std::ssize(values);
  return sums;
}

// The scale of a group of zeros; no scale needs to be smaller.
constexpr double kLeastScale = 0x1p-23;

// Returns the largest sum of squared errors of values that are rounded to multiples of
// largest / last.
double most_noise(std::span<const float> values, double last) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(double{value}));
  const double half = std::max(largest / last, kLeastScale) / 2;
  return static_cast<double>(values.size()) * half * half;
}

double relative_error(const SquaredError& group) {
  if (group.noise == 0) return 0;
  return group.signal > 0 ? std::sqrt(group.noise / group.signal) : kBeyondAnyBound;
}

double last_code(const graph::QuantizationScheme& coding) { return coding.bits == 4 ? 7 : 127; }
// The factor allows for scales that are rounded to bf16.
constexpr double kCoarse = 1.02;

// The codes of a coding.
class CodeRange {
 public:
  explicit CodeRange(const graph::QuantizationScheme& coding)
      : last_(last_code(coding)), most_(kNearest) {
    // The official method chooses codes before it rounds the scale.
    if (coding.method == graph::ScaleMethod::kHqq && coding.scale_dtype == DType::kBF16) {
      most_ += (last_ + 1) * kBF16Rounding;
    }
  }
  // Whether no other code times `scale` is nearer to the value.
  bool is_nearest(double value, double stored, double scale) const {
    const double steps = (value - stored) / scale, code = stored / scale;
    if (steps > most_) return code > last_ - kNearest;
    return steps >= -most_ || code < -last_ - kNearest;
  }

 private:
  static constexpr double kNearest = 0.5 + 1e-4;  // quotients are f32 when codes are chosen
  static constexpr double kBF16Rounding = 1.0 / 256;
  double last_, most_;
};

}  // namespace

void SquaredError::add(const SquaredError& other) {
  signal += other.signal;
  noise += other.noise;
  values += other.values;
}

double SquaredError::sqnr_db() const {
  if (noise == 0) return kExactSqnrDb;
  if (signal == 0) return -kExactSqnrDb;
  return std::clamp(10 * std::log10(signal / noise), -kExactSqnrDb, kExactSqnrDb);
}

void QuantizationError::add_rows(const graph::QuantizationScheme& coding, int64_t first,
                                 int64_t columns, std::span<const float> values,
                                 std::span<const std::byte> codes,
                                 std::span<const std::byte> scales) {
  std::vector<float> stored(values.size());
  graph::dequantize_rows(coding, codes, scales, columns, stored);
  const int64_t groups = coding.groups(columns);
  const auto size = static_cast<size_t>(columns / groups);
  const auto scale_bytes = static_cast<size_t>(dtype_bytes(coding.scale_dtype));
  const CodeRange range(coding);
  for (size_t at = 0, index = 0; at < values.size(); at += size, ++index) {
    const std::span<const float> want = values.subspan(at, size);
    const std::span<const float> have = std::span<const float>(stored).subspan(at, size);
    const int64_t row = first + static_cast<int64_t>(index) / groups;
    const int64_t group = static_cast<int64_t>(index) % groups;
    const SquaredError part = error_of(want, have);
    sums.add(part);
    const double relative = relative_error(part);
    if (relative > worst.relative) worst = {row, group, relative};
    if (part.noise > kCoarse * most_noise(want, last_code(coding)) && coarse++ == 0) {
      coarse_row = row;
      coarse_group = group;
    }
    float scale = 0;
    to_f32(coding.scale_dtype, scales.data() + index * scale_bytes, &scale, 1);
    for (size_t i = 0; i < size; ++i) {
      if (range.is_nearest(want[i], have[i], scale) || misplaced++ > 0) continue;
      misplaced_row = row;
      misplaced_column = group * static_cast<int64_t>(size) + static_cast<int64_t>(i);
    }
  }
}

int64_t layer_of(const std::string& weight) {
  constexpr std::string_view kLayers = "layers.";
  if (!weight.starts_with(kLayers)) return -1;
  int64_t layer = -1;
  const char* end = weight.data() + weight.size();
  const auto [rest, error] = std::from_chars(weight.data() + kLayers.size(), end, layer);
  return error == std::errc() && rest != end && *rest == '.' ? layer : -1;
}

std::map<int64_t, SquaredError> by_layer(const std::vector<QuantizationError>& errors) {
  std::map<int64_t, SquaredError> layers;
  for (const QuantizationError& error : errors) layers[error.layer].add(error.sums);
  return layers;
}

namespace {

// Returns the source keys of a weight, such as "'a.weight' and 2 more".
std::string keys_of(const graph::Recipe& recipe, const TensorSource& source) {
  const std::vector<size_t> entries = stored_entries_of(recipe, source);
  if (entries.empty()) return "no source";
  std::string text = quoted(source.entries()[entries[0]].name);
  if (entries.size() > 1) text += fmt::format(" and {} more", entries.size() - 1);
  return text;
}

// Returns the first byte that differs; nullopt if all are equal.
Result<std::optional<uint64_t>> first_different_weight(const graph::Recipe& recipe,
                                                       const TensorSource& source,
                                                       std::span<const std::byte> stored) {
  const uint64_t tile_size = graph::tile_bytes(recipe);
  std::vector<std::byte> tile(std::min<uint64_t>(tile_size, stored.size()));
  for (uint64_t at = 0; at < stored.size(); at += tile_size) {
    const std::span<const std::byte> have =
        stored.subspan(at, std::min<uint64_t>(tile_size, stored.size() - at));
    const std::span<std::byte> want = std::span(tile).first(have.size());
    FERRY_RETURN_IF_ERROR(graph::materialize(recipe, source, at, want));
    const auto differs = std::ranges::mismatch(have, want).in1;
    if (differs != have.end()) return at + static_cast<uint64_t>(differs - have.begin());
  }
  return std::nullopt;
}

using WeightMap = std::map<std::string, const graph::Weight*>;

// Compares one weight of the bundle with the weight that its recipe makes.
class WeightComparison {
 public:
  WeightComparison(const packer::Bundle& bundle, const packer::ManifestTensor& tensor,
                   const packer::ManifestTensor* scales, const TensorSource& source)
      : bundle_(bundle), tensor_(tensor), scales_(scales), source_(source) {}

  // Returns a description of the difference; empty if there is none. Sets error() for codes.
  Result<std::string> run(const WeightMap& weights) {
    const auto found = weights.find(tensor_.name);
    if (found == weights.end()) {
      return fmt::format("{}: the checkpoint's model has no such weight", quoted(tensor_.name));
    }
    recipe_ = found->second->recipe;
    keys_ = keys_of(recipe_, source_);
    const bool coded = tensor_.dtype == DType::kI4 || tensor_.dtype == DType::kI8;
    if (coded != recipe_.is_coded()) {
      return fmt::format("{}: {} in the bundle, {} from {}", quoted(tensor_.name),
                         coded ? "quantised" : "not quantised",
                         coded ? "not quantised" : "quantised", keys_);
    }
    return coded ? compare_codes() : compare_values();
  }
  std::optional<QuantizationError> error() && { return std::move(error_); }

 private:
  std::span<const std::byte> bytes_of(const packer::ManifestTensor& tensor) const {
    return bundle_.data().at(tensor.file).file.bytes().subspan(tensor.offset, tensor.bytes);
  }

  std::string misfit(const packer::ManifestTensor& tensor, const graph::RecipeOutput& made) const {
    return fmt::format("{}: {} {} in the bundle, {} {} from {}", quoted(tensor.name),
                       dtype_name(tensor.dtype), to_string(tensor.shape), dtype_name(made.dtype),
                       to_string(made.shape), keys_);
  }
  static bool fits(const packer::ManifestTensor& tensor, const graph::RecipeOutput& made) {
    return tensor.dtype == made.dtype && tensor.shape == made.shape && tensor.bytes == made.bytes();
  }

  Result<std::string> compare_values() {
    recipe_.cast(tensor_.dtype);
    if (!fits(tensor_, recipe_.output())) return misfit(tensor_, recipe_.output());
    const auto at = FERRY_TRY(first_different_weight(recipe_, source_, bytes_of(tensor_)));
    if (!at) return std::string();
    return fmt::format("{}: differs from {} at byte {} of {}", quoted(tensor_.name), keys_, *at,
                       tensor_.bytes);
  }

  Result<std::string> compare_codes() {
    if (!fits(tensor_, recipe_.outputs[0])) return misfit(tensor_, recipe_.outputs[0]);
    if (scales_ == nullptr || !fits(*scales_, recipe_.outputs[1])) {
      return scales_ == nullptr ? fmt::format("{}: has no scales", quoted(tensor_.name))
                                : misfit(*scales_, recipe_.outputs[1]);
    }
    error_.emplace();
    error_->name = tensor_.name;
    error_->scheme = graph::step_name(recipe_.steps.back());
    error_->layer = layer_of(tensor_.name);
    std::string different;
    const int64_t rows = row_count(recipe_), step = std::min(tile_rows(recipe_), rows);
    for (int64_t first = 0; first < rows; first += step) {
      std::string found = FERRY_TRY(compare_rows(first, std::min(step, rows - first)));
      if (different.empty()) different = std::move(found);
    }
    return different.empty() ? wrong_choices() : different;
  }

  // The codes and scales equal those of the recipe. This function tells whether they are right.
  // Codes that are calibrated, here or by whoever made the checkpoint, are the best for the
  // outputs, and need not be the nearest.
  std::string wrong_choices() const {
    const graph::ScaleMethod method = coding_of(recipe_).method;
    if (method == graph::ScaleMethod::kCalibrated || method == graph::ScaleMethod::kKept) return {};
    return error_->misplaced > 0 ? misplaced_codes() : coarse_groups();
  }

  std::string misplaced_codes() const {
    return fmt::format(
        "{}: {} of {} codes are not the nearest to the values of {}, first in row {}, "
        "column {}",
        quoted(tensor_.name), error_->misplaced, error_->sums.values, keys_, error_->misplaced_row,
        error_->misplaced_column);
  }

  std::string coarse_groups() const {
    if (error_->coarse == 0) return {};
    return fmt::format(
        "{}: {} scales lose more of the values of {} than plain rounding would, first in row {}, "
        "group {}",
        quoted(tensor_.name), error_->coarse, keys_, error_->coarse_row, error_->coarse_group);
  }

  // Compares codes and scales of rows that are made at once, and measures their distance from the
  // values.
  Result<std::string> compare_rows(int64_t first, int64_t rows) {
    const std::span<const std::byte> have[] = {part(tensor_, 0, first, rows),
                                               part(*scales_, 1, first, rows)};
    std::vector<std::byte> codes(have[0].size()), scales(have[1].size());
    const std::span<std::byte> made[] = {codes, scales};
    FERRY_RETURN_IF_ERROR(graph::materialize_rows(recipe_, source_, first, rows, made));
    FERRY_RETURN_IF_ERROR(measure(first, rows, have[0], have[1]));
    for (const size_t output : {size_t{0}, size_t{1}}) {
      const auto differs = std::ranges::mismatch(have[output], made[output]).in1;
      if (differs == have[output].end()) continue;
      const auto byte = static_cast<uint64_t>(differs - have[output].begin());
      const packer::ManifestTensor& tensor = output == 0 ? tensor_ : *scales_;
      return fmt::format(
          "{}: differs from what {} gives in row {}, at byte {} of {}", quoted(tensor.name), keys_,
          first + static_cast<int64_t>(byte / row_bytes(recipe_, output)),
          static_cast<uint64_t>(first) * row_bytes(recipe_, output) + byte, tensor.bytes);
    }
    return std::string();
  }

  std::span<const std::byte> part(const packer::ManifestTensor& tensor, size_t output,
                                  int64_t first, int64_t rows) const {
    const uint64_t bytes = row_bytes(recipe_, output);
    return bytes_of(tensor).subspan(static_cast<uint64_t>(first) * bytes,
                                    static_cast<uint64_t>(rows) * bytes);
  }

  Status measure(int64_t first, int64_t rows, std::span<const std::byte> codes,
                 std::span<const std::byte> scales) {
    const int64_t columns = tensor_.shape.back();
    const graph::Recipe values_recipe = values_of(recipe_);
    std::vector<float> values(static_cast<size_t>(rows * columns));
    FERRY_RETURN_IF_ERROR(graph::materialize(values_recipe, source_,
                                             static_cast<uint64_t>(first * columns) * sizeof(float),
                                             std::as_writable_bytes(std::span(values))));
    error_->add_rows(coding_of(recipe_), first, columns, values, codes, scales);
    return {};
  }

  // Returns the recipe of the values that codes are made of.
  static graph::Recipe values_of(const graph::Recipe& recipe) {
    graph::Recipe values = recipe;
    const bool split = values.steps.back().kind == graph::Step::Kind::kSplitQ80;
    values.steps.pop_back();
    if (split) values.steps.push_back({.kind = graph::Step::Kind::kDecode});
    values.outputs.resize(1);
    values.cast(DType::kF32);
    return values;
  }

  const packer::Bundle& bundle_;
  const packer::ManifestTensor& tensor_;
  const packer::ManifestTensor* scales_;
  const TensorSource& source_;
  graph::Recipe recipe_;
  std::string keys_;
  std::optional<QuantizationError> error_;
};

struct ComparedWeight {
  Result<std::string> different = std::string();
  std::optional<QuantizationError> error;
};

// A tensor of the manifest that is not scales of another one, with its scales if it has any.
struct StoredTensor {
  const packer::ManifestTensor* tensor = nullptr;
  const packer::ManifestTensor* scales = nullptr;
};
std::vector<StoredTensor> manifest_tensors(const packer::Manifest& manifest) {
  std::map<std::string, const packer::ManifestTensor*> scales;
  for (const packer::ManifestTensor& tensor : manifest.tensors) {
    if (!tensor.output.empty()) scales.emplace(tensor.name, &tensor);
  }
  std::vector<StoredTensor> stored;
  for (const packer::ManifestTensor& tensor : manifest.tensors) {
    if (!tensor.output.empty()) continue;
    const auto its = scales.find(tensor.name + "." + std::string(graph::kScalesOutput));
    stored.push_back({&tensor, its == scales.end() ? nullptr : its->second});
  }
  return stored;
}

}  // namespace

Result<WeightProof> prove_weights(ThreadPool& pool, const packer::Bundle& bundle,
                                  const plan::Conversion& conversion, const Progress& progress) {
  const std::vector<StoredTensor> tensors = manifest_tensors(bundle.manifest());
  const WeightMap weights = weights_of(conversion);
  std::vector<ComparedWeight> results(tensors.size());
  uint64_t total = 0;
  for (const StoredTensor& stored : tensors) total += stored.tensor->bytes;
  SharedProgress shared(progress, total);
  pool.parallel_for(tensors.size(), [&](size_t i) {
    WeightComparison comparison(bundle, *tensors[i].tensor, tensors[i].scales,
                                *conversion.mapped.source);
    results[i].different = comparison.run(weights);
    results[i].error = std::move(comparison).error();
    shared.advance(tensors[i].tensor->bytes);
  });
  WeightProof proof;
  std::set<std::string> stored;
  std::set<std::pair<std::string, uint64_t>> segments;  // tied weights share a segment
  const auto count = [&](const packer::ManifestTensor& tensor) {
    proof.tensors += 1;
    proof.bytes += segments.emplace(tensor.file, tensor.offset).second ? tensor.bytes : 0;
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::string line = FERRY_TRY(std::move(results[i].different));
    if (!line.empty()) proof.different.push_back(std::move(line));
    if (results[i].error) proof.errors.push_back(std::move(*results[i].error));
    count(*tensors[i].tensor);
    if (tensors[i].scales != nullptr) count(*tensors[i].scales);
    stored.insert(tensors[i].tensor->name);
  }
  for (const auto& [name, weight] : weights) {
    if (stored.contains(name)) continue;
    proof.different.push_back(fmt::format("{}: made by {}, but not in the bundle", quoted(name),
                                          keys_of(weight->recipe, *conversion.mapped.source)));
  }
  FERRY_RETURN_IF_ERROR(conversion.mapped.source->check_unchanged());
  return proof;
}

}  // namespace ferry::proof
