// Computes the rows of recipes whose outputs are codes and scales, or blocks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>

#include "core/checked.h"
#include "core/dtype.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "graph/quantization/block_encoder.h"
#include "graph/quantization/groups.h"
#include "graph/recipe.h"

namespace ferry::graph {
namespace {

// This many values are quantised at a time. They stay in the cache of one core.
constexpr int64_t kGroupValues = int64_t{1} << 16;
// This many bytes are read, hashed and written at a time, from the cache of one core.
constexpr uint64_t kTileBytes = uint64_t{1} << 18;
// A tile has this many coded values. Its source has as many values.
constexpr int64_t kCodedTileValues = int64_t{1} << 17;
constexpr int64_t kScatteredTileElements = int64_t{1} << 20;

constexpr int64_t kQ80Elements = kStoredBlockValues, kQ80Bytes = kQ8_0BlockBytes;

bool is_scattered(const Recipe& recipe) {
  return std::ranges::any_of(recipe.pieces, [](const StridedPiece& piece) {
    return !piece.axes.empty() && piece.axes.back().stride != 1;
  });
}

bool ends_with(const Recipe& recipe, Step::Kind kind) {
  return !recipe.steps.empty() && recipe.steps.back().kind == kind;
}
bool makes_blocks(const Recipe& recipe) {
  return ends_with(recipe, Step::Kind::kEncode) || ends_with(recipe, Step::Kind::kStored);
}

// Returns the values of a row, or the bytes of a row if blocks are taken as they are stored.
int64_t columns_of(const Recipe& recipe) {
  const int64_t last = recipe.output().shape.back();
  if (!ends_with(recipe, Step::Kind::kEncode)) return last;
  const BlockEncoder& encoder = *recipe.steps.back().encoder;
  return last / encoder.bytes * encoder.elements;
}

// Returns the rows of a matrix, or of a stack of matrices.
int64_t rows_of(const Shape& shape) {
  return checked_numel(std::span(shape).first(shape.size() - 1)).value_or(0);
}

// Returns the recipe of the f32 values that are quantised.
Recipe values_of(const Recipe& recipe) {
  Recipe values = recipe;
  values.steps.pop_back();
  values.outputs.resize(1);
  values.output().shape.back() = columns_of(recipe);
  values.cast(DType::kF32);
  return values;
}

const QuantizationScheme& scheme_of(const Recipe& recipe) { return recipe.steps.back().scheme; }

bool fits_rows(const Recipe& recipe) {
  const int64_t columns = columns_of(recipe);
  if (recipe.output().shape.size() < (makes_blocks(recipe) ? 1 : 2) || columns <= 0) return false;
  if (ends_with(recipe, Step::Kind::kEncode)) {
    return recipe.output().shape.back() % recipe.steps.back().encoder->bytes == 0;
  }
  if (ends_with(recipe, Step::Kind::kQuantize)) return scheme_of(recipe).misfit(columns).empty();
  const bool split = ends_with(recipe, Step::Kind::kSplitQ80);
  return recipe.steps.size() == 1 && (!split || columns % kQ80Elements == 0);
}

// An error is a defect of the code that made the recipe, or of the caller.
Status check_row_range(const Recipe& recipe, const TensorSource& source, int64_t first,
                       int64_t rows, std::span<const std::span<std::byte>> outs) {
  const auto broken = [&](std::string_view what) {
    return fail(ErrorCode::kInternal, fmt::format("{}: {}", printable(source.path()), what));
  };
  if (recipe.outputs.size() != (recipe.is_coded() && !makes_blocks(recipe) ? 2U : 1U) ||
      recipe.outputs.size() != outs.size()) {
    return broken("outputs that a recipe does not have");
  }
  if (first < 0 || rows < 0 || first > row_count(recipe) || rows > row_count(recipe) - first) {
    return broken("rows that are no part of the tensor");
  }
  if (recipe.is_coded()) {
    if (!fits_rows(recipe)) return broken("codes of rows that do not fit");
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    if (outs[i].size() == static_cast<uint64_t>(rows) * row_bytes(recipe, i)) continue;
    return broken("room for other rows than are asked for");
  }
  return {};
}

// Calls body(first, rows) for parts of the rows whose values are computed at once.
template <class Body>
Status for_each_group(const Recipe& recipe, int64_t first, int64_t rows, const Body& body) {
  const int64_t values = is_scattered(recipe) ? kScatteredTileElements : kGroupValues;
  const int64_t step = std::max<int64_t>(1, values / columns_of(recipe));
  for (const int64_t end = first + rows; first < end; first += step) {
    FERRY_RETURN_IF_ERROR(body(first, std::min(step, end - first)));
  }
  return {};
}

// Reads the f32 values of rows of `values`, a recipe of values_of().
class ValueReader {
 public:
  ValueReader(const Recipe& recipe, const TensorSource& source)
      : values_(values_of(recipe)), source_(source), columns_(columns_of(recipe)) {}

