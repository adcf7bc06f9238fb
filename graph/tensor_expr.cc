// Materialising tensor expressions tile by tile, and the dictionary of weights.
#include "graph/tensor_expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/checked.h"
#include "core/interrupt.h"
#include "core/text.h"

namespace ferry::graph {
namespace {

// Elements that are converted at a time: three small buffers, whatever the tile.
constexpr size_t kChunk = 16384;

tl::unexpected<Error> broken(const TensorSource& source, const std::string& message) {
  return fail(ErrorCode::kInternal, fmt::format("{}: {}", printable(source.path()), message));
}

// A run of consecutive elements of one source entry.
struct Segment {
  size_t entry = 0;
  uint64_t first = 0;  // element of the entry
  uint64_t count = 0;
};

uint64_t element_count(std::span<const int64_t> shape) {
  uint64_t count = 1;
  for (int64_t dim : shape) count *= static_cast<uint64_t>(dim);
  return count;
}

// All elements of `run`; refuses what the entry does not have.
Result<Segment> segment_of(const TensorExpr& expr, const TensorSource& source, const RowRun& run) {
  if (run.entry >= source.entries().size()) return broken(source, "a row run of no tensor");
  const TensorEntry& entry = source.entries()[run.entry];
  const size_t row_rank = std::min(expr.row_rank, entry.shape.size());
  const auto rows = static_cast<int64_t>(element_count(std::span(entry.shape).first(row_rank)));
  const bool inside =
      run.begin >= 0 && run.count >= 0 && run.begin <= rows && run.count <= rows - run.begin;
  if (entry.dtype != expr.source_dtype || !inside) {
    return broken(source, fmt::format("tensor {} has no such rows", quoted(entry.name)));
  }
  const uint64_t row = rows == 0 ? 0 : element_count(entry.shape) / static_cast<uint64_t>(rows);
  return Segment{run.entry, static_cast<uint64_t>(run.begin) * row,
                 static_cast<uint64_t>(run.count) * row};
}

// The elements [first, first + count) of the concatenated runs, in order.
Result<std::vector<Segment>> segments_of(const TensorExpr& expr, const TensorSource& source,
                                         uint64_t first, uint64_t count) {
  std::vector<Segment> segments;
  uint64_t skip = first;
  for (const RowRun& run : expr.rows) {
    if (count == 0) break;
    Segment all = FERRY_TRY(segment_of(expr, source, run));
    const uint64_t skipped = std::min(skip, all.count);
    skip -= skipped;
    all.first += skipped;
    all.count = std::min(all.count - skipped, count);
    count -= all.count;
    if (all.count > 0) segments.push_back(all);
  }
  if (count > 0) return broken(source, "the rows of an expression are fewer than its shape says");
  return segments;
}

void apply(const ElementStep& step, float* data, size_t count) {
  const auto operand = static_cast<float>(step.value);
  for (size_t i = 0; i < count; ++i) {
    switch (step.kind) {
      case ElementStep::Kind::kAdd:
        data[i] += operand;
        break;
      case ElementStep::Kind::kMul:
        data[i] *= operand;
        break;
      case ElementStep::Kind::kNegExp:
        // Through f64: the f32 function differs between C libraries.
        data[i] = -static_cast<float>(std::exp(static_cast<double>(data[i])));
        break;
    }
  }
}

// Reads and converts one segment; `out` holds exactly its elements.
Status convert(const TensorExpr& expr, const TensorSource& source, const Segment& segment,
               std::span<std::byte> out) {
  const auto in_size = static_cast<size_t>(dtype_bytes(expr.source_dtype));
  const auto out_size = static_cast<size_t>(dtype_bytes(expr.dtype));
  const size_t chunk = static_cast<size_t>(std::min<uint64_t>(kChunk, segment.count));
  std::vector<std::byte> stored(chunk * in_size);
  std::vector<float> values(chunk);
  for (uint64_t done = 0; done < segment.count; done += chunk) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(chunk, segment.count - done));
    const auto bytes = std::span(stored).first(count * in_size);
    FERRY_RETURN_IF_ERROR(source.read(segment.entry, (segment.first + done) * in_size, bytes));
    to_f32(expr.source_dtype, bytes.data(), values.data(), count);
    for (const ElementStep& step : expr.steps) apply(step, values.data(), count);
    from_f32(expr.dtype, values.data(), out.data() + done * out_size, count);
  }
  return {};
}

}  // namespace

uint64_t TensorExpr::bytes() const {
  return element_count(shape) * static_cast<uint64_t>(dtype_bits(dtype)) / 8;
}

TensorExpr expr_of_entry(const TensorSource& source, size_t entry) {
  const TensorEntry& tensor = source.entries()[entry];
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  return {.source_dtype = tensor.dtype,
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .rows = {{entry, 0, rows}}};
}

Status materialize(const TensorExpr& expr, const TensorSource& source, uint64_t offset,
                   std::span<std::byte> out) {
  FERRY_RETURN_IF_ERROR(check_interrupt());
  const bool castable = is_castable(expr.source_dtype) && is_castable(expr.dtype);
  if (!castable && (!expr.is_copy() || dtype_bits(expr.dtype) % 8 != 0)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: cannot convert {} to {}", printable(source.path()),
                            dtype_name(expr.source_dtype), dtype_name(expr.dtype)));
  }
  const auto size = static_cast<uint64_t>(dtype_bytes(expr.dtype));
  if (offset % size != 0 || out.size() % size != 0 ||
      !range_inside(offset, out.size(), expr.bytes())) {
    return broken(source, "a tile that is no part of the tensor");
  }
  const std::vector<Segment> segments =
      FERRY_TRY(segments_of(expr, source, offset / size, out.size() / size));
  for (const Segment& segment : segments) {
    const std::span<std::byte> part = out.first(static_cast<size_t>(segment.count * size));
    out = out.subspan(part.size());
    FERRY_RETURN_IF_ERROR(expr.is_copy() ? source.read(segment.entry, segment.first * size, part)
                                         : convert(expr, source, segment, part));
  }
  return {};
}

Status StateDict::add(Weight weight) {
  if (!index_.emplace(weight.name, weights_.size()).second) {
    return bad_input(fmt::format("two tensors make the weight {}", quoted(weight.name)));
  }
  weights_.push_back(std::move(weight));
  return {};
}

const Weight* StateDict::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &weights_[found->second];
}

Weight* StateDict::find(const std::string& name) {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &weights_[found->second];
}

}  // namespace ferry::graph
