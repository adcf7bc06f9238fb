// materialize() reads each piece, decodes it to f32, applies the steps and rounds, a chunk at a
// time. Only pieces with jumps in their tensor are gathered as a whole, for the requested part of
// the output.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>

#include "core/checked.h"
#include "core/interrupt.h"
#include "core/strided.h"
#include "core/text.h"
#include "graph/recipe.h"

namespace ferry::graph {
namespace {

// This many elements are converted at a time, so that three small buffers suffice for any tile.
constexpr int64_t kChunk = 16384;

Failure broken(const TensorSource& source, const std::string& message) {
  return fail(ErrorCode::kInternal, fmt::format("{}: {}", printable(source.path()), message));
}

// Reads the elements of one entry as they are stored, or decoded to f32 if they are stored in
// blocks.
class ElementReader {
 public:
  ElementReader(const TensorSource& source, size_t entry)
      : source_(source), index_(entry), entry_(source.entries()[entry]) {}

  DType dtype() const { return entry_.dtype; }
  int64_t size() const { return dtype_bytes(entry_.dtype); }

  // Reads the bytes of whole elements from `offset` on.
  Status read(uint64_t offset, std::span<std::byte> out) {
    if (entry_.encoding == nullptr) return source_.read(index_, offset, out);
    return decode(offset / sizeof(float), out);
  }

 private:
  // `first` is an index of an element; `out` has the size of whole f32 values.
  Status decode(uint64_t first, std::span<std::byte> out) {
    const BlockEncoding& encoding = *entry_.encoding;
    const uint64_t count = out.size() / sizeof(float);
    const uint64_t begin = first / encoding.elements;
    const uint64_t end = (first + count + encoding.elements - 1) / encoding.elements;
    blocks_.resize((end - begin) * encoding.bytes);
    FERRY_RETURN_IF_ERROR(source_.read(index_, begin * encoding.bytes, blocks_));
    std::array<float, kMaxBlockElements> values;
    uint64_t skip = first - begin * encoding.elements;
    for (size_t at = 0; !out.empty(); at += encoding.bytes) {
      encoding.decode(blocks_.data() + at, values.data());
      const auto part = std::as_bytes(std::span(values).first(encoding.elements).subspan(skip));
      const size_t bytes = std::min(part.size(), out.size());
      std::memcpy(out.data(), part.data(), bytes);
      out = out.subspan(bytes);
      skip = 0;
    }
    return {};
  }