  Result<std::span<const float>> read(int64_t first, int64_t rows) {
    buffer_.resize(std::max(buffer_.size(), static_cast<size_t>(rows * columns_)));
    const auto part = std::span(buffer_).first(static_cast<size_t>(rows * columns_));
    const auto offset = static_cast<uint64_t>(first * columns_) * sizeof(float);
    FERRY_RETURN_IF_ERROR(materialize(values_, source_, offset, std::as_writable_bytes(part)));
    return std::span<const float>(part);
  }

 private:
  Recipe values_;
  const TensorSource& source_;
  int64_t columns_;
  std::vector<float> buffer_;
};

uint64_t non_finite_of(std::span<const float> values) {
  return count_non_finite(DType::kF32, std::as_bytes(values));
}

// Removes `bytes` bytes from the front of `out` and returns them.
std::span<std::byte> take(std::span<std::byte>& out, uint64_t bytes) {
  const std::span<std::byte> front = out.first(bytes);
  out = out.subspan(bytes);
  return front;
}

Result<uint64_t> quantize(const Recipe& recipe, const TensorSource& source, int64_t first,
                          int64_t rows, std::span<std::byte> codes, std::span<std::byte> scales) {
  const int64_t columns = columns_of(recipe);
  ValueReader reader(recipe, source);
  uint64_t non_finite = 0;
  FERRY_RETURN_IF_ERROR(
      for_each_group(recipe, first, rows, [&](int64_t at, int64_t count) -> Status {
        const std::span<const float> values = FERRY_TRY(reader.read(at, count));
        const auto n = static_cast<uint64_t>(count);
        non_finite +=
            quantize_rows(scheme_of(recipe), values, columns, take(codes, n * row_bytes(recipe, 0)),
                          take(scales, n * row_bytes(recipe, 1)));
        return {};
      }));
  return non_finite;
}

// Copies codes and scales that were chosen before.
Status copy_chosen(const Recipe& recipe, const TensorSource& source, int64_t first, int64_t rows,
                   std::span<std::byte> codes, std::span<std::byte> scales) {
  const ChosenCodes* chosen = recipe.steps.back().chosen.get();
  const auto copy = [&](const std::vector<std::byte>& from, size_t output,
                        std::span<std::byte> to) {
    const uint64_t bytes = row_bytes(recipe, output), count = static_cast<uint64_t>(rows) * bytes;
    if (from.size() != static_cast<uint64_t>(row_count(recipe)) * bytes) return false;
    std::copy_n(from.begin() + first * static_cast<int64_t>(bytes), count, to.begin());
    return true;
  };
  const bool has_codes = chosen != nullptr && copy(chosen->codes, 0, codes);
  if (has_codes && copy(chosen->scales, 1, scales)) return {};
  return fail(ErrorCode::kInternal,
              fmt::format("{}: calibrated codes that were not chosen", printable(source.path())));
}

// Gives a group whose scale is 0 the scale that groups of zeros have, because programs take
// positive scales only. Returns whether all other scales are positive and normal as they are
// stored.
bool settle_scales(const QuantizationScheme& scheme, std::span<int8_t> codes,
                   std::span<float> scales) {
  const size_t size = codes.size() / scales.size();
  bool positive = true;
  for (size_t g = 0; g < scales.size(); ++g) {
    if (scales[g] == 0) {
      std::ranges::fill(codes.subspan(g * size, size), int8_t{0});
      scales[g] = kZeroGroupScale;
    }
    const float stored =
        scheme.scale_dtype == DType::kBF16 ? bf16_to_f32(f32_to_bf16(scales[g])) : scales[g];
    positive = positive && std::isnormal(stored) && stored > 0;
  }
  return positive;
}

// Copies the codes and scales that the checkpoint has.
Status copy_kept(const Recipe& recipe, const TensorSource& source, int64_t first, int64_t rows,
                 std::span<std::byte> codes, std::span<std::byte> scales) {
  const QuantizationScheme& scheme = scheme_of(recipe);
  const int64_t columns = columns_of(recipe);
  const int64_t most = std::max<int64_t>(1, kGroupValues / columns);
  const StridedPiece wanted = run_piece(0, first * columns, rows * columns);
  std::vector<int8_t> read;
  std::vector<float> read_scales;
  const auto copy_rows = [&](size_t tensor, int64_t at, int64_t count) -> Status {
    read.resize(static_cast<size_t>(count * columns));
    read_scales.resize(static_cast<size_t>(count * scheme.groups(columns)));
    FERRY_RETURN_IF_ERROR(source.read_codes(tensor, at, read, read_scales));
    if (!settle_scales(scheme, read, read_scales)) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: {} has scales that are not positive and normal, which a program "
                      "cannot have: quantise it anew, with a rule such as {}=8da4w",
                      printable(source.path()), quoted(source_names(recipe, source)), "'*'"));
    }
    const auto n = static_cast<uint64_t>(count);
    store_codes(scheme, read, read_scales, take(codes, n * row_bytes(recipe, 0)),
                take(scales, n * row_bytes(recipe, 1)));
    return {};
  };
  Status status;
  for (const StridedPiece& piece : select(recipe.pieces, std::span(&wanted, 1))) {
    for_each_run(piece, [&](int64_t offset, int64_t count) {
      for (int64_t at = offset / columns, left = count / columns; status && left > 0;) {
        const int64_t part = std::min(most, left);
        status = copy_rows(piece.tensor, at, part);
        at += part;
        left -= part;
      }
    });
    if (!status) break;
  }
  return status;
}

