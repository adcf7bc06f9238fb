// How recipes get outputs that are codes and scales, or blocks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/checked.h"
#include "core/text.h"
#include "graph/quantization/block_encoder.h"
#include "graph/recipe.h"

namespace ferry::graph {
namespace {

constexpr int64_t kQ80Elements = kStoredBlockValues;

// Returns codes in the shape of the matrix, and `groups` scales for each row.
std::vector<RecipeOutput> coded_outputs(const Shape& shape, DType codes, DType scales,
                                        int64_t groups) {
  Shape scale_shape(shape.begin(), shape.end() - 1);
  if (groups > 1) scale_shape.push_back(groups);
  return {{.dtype = codes, .shape = shape},
          {.name = std::string(kScalesOutput), .dtype = scales, .shape = std::move(scale_shape)}};
}

Failure cannot(const std::string& key, const Shape& shape, std::string_view what) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("weight {} {} cannot have {}", quoted(key), to_string(shape), what));
}

// Returns whether the steps only decode, and round the decoded values.
bool are_decoded(std::span<const Step> steps) {
  const bool rounded = !steps.empty() && steps.back().kind == Step::Kind::kCast;
  return steps.size() == (rounded ? 2 : 1) && steps.front().kind == Step::Kind::kDecode;
}

// Returns whether the pieces are whole rows of `columns` elements.
bool is_of_rows(const std::vector<StridedPiece>& pieces, int64_t columns) {
  const auto is_whole = [&](int64_t elements) { return elements % columns == 0; };
  return std::ranges::all_of(pieces, [&](const StridedPiece& piece) {
    bool fits = is_whole(piece.offset) && !piece.axes.empty() && piece.axes.back().stride == 1 &&
                is_whole(piece.axes.back().size);
    for (size_t i = 0; fits && i + 1 < piece.axes.size(); ++i) {
      fits = is_whole(piece.axes[i].stride);
    }
    return fits;
  });
}

}  // namespace

bool Recipe::is_coded() const {
  using Kind = Step::Kind;
  constexpr std::array kLast = {Kind::kQuantize, Kind::kSplitQ80, Kind::kEncode, Kind::kStored};
  return !steps.empty() && std::ranges::count(kLast, steps.back().kind) > 0;
}

Status Recipe::quantize(const QuantizationScheme& scheme, const std::string& key) {
  const Shape shape = output().shape;
  if (shape.size() < 2) return cannot(key, shape, "rows of codes: it is not a matrix");
  if (shape.back() <= 0) return cannot(key, shape, "rows of codes: its rows are empty");
  if (!is_castable(source_dtype) || is_coded()) {
    return cannot(key, shape, fmt::format("codes of {}", dtype_name(output().dtype)));
  }
  if (const std::string what = scheme.misfit(shape.back()); !what.empty()) {
    return cannot(key, shape, what);
  }
  cast(DType::kF32);
  if (!steps.empty() && steps.back().kind == Step::Kind::kCast) steps.pop_back();
  steps.push_back({.kind = Step::Kind::kQuantize, .scheme = scheme});
  // Settings without an effect are reset, so that equal recipes compare equal.
  QuantizationScheme& kept = steps.back().scheme;
  if (scheme.bits == 8) kept.order = QuantizationScheme().order;
  if (scheme.method != ScaleMethod::kHqq) kept.rounds = QuantizationScheme().rounds;
  outputs = coded_outputs(shape, scheme.bits == 4 ? DType::kI4 : DType::kI8, scheme.scale_dtype,
                          scheme.groups(shape.back()));
  return {};
}

Result<std::optional<StoredCodes>> Recipe::stored_codes(const TensorSource& source) const {
  const std::optional<StoredCodes> none;
  const Shape& shape = output().shape;
  const bool only_cast = std::ranges::all_of(steps, [](const Step& step) {
    return step.kind == Step::Kind::kCast || step.kind == Step::Kind::kDecode;
  });
  if (!only_cast || pieces.empty() || shape.size() < 2 || shape.back() <= 0) return none;
  const int64_t columns = shape.back();
  if (!is_of_rows(pieces, columns)) return none;
  std::optional<StoredCodes> common;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0 && pieces[i].tensor == pieces[i - 1].tensor) continue;
    const Shape& stored = source.entries()[pieces[i].tensor].shape;
    if (stored.size() != 2 || stored.back() != columns) return none;
    const auto codes = FERRY_TRY(source.codes(pieces[i].tensor));
    if (!codes || (common && common != codes)) return none;
    common = codes;
  }
  return common;
}

