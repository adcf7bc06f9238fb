#include "runner/step_rewrites.h"

#include <algorithm>
#include <optional>

#include "formats/pte/operator_args.h"
#include "kernels/compute.h"
#include "kernels/kernels.h"

namespace ferry::runner {
namespace {

using kernels::Tensor;
using kernels::Value;

constexpr kernels::Kernel kStoredSdpa = {pte::ops::CustomSdpa::kName, kernels::stored_sdpa};

// Positions [start, end) of a buffer [1,context,heads,...].
struct Slice {
  Value* buffer = nullptr;
  Value *start = nullptr, *end = nullptr;
};

// The stored rows from which keys or values are computed.
struct Cache {
  Slice rows;
  Value *scales = nullptr, *zero_points = nullptr;  // buffers, if the rows are codes
  std::vector<size_t> steps = {};                   // the steps that are left out
  std::vector<int32_t> values = {};
};

class Reader {
 public:
  explicit Reader(Loading& loading) : loading_(loading), state_(loading.state), uses_(loading) {}

  void run() {
    if (uses_.written_through_views(loading_)) return;
    for (size_t i = 0; i < state_.steps.size(); ++i) {
      if (!uses_.is(i, kStoredSdpa.name)) continue;
      const std::optional<Cache> keys = cache_of(i, pte::ops::CustomSdpa::kKey);
      const std::optional<Cache> values = cache_of(i, pte::ops::CustomSdpa::kValue);
      if (keys && values && are_kept(*keys, i) && are_kept(*values, i)) apply(i, *keys, *values);
    }
  }

 private:
  // Returns the step that makes `value` for `reader` only.
  std::optional<size_t> maker(const Value* value, size_t reader) const {
    if (value->tensor == nullptr || !uses_.is_inner(value)) return std::nullopt;
    const auto other = [&](size_t step) { return step != reader; };
    if (std::ranges::any_of(uses_.readers(value), other)) return std::nullopt;
    return uses_.writers(value).front();
  }

  void leave_out(size_t step, Cache& cache) const {
    if (std::ranges::count(cache.steps, step) > 0) return;
    cache.steps.push_back(step);
    const std::vector<int32_t>& made = state_.written[step];
    cache.values.insert(cache.values.end(), made.begin(), made.end());
  }

  std::optional<Cache> cache_of(size_t sdpa, size_t arg) const {
    const Step& attention = state_.steps[sdpa];
    const std::optional<size_t> at = maker(attention.args[arg], sdpa);
    if (!at || attention.args[pte::ops::CustomSdpa::kQuery]->tensor->dtype != DType::kF32)
      return std::nullopt;
    if (uses_.is(*at, pte::ops::DequantizePerToken::kName)) return coded(*at);
    return half(*at);
  }

  std::optional<Cache> half(size_t at) const {
    const Step& step = state_.steps[at];
    Cache cache;
    if (!converts(at, DType::kF32) || !is_half(step.args[pte::ops::ToCopy::kSelf]->tensor->dtype))
      return std::nullopt;
    leave_out(at, cache);
    const std::optional<Slice> rows = sliced(step.args[pte::ops::ToCopy::kSelf], at, cache);
    if (!rows) return std::nullopt;
    cache.rows = *rows;
    return cache;
  }

  std::optional<Cache> coded(size_t at) const {
    using Op = pte::ops::DequantizePerToken;
    const Step& step = state_.steps[at];
    Cache cache;
    const std::optional<size_t> widened = maker(step.args[Op::kZeroPoints], at);
    if (!is_coded(step) || !widened || !converts(*widened, DType::kI64)) return std::nullopt;
    leave_out(at, cache);
    leave_out(*widened, cache);
    const std::optional<Slice> rows = sliced(step.args[Op::kInput], at, cache);
    const std::optional<Slice> scales = sliced(step.args[Op::kScales], at, cache);
    const std::optional<Slice> points =
        sliced(state_.steps[*widened].args[pte::ops::ToCopy::kSelf], *widened, cache);
    if (!rows || !scales || !points || !go_together(*rows, *scales, DType::kF32) ||
        !go_together(*rows, *points, DType::kI8)) {
      return std::nullopt;
    }
    cache.rows = *rows;
    cache.scales = scales->buffer;
    cache.zero_points = points->buffer;
    return cache;
  }

  bool converts(size_t at, DType to) const {
    if (!uses_.is(at, pte::ops::ToCopy::kName)) return false;
    const Step& step = state_.steps[at];
    const Tensor& out = *step.args[pte::ops::ToCopy::kOut]->tensor;
    return step.args[pte::ops::ToCopy::kSelf]->tensor != nullptr && out.dtype == to && !out.widened;
  }