Result<uint64_t> encode(const Recipe& recipe, const TensorSource& source, int64_t first,
                        int64_t rows, std::span<std::byte> out) {
  const BlockEncoder& encoder = *recipe.steps.back().encoder;
  const std::vector<float>* importance = recipe.steps.back().importance.get();
  const int64_t columns = columns_of(recipe);
  const int64_t matrices = importance == nullptr ? 1 : std::ssize(*importance) / columns;
  const int64_t matrix_rows = row_count(recipe) / matrices;
  ValueReader reader(recipe, source);
  uint64_t unencodable = 0;
  const auto encode_rows = [&](int64_t at, int64_t count) -> Status {
    const std::span<const float> values = FERRY_TRY(reader.read(at, count));
    const size_t blocks = values.size() / encoder.elements;
    const std::span<std::byte> made = take(out, blocks * encoder.bytes);
    BlockRows part = {.values = values.data(),
                      .rows = static_cast<size_t>(count),
                      .columns = static_cast<size_t>(columns)};
    if (importance != nullptr) part.importance = importance->data() + at / matrix_rows * columns;
    encoder.encode(part, made.data());
    unencodable += count_unencodable(encoder, values.data(), blocks, made.data());
    return {};
  };
  FERRY_RETURN_IF_ERROR(
      for_each_group(recipe, first, rows, [&](int64_t at, int64_t count) -> Status {
        for (const int64_t end = at + count; at < end;) {
          const int64_t part = std::min(end, (at / matrix_rows + 1) * matrix_rows) - at;
          if (Status status = encode_rows(at, part); !status) return status;
          at += part;
        }
        return {};
      }));
  return unencodable;
}