Status Recipe::keep_codes(const QuantizationScheme& scheme, const std::string& key) {
  QuantizationScheme kept = scheme;
  kept.method = ScaleMethod::kKept;
  return quantize(kept, key);
}

Status Recipe::split_q8_0(const TensorSource& source, const std::string& key) {
  const Shape shape = output().shape;
  const int64_t columns = shape.size() < 2 ? 0 : shape.back();
  const bool plain = steps == std::vector<Step>{{.kind = Step::Kind::kDecode}};
  bool fits = plain && output().dtype == DType::kF32 && columns > 0 &&
              columns % kQ80Elements == 0 && is_of_rows(pieces, columns);
  for (const StridedPiece& piece : pieces) {
    if (!fits) break;
    const BlockEncoding* encoding = source.entries()[piece.tensor].encoding;
    fits = encoding != nullptr && encoding->name == "q8_0";
  }
  if (!fits) return cannot(key, shape, "the codes of the checkpoint: it is not rows of q8_0");
  steps = {{.kind = Step::Kind::kSplitQ80}};
  outputs = coded_outputs(shape, DType::kI8, DType::kF32, columns / kQ80Elements);
  return {};
}

Status Recipe::encode(const BlockEncoder& encoder, const std::string& key,
                      std::shared_ptr<const std::vector<float>> importance) {
  const Shape shape = output().shape;
  const int64_t columns = shape.empty() ? 0 : shape.back();
  if (!is_castable(source_dtype) || is_coded()) {
    return cannot(key, shape, fmt::format("blocks of {}", dtype_name(output().dtype)));
  }
  if (columns <= 0 || columns % encoder.elements != 0) {
    return cannot(key, shape,
                  fmt::format("blocks of {}: its rows are not multiples of {} elements",
                              encoder.name, encoder.elements));
  }
  cast(DType::kF32);
  if (!steps.empty() && steps.back().kind == Step::Kind::kCast) steps.pop_back();
  if (!encoder.takes_importance) importance.reset();
  if (importance != nullptr) {
    const int64_t rows = checked_numel(shape).value_or(0) / columns,
                  matrix_rows = shape.size() < 2 ? 1 : shape[shape.size() - 2];
    const int64_t wanted = matrix_rows == 0 ? 0 : rows / matrix_rows * columns;
    if (std::ssize(*importance) != wanted) {
      return bad_input(fmt::format("weight {} {} has {} columns, its importance matrix {}",
                                   quoted(key), to_string(shape), wanted, importance->size()));
    }
  }
  steps.push_back(
      {.kind = Step::Kind::kEncode, .encoder = &encoder, .importance = std::move(importance)});
  outputs = {{.dtype = DType::kU8, .shape = shape}};
  output().shape.back() = columns / encoder.elements * encoder.bytes;
  return {};
}

Status Recipe::take_blocks(const TensorSource& source, const std::string& key) {
  const Shape shape = output().shape;
  const int64_t columns = shape.empty() ? 0 : shape.back();
  const BlockEncoding* encoding =
      pieces.empty() ? nullptr : source.entries()[pieces[0].tensor].encoding;
  bool fits = are_decoded(steps) && encoding != nullptr && columns > 0 &&
              columns % encoding->elements == 0 && is_of_rows(pieces, columns);
  for (const StridedPiece& piece : pieces) {
    fits = fits && source.entries()[piece.tensor].encoding == encoding;
  }
  if (!fits) return cannot(key, shape, "the blocks of the checkpoint: it is not rows of them");
  steps = {{.kind = Step::Kind::kStored}};
  outputs = {{.dtype = DType::kU8, .shape = shape}};
  output().shape.back() = columns / encoding->elements * encoding->bytes;
  return {};
}

}  // namespace ferry::graph