  // Invalid arguments, except scales, are left to the operator, which reports them.
  bool is_coded(const Step& step) const {
    using Op = pte::ops::DequantizePerToken;
    const auto code = [](DType dtype) { return int64_t{dtype_info(dtype).executorch}; };
    const Tensor& out = *step.args[Op::kOut]->tensor;
    return uses_.are_constant(step, Op::kQuantMin, Op::kOut) &&
           step.args[Op::kInput]->tensor->dtype == DType::kI8 && out.dtype == DType::kF32 &&
           !out.widened && step.args[Op::kQuantMin]->integer == -128 &&
           step.args[Op::kQuantMax]->integer == 127 &&
           step.args[Op::kDtype]->integer == code(DType::kI8) &&
           step.args[Op::kOutputDtype]->integer == code(DType::kF32);
  }

  std::optional<Slice> sliced(const Value* value, size_t reader, Cache& cache) const {
    const std::optional<size_t> at = maker(value, reader);
    if (!at || !uses_.is(*at, pte::ops::SliceCopy::kName)) return std::nullopt;
    using Op = pte::ops::SliceCopy;
    const Step& step = state_.steps[*at];
    const Tensor& buffer = *step.args[Op::kSelf]->tensor;
    if (!uses_.is_constant(step.args[Op::kDim]) || step.args[Op::kDim]->integer != 1 ||
        !uses_.is_constant(step.args[Op::kStep]) || step.args[Op::kStep]->integer != 1 ||
        buffer.rank() != 4 || buffer.dynamic || buffer.widened || buffer.size(0) != 1 ||
        buffer.data == nullptr || buffer.size(3) > kernels::kMaxStoredDim ||
        step.args[Op::kOut]->tensor->dtype != buffer.dtype) {
      return std::nullopt;
    }
    leave_out(*at, cache);
    return Slice{step.args[Op::kSelf], step.args[Op::kStart], step.args[Op::kEnd]};
  }

  // Returns whether each row has a scale or zero point of that dtype.
  static bool go_together(const Slice& rows, const Slice& by_row, DType dtype) {
    kernels::Dims sizes = rows.buffer->tensor->sizes;
    sizes[3] = 1;
    return by_row.start == rows.start && by_row.end == rows.end &&
           by_row.buffer->tensor->dtype == dtype && by_row.buffer->tensor->sizes == sizes;
  }

  // Returns whether attention finds the buffers as the first removed step would find them.
  bool are_kept(const Cache& cache, size_t sdpa) const {
    const size_t first = *std::ranges::min_element(cache.steps);
    if (*std::ranges::max_element(cache.steps) > sdpa || !uses_.in_one_go(first, first, sdpa)) {
      return false;
    }
    for (const Value* buffer : {cache.rows.buffer, cache.scales, cache.zero_points}) {
      if (buffer != nullptr && uses_.writes(first, sdpa, *buffer->tensor)) return false;
    }
    return is_set_before(cache.rows.start, first) && is_set_before(cache.rows.end, first);
  }
  bool is_set_before(const Value* value, size_t step) const {
    return std::ranges::all_of(uses_.writers(value), [&](size_t at) { return at < step; });
  }

  // One step may compute keys and values.
  void leave_out(size_t step) {
    if (state_.steps[step].kind != Step::Kind::kNothing) changed(step).kind = Step::Kind::kNothing;
  }

  Step& changed(size_t step) {
    state_.joined.stated.emplace_back(step, state_.steps[step]);
    return state_.steps[step];
  }

  void apply(size_t sdpa, const Cache& keys, const Cache& values) {
    JoinedCaches& joined = state_.joined;
    Step& step = changed(sdpa);
    auto& args = joined.args.emplace_back(step.args.begin(),
                                          step.args.begin() + pte::ops::CustomSdpa::kOut + 1);
    auto& inputs = joined.inputs.emplace_back(step.inputs.begin(), step.inputs.end());
    for (const Cache* cache : {&keys, &values}) {
      for (size_t at : cache->steps) leave_out(at);
      joined.values.insert(joined.values.end(), cache->values.begin(), cache->values.end());
      add_buffers(*cache, args, inputs);
    }
    step.kernel = &kStoredSdpa;
    step.args = args;
    step.inputs = inputs;
  }

  void add_buffers(const Cache& cache, std::vector<Value*>& args, std::vector<Tensor*>& inputs) {
    for (Value* buffer : {cache.rows.buffer, cache.scales, cache.zero_points}) {
      args.push_back(buffer == nullptr ? &state_.joined.made.emplace_back() : buffer);
      if (buffer != nullptr) inputs.push_back(buffer->tensor);
    }
    args.push_back(cache.rows.start);
    args.push_back(cache.rows.end);
  }

  Loading& loading_;
  MethodState& state_;
  StepUses uses_;
};

}  // namespace

void read_stored_caches(Loading& loading) { Reader(loading).run(); }

}  // namespace ferry::runner