  const TensorSource& source_;
  size_t index_;
  const TensorEntry& entry_;
  std::vector<std::byte> blocks_;
};

// Computes exp(x) in f32 with the bits of torch, which differs from the exact value by at most one
// unit in the last place. A step kNegExp with the value 1 uses it for files that are compared with
// those of torch. Source: SLEEF, xexpf() with 1.0 ULP, with fused multiply-add.
float exp_of_torch(float x) {
  constexpr float kInverse = 1.442695040888963407f;                                 // 1 / ln 2
  constexpr float kUpper = 0.693145751953125f, kLower = 1.428606765330187045e-06f;  // ln 2
  constexpr float kSeries[] = {0.000198527617612853646f, 0.00139304355252534151f,
                               0.00833336077630519867f,  0.0416664853692054749f,
                               0.16666667163372039795f,  0.5f};
  if (!(x >= -104.0f)) return std::isnan(x) ? x : 0.0f;
  if (x > 104.0f) return std::numeric_limits<float>::infinity();
  const float whole = std::nearbyint(x * kInverse);
  const float rest = std::fma(whole, -kLower, std::fma(whole, -kUpper, x));
  float sum = kSeries[0];
  for (size_t i = 1; i < std::size(kSeries); ++i) sum = std::fma(sum, rest, kSeries[i]);
  sum = 1.0f + std::fma(rest * rest, sum, rest);
  const int power = static_cast<int>(whole), half = power >> 1;
  return sum * std::ldexp(1.0f, half) * std::ldexp(1.0f, power - half);
}

// `first` is the position of the first value in the whole output.
void apply(const Step& step, int64_t first, int64_t columns, std::span<float> values) {
  const auto operand = static_cast<float>(step.value);
  switch (step.kind) {
    case Step::Kind::kAdd:
      for (float& x : values) x += operand;
      break;
    case Step::Kind::kMul:
      for (float& x : values) x *= operand;
      break;
    // The functions are computed in f64, because their f32 versions differ between C libraries.
    case Step::Kind::kNegExp:
      for (float& x : values) {
        x = step.value == 0 ? -static_cast<float>(std::exp(static_cast<double>(x)))
                            : -exp_of_torch(x);
      }
      break;
    case Step::Kind::kLogNegated:
      for (float& x : values) x = static_cast<float>(std::log(-static_cast<double>(x)));
      break;
    case Step::Kind::kSmooth: {
      const auto width = static_cast<size_t>(columns);
      auto row = static_cast<size_t>(first) / width, column = static_cast<size_t>(first) % width;
      for (float& x : values) {
        x *= (*step.factors)[step.by_rows ? row : column];
        if (++column == width) {
          column = 0;
          ++row;
        }
      }
      break;
    }
    case Step::Kind::kDecode:
    case Step::Kind::kCast:
    case Step::Kind::kQuantize:
    case Step::Kind::kSplitQ80:
    case Step::Kind::kEncode:
    case Step::Kind::kStored:
      break;  // the conversions before and after handle these
  }
}

// Converts the elements [from, from + count) of a piece through f32 into `out`. In the whole output
// they are elements from `position` on.
Status convert(const Recipe& recipe, const StridedPiece& piece, int64_t from, int64_t count,
               int64_t position, ElementReader& reader, std::byte* out) {
  const int64_t in_size = reader.size(), out_size = dtype_bytes(recipe.output().dtype);
  const ReadTensor read = [&](uint64_t offset, std::span<std::byte> bytes) {
    return reader.read(offset, bytes);
  };
  const int64_t gathered = piece.is_run() ? std::min(kChunk, count) : count;
  const auto stored =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(gathered * in_size));
  const bool in_place = recipe.output().dtype == DType::kF32 &&
                        reinterpret_cast<uintptr_t>(out) % alignof(float) == 0;
  std::vector<float> values(in_place ? 0 : static_cast<size_t>(std::min(kChunk, count)));
  for (int64_t done = 0; done < count; done += kChunk) {
    if (done % gathered == 0) {
      FERRY_RETURN_IF_ERROR(gather(piece, in_size, from + done, std::min(gathered, count - done),
                                   read, stored.get()));
    }
    const std::span<float> chunk(in_place ? reinterpret_cast<float*>(out) + done : values.data(),
                                 static_cast<size_t>(std::min(kChunk, count - done)));
    to_f32(reader.dtype(), stored.get() + done % gathered * in_size, chunk.data(), chunk.size());
    const Shape& shape = recipe.output().shape;
    const int64_t columns = shape.empty() ? 1 : shape.back();
    for (const Step& step : recipe.steps) apply(step, position + done, columns, chunk);
    if (in_place) continue;
    from_f32(recipe.output().dtype, chunk.data(), out + done * out_size, chunk.size());
  }
  return {};
}

// Refuses a piece outside of its entry, and one whose stored form differs from the recipe's.
Status check_piece(const Recipe& recipe, const StridedPiece& piece, const TensorSource& source) {
  if (piece.tensor >= source.entries().size()) return broken(source, "a piece of no tensor");
  const TensorEntry& entry = source.entries()[piece.tensor];
  const auto end = end_of(piece);
  const bool decoded = !recipe.steps.empty() && recipe.steps[0].kind == Step::Kind::kDecode;
  const bool fits = decoded ? is_castable(entry.dtype)
                            : entry.encoding == nullptr && entry.dtype == recipe.source_dtype;
  if (!fits || !end || *end > checked_numel(entry.shape).value_or(0)) {
    return broken(source, fmt::format("tensor {} has no such elements", quoted(entry.name)));
  }
  return {};
}

Status check_range(const Recipe& recipe, const TensorSource& source, uint64_t offset,
                   uint64_t bytes) {
  const RecipeOutput& output = recipe.output();
  if (recipe.outputs.size() != 1 || recipe.is_coded())
    return broken(source, "a recipe of several outputs");
  const bool castable = is_castable(recipe.source_dtype) && is_castable(output.dtype);
  if (!castable && (!recipe.is_copy() || dtype_bits(output.dtype) % 8 != 0)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: cannot convert {} to {}", printable(source.path()),
                            dtype_name(recipe.source_dtype), dtype_name(output.dtype)));
  }
  const auto fits = [&](const Step& step) {
    if (step.kind != Step::Kind::kSmooth) return true;
    const Shape& shape = output.shape;
    if (step.factors == nullptr || shape.empty() || shape.back() <= 0) return false;
    if (step.by_rows && shape.size() != 2) return false;
    return std::ssize(*step.factors) == (step.by_rows ? shape.front() : shape.back());
  };
  if (!std::ranges::all_of(recipe.steps, fits)) return broken(source, "factors that do not fit");
  if (recipe.is_copy() && output.dtype != recipe.source_dtype) {
    return broken(source, "a recipe without the cast to its dtype");
  }
  const auto size = static_cast<uint64_t>(dtype_bytes(output.dtype));
  if (offset % size != 0 || bytes % size != 0 || !range_inside(offset, bytes, output.bytes())) {
    return broken(source, "a tile that is no part of the tensor");
  }
  return {};
}

}  // namespace

Status materialize(const Recipe& recipe, const TensorSource& source, uint64_t offset,
                   std::span<std::byte> out) {
  FERRY_RETURN_IF_ERROR(check_interrupt());
  FERRY_RETURN_IF_ERROR(check_range(recipe, source, offset, out.size()));
  const int64_t size = dtype_bytes(recipe.output().dtype);
  int64_t skip = static_cast<int64_t>(offset) / size;
  int64_t left = static_cast<int64_t>(out.size()) / size;
  int64_t position = skip;
  std::byte* to = out.data();
  for (const StridedPiece& piece : recipe.pieces) {
    if (left == 0) return {};
    FERRY_RETURN_IF_ERROR(check_piece(recipe, piece, source));
    const int64_t elements = piece.count();
    const int64_t count = std::clamp<int64_t>(elements - skip, 0, left);
    if (count > 0) {
      ElementReader reader(source, piece.tensor);
      const ReadTensor read = [&](uint64_t at, std::span<std::byte> bytes) {
        return reader.read(at, bytes);
      };
      FERRY_RETURN_IF_ERROR(recipe.is_copy()
                                ? gather(piece, size, skip, count, read, to)
                                : convert(recipe, piece, skip, count, position, reader, to));
    }
    skip = std::max<int64_t>(skip - elements, 0);
    left -= count;
    position += count;
    to += count * size;
  }
  if (left > 0) return broken(source, "the pieces of a recipe have fewer elements than its shape");
  return {};
}

}  // namespace ferry::graph