// Copies blocks as they are stored. Rows of the recipe are rows of its tensors.
Status copy_blocks(const Recipe& recipe, const TensorSource& source, int64_t first, int64_t rows,
                   std::span<std::byte> out) {
  const BlockEncoding& stored = *source.entries()[recipe.pieces[0].tensor].encoding;
  const int64_t columns = columns_of(recipe) / stored.bytes * stored.elements;
  const StridedPiece wanted = run_piece(0, first * columns, rows * columns);
  Status status;
  for (const StridedPiece& piece : select(recipe.pieces, std::span(&wanted, 1))) {
    for_each_run(piece, [&](int64_t offset, int64_t count) {
      if (!status) return;
      const auto blocks = static_cast<uint64_t>(count / stored.elements);
      const auto at = static_cast<uint64_t>(offset / stored.elements) * stored.bytes;
      status = source.read(piece.tensor, at, take(out, blocks * stored.bytes));
    });
    if (!status) break;
  }
  return status;
}

Status split(const Recipe& recipe, const TensorSource& source, int64_t first, int64_t rows,
             std::span<std::byte> codes, std::span<std::byte> scales) {
  const int64_t columns = columns_of(recipe);
  const StridedPiece wanted = run_piece(0, first * columns, rows * columns);
  std::vector<std::byte> blocks;
  Status status;
  for (const StridedPiece& piece : select(recipe.pieces, std::span(&wanted, 1))) {
    for_each_run(piece, [&](int64_t offset, int64_t count) {
      for (int64_t part = 0; status && count > 0; offset += part, count -= part) {
        part = std::min(kGroupValues, count);
        blocks.resize(static_cast<size_t>(part / kQ80Elements * kQ80Bytes));
        const auto at = static_cast<uint64_t>(offset / kQ80Elements * kQ80Bytes);
        status = source.read(piece.tensor, at, blocks);
        const auto n = static_cast<uint64_t>(part);
        if (status) graph::split_q8_0(blocks, take(codes, n), take(scales, n / 8));
      }
    });
    if (!status) break;
  }
  return status;
}

}  // namespace

int64_t row_count(const Recipe& recipe) {
  const Shape& shape = recipe.output().shape;
  return recipe.is_coded() ? rows_of(shape) : checked_numel(shape).value_or(0);
}

uint64_t row_bytes(const Recipe& recipe, size_t output) {
  const RecipeOutput& made = recipe.outputs[output];
  if (!recipe.is_coded()) return static_cast<uint64_t>(dtype_bytes(made.dtype));
  const bool one_scale = made.shape.size() < recipe.output().shape.size();
  const int64_t columns = one_scale ? 1 : made.shape.back();
  return static_cast<uint64_t>(columns * dtype_bits(made.dtype) / 8);
}

int64_t tile_rows(const Recipe& recipe) {
  if (!recipe.is_coded() && is_scattered(recipe)) return kScatteredTileElements;
  const auto rows = static_cast<int64_t>(kTileBytes / row_bytes(recipe, 0));
  const int64_t most = recipe.is_coded() ? kCodedTileValues / columns_of(recipe) : rows;
  return std::max<int64_t>(1, std::min(rows, most));
}

uint64_t tile_bytes(const Recipe& recipe) {
  return static_cast<uint64_t>(tile_rows(recipe)) * row_bytes(recipe, 0);
}

Result<uint64_t> materialize_rows(const Recipe& recipe, const TensorSource& source, int64_t first,
                                  int64_t rows, std::span<const std::span<std::byte>> outs) {
  FERRY_RETURN_IF_ERROR(check_row_range(recipe, source, first, rows, outs));
  if (!recipe.is_coded()) {
    const uint64_t offset = static_cast<uint64_t>(first) * row_bytes(recipe, 0);
    FERRY_RETURN_IF_ERROR(materialize(recipe, source, offset, outs[0]));
    return uint64_t{0};
  }
  FERRY_RETURN_IF_ERROR(check_interrupt());
  if (recipe.steps.back().kind == Step::Kind::kQuantize) {
    if (scheme_of(recipe).method == ScaleMethod::kKept) {
      FERRY_RETURN_IF_ERROR(copy_kept(recipe, source, first, rows, outs[0], outs[1]));
      return uint64_t{0};
    }
    if (scheme_of(recipe).method == ScaleMethod::kCalibrated) {
      FERRY_RETURN_IF_ERROR(copy_chosen(recipe, source, first, rows, outs[0], outs[1]));
      return uint64_t{0};
    }
    return quantize(recipe, source, first, rows, outs[0], outs[1]);
  }
  if (recipe.steps.back().kind == Step::Kind::kEncode) {
    return encode(recipe, source, first, rows, outs[0]);
  }
  if (recipe.steps.back().kind == Step::Kind::kStored) {
    FERRY_RETURN_IF_ERROR(copy_blocks(recipe, source, first, rows, outs[0]));
  } else {
    FERRY_RETURN_IF_ERROR(split(recipe, source, first, rows, outs[0], outs[1]));
  }
  return uint64_t{0};
}

Result<uint64_t> count_non_finite_rows(const Recipe& recipe, const TensorSource& source,
                                       int64_t first, int64_t rows) {
  uint64_t count = 0;
  ValueReader reader(recipe, source);
  FERRY_RETURN_IF_ERROR(for_each_group(recipe, first, rows, [&](int64_t at, int64_t n) -> Status {
    count += non_finite_of(FERRY_TRY(reader.read(at, n)));
    return {};
  }));
  return count;
}

Status materialize(const Recipe& recipe, const TensorSource& source, size_t output, uint64_t offset,
                   std::span<std::byte> out) {
  if (!recipe.is_coded() && output == 0) return materialize(recipe, source, offset, out);
  if (output >= recipe.outputs.size() ||
      !range_inside(offset, out.size(), recipe.outputs[output].bytes())) {
    return fail(ErrorCode::kInternal,
                fmt::format("{}: a tile that is no part of the tensor", printable(source.path())));
  }
  if (out.empty()) return {};
  const uint64_t bytes = row_bytes(recipe, output);
  const uint64_t end = (offset + out.size() + bytes - 1) / bytes;
  std::vector<std::vector<std::byte>> made(recipe.outputs.size());
  return for_each_group(
      recipe, static_cast<int64_t>(offset / bytes), static_cast<int64_t>(end - offset / bytes),
      [&](int64_t first, int64_t rows) -> Status {
        std::vector<std::span<std::byte>> outs;
        for (size_t i = 0; i < made.size(); ++i) {
          made[i].resize(static_cast<uint64_t>(rows) * row_bytes(recipe, i));
          outs.emplace_back(made[i]);
        }
        FERRY_RETURN_IF_ERROR(materialize_rows(recipe, source, first, rows, outs));
        const uint64_t begin = static_cast<uint64_t>(first) * bytes;
        const uint64_t skip = offset > begin ? offset - begin : 0;
        const std::span<const std::byte> part = std::span(made[output]).subspan(skip);
        const auto to = out.subspan(begin + skip - offset);
        std::copy_n(part.begin(), std::min(part.size(), to.size()), to.begin());
        return {};
      });
}

Result<int> count_hqq_rounds(const Recipe& recipe, const TensorSource& source, ThreadPool& pool) {
  std::array<float, kMaxHqqRounds> changes = {};
  uint64_t non_finite = 0;
  std::optional<Error> error;
  std::mutex mutex;  // guards the variables above
  std::atomic<bool> stop{false};
  const int64_t rows = row_count(recipe), tile = tile_rows(recipe);
  pool.parallel_for(static_cast<size_t>((rows + tile - 1) / tile), [&](size_t i) {
    if (stop) return;
    std::array<float, kMaxHqqRounds> part = {};
    uint64_t found = 0;
    const int64_t first = static_cast<int64_t>(i) * tile;
    ValueReader reader(recipe, source);
    Status status = for_each_group(
        recipe, first, std::min(tile, rows - first), [&](int64_t at, int64_t count) -> Status {
          const std::span<const float> values = FERRY_TRY(reader.read(at, count));
          found += non_finite_of(values);
          add_hqq_changes(scheme_of(recipe), values, columns_of(recipe), part);
          return {};
        });
    const std::lock_guard lock(mutex);
    non_finite += found;
    for (size_t k = 0; k < part.size(); ++k) changes[k] = std::max(changes[k], part[k]);
    if (status) return;
    if (!error) error = std::move(status).error();
    stop = true;
  });
  if (error) return Failure(std::move(*error));
  if (non_finite == 0) return hqq_rounds(changes);
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: NaN and infinity cannot be quantised: {} value{} (tensor {})",
                          printable(source.path()), non_finite, non_finite == 1 ? "" : "s",
                          quoted(source_names(recipe, source))));
}

}  // namespace ferry::graph
