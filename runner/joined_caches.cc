#include "runner/step_rewrites.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "formats/pte/operator_args.h"
#include "kernels/joined.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"

namespace ferry::runner {
namespace {

using kernels::Tensor;
using kernels::Value;

constexpr kernels::Kernel kCatRest = {pte::ops::Cat::kName, kernels::cat, 1};
constexpr kernels::Kernel kJoinedBmm = {pte::ops::Bmm::kName, kernels::joined_bmm};

// The source of the values of a cache.
struct JoinedSource {
  Tensor* input = nullptr;
  int64_t offset = 0;  // the begin of the part that is used, in elements
  float scale = 1;
  int32_t zero_point = 0;
  std::vector<size_t> steps = {};  // the steps that are left out
  std::vector<size_t> values = {};
};

struct Join {
  JoinedSource source;
  size_t cat = 0;
  std::vector<size_t> products = {};
  bool columns = false;
  int64_t count = 0;
  bool whole = false;      // whether all columns of caches [1,G,D,C] or [1,G,C,D] are joined
  Tensor* rest = nullptr;  // what follows the cache, if the products can read it in place
};

bool is_stored_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

bool is_code(DType dtype) { return dtype == DType::kU8 || dtype == DType::kU16; }

bool is_plain(const Tensor& tensor) {
  return !tensor.dynamic && !tensor.widened && tensor.numel > 0;
}

int64_t product(const kernels::Dims& sizes, int begin, int end) {
  int64_t n = 1;
  for (int dim = begin; dim < end; ++dim) n *= sizes[dim];
  return n;
}

class Joiner {
 public:
  explicit Joiner(Loading& loading) : loading_(loading), state_(loading.state), uses_(loading) {}

  void run() {
    if (uses_.written_through_views(loading_)) return;
    for (size_t i = 0; i < state_.steps.size(); ++i) {
      if (!uses_.is(i, pte::ops::Cat::kName)) continue;
      if (const std::optional<Join> join = join_at(i)) apply(*join);
    }
  }

 private:
  static size_t id(const Value* value) { return static_cast<size_t>(value->id); }

  bool is_lent_input(const Value* value) const {
    return std::ranges::count(state_.inputs, value->id) > 0 && !state_.planned[id(value)] &&
           uses_.writers(value).empty() && is_plain(*value->tensor);
  }

  // Returns the cache from which `value` is computed, if only supported steps compute it.
  std::optional<JoinedSource> source_of(const Value* value) const {
    JoinedSource source;
    bool coded = false;
    while (!is_lent_input(value)) {
      if (!uses_.is_inner(value) || uses_.readers(value).size() != 1 || !is_plain(*value->tensor)) {
        return std::nullopt;
      }
      const size_t at = uses_.writers(value).front();
      const Step& step = state_.steps[at];
      const bool dequantize = uses_.is(at, pte::ops::DequantizePerTensor::kName);
      if (dequantize && !coded) {
        if (!read_encoding(step, source)) return std::nullopt;
        coded = true;
      } else if (uses_.is(at, pte::ops::SliceCopy::kName)) {
        if (!read_slice(step, source)) return std::nullopt;
      } else if (!uses_.is(at, pte::ops::ToCopy::kName) || !widens(step)) {
        return std::nullopt;
      }
      source.steps.push_back(at);
      source.values.push_back(id(value));
      value = step.args.front();
      if (value->tensor == nullptr) return std::nullopt;
    }
    source.input = value->tensor;
    const DType dtype = source.input->dtype;
    if (coded ? is_code(dtype) : is_stored_float(dtype)) return source;
    return std::nullopt;
  }

  static bool widens(const Step& step) {
    const Tensor& self = *step.args[pte::ops::ToCopy::kSelf]->tensor;
    const Tensor& out = *step.args[pte::ops::ToCopy::kOut]->tensor;
    return is_stored_float(self.dtype) && out.dtype == DType::kF32 && self.sizes == out.sizes;
  }

  // Returns false for arguments that the operator itself refuses, because it then reports the
  // error.
  bool read_encoding(const Step& step, JoinedSource& source) const {
    using Op = pte::ops::DequantizePerTensor;
    const Tensor& self = *step.args[Op::kInput]->tensor;
    const Tensor& out = *step.args[Op::kOut]->tensor;
    if (!uses_.are_constant(step, Op::kScale, Op::kOut) || !is_code(self.dtype) ||
        out.dtype != DType::kF32)
      return false;
    const int64_t largest = self.dtype == DType::kU8 ? 0xff : 0xffff;
    source.scale = static_cast<float>(step.args[Op::kScale]->real);
    const int64_t zero_point = step.args[Op::kZeroPoint]->integer;
    source.zero_point = static_cast<int32_t>(zero_point);
    const bool dtypes = step.args[Op::kDtype]->integer == dtype_info(self.dtype).executorch &&
                        (step.args[Op::kOutDtype]->kind == Value::Kind::kNone ||
                         step.args[Op::kOutDtype]->integer == dtype_info(out.dtype).executorch);
    return dtypes && self.sizes == out.sizes && std::isnormal(source.scale) && source.scale > 0 &&
           std::isnormal(1 / source.scale) && zero_point >= 0 && zero_point <= largest &&
           step.args[Op::kQuantMin]->integer == 0 && step.args[Op::kQuantMax]->integer == largest;
  }

  // Reads a slice that is contiguous, so all dimensions before it have one index.
  bool read_slice(const Step& step, JoinedSource& source) const {
    using Op = pte::ops::SliceCopy;
    const Tensor& self = *step.args[Op::kSelf]->tensor;
    const Tensor& out = *step.args[Op::kOut]->tensor;
    if (!uses_.are_constant(step, Op::kDim, Op::kOut) || self.dtype != out.dtype ||
        self.rank() != out.rank() || step.args[Op::kStart]->kind != Value::Kind::kInt ||
        step.args[Op::kStep]->integer != 1) {
      return false;
    }
    const int64_t dim = step.args[Op::kDim]->integer, start = step.args[Op::kStart]->integer;
    if (dim < 0 || dim >= self.rank()) return false;
    const int at = static_cast<int>(dim);
    kernels::Dims sizes = self.sizes;
    sizes[at] = out.size(at);
    if (!(sizes == out.sizes) || product(self.sizes, 0, at) != 1 || start < 0 ||
        start > self.size(at) - out.size(at)) {
      return false;
    }
    const int64_t end =
        step.args[Op::kEnd]->kind == Value::Kind::kInt ? step.args[Op::kEnd]->integer : INT64_MAX;
    if (end != start + out.size(at) &&
        !(end >= self.size(at) && start + out.size(at) == self.size(at))) {
      return false;
    }
    source.offset += start * product(self.sizes, at + 1, self.rank());
    return true;
  }

  std::optional<Join> join_at(size_t cat) const {
    const Step& step = state_.steps[cat];
    const std::vector<Value*>& parts = step.args[pte::ops::Cat::kTensors]->items;
    const Value* out = step.args[pte::ops::Cat::kOut];
    if (parts.size() < 2 || !uses_.is_constant(step.args[pte::ops::Cat::kDim]) ||
        !is_joinable(*parts[0]->tensor, *out)) {
      return std::nullopt;
    }
    const std::optional<JoinedSource> source = source_of(parts[0]);
    if (!source) return std::nullopt;
    Join join{*source, cat};
    if (!find_products(step, join) || !in_one_go(join)) return std::nullopt;
    if (parts.size() == 2 && can_stay(*parts[1], join)) join.rest = parts[1]->tensor;
    join.whole = has_all_columns(join);
    return join;
  }

  // Returns whether products can read the second part of a cat in its own memory: it has the shape
  // that cat asks for, and nothing writes to it before the last product is done.
  bool can_stay(const Value& part, const Join& join) const {
    const Step& cat = state_.steps[join.cat];
    const Tensor& whole = *cat.args[pte::ops::Cat::kOut]->tensor;
    const int64_t dim = cat.args[pte::ops::Cat::kDim]->integer;
    const int at = static_cast<int>(dim < 0 ? dim + whole.rank() : dim);
    kernels::Dims sizes = whole.sizes;
    sizes[at] -= join.count;
    const size_t last = *std::ranges::max_element(join.products);
    // A view without memory of its own gets that of another value when it is executed, so what
    // writes there is not known yet.
    const auto is_part = [&](const Rebound& view) { return view.tensor == part.tensor; };
    if (part.tensor->data == nullptr || std::ranges::any_of(state_.rebound, is_part)) return false;
    return is_plain(*part.tensor) && part.tensor->dtype == DType::kF32 &&
           part.tensor->sizes == sizes && uses_.writers(&part).size() == 1 &&
           uses_.writers(&part).front() < join.cat &&
           !uses_.writes(join.cat + 1, last + 1, *part.tensor);
  }

  bool has_all_columns(const Join& join) const {
    const Tensor& cache = *join.source.input;
    if (cache.rank() != 4 || cache.size(0) != 1) return false;
    const int64_t row = cache.size(join.columns ? 3 : 2);
    return join.count == row &&
           join.source.offset % (join.columns ? row : row * cache.size(3)) == 0;
  }

  bool is_joinable(const Tensor& first, const Value& out) const {
    return is_plain(first) && is_plain(*out.tensor) && out.tensor->dtype == DType::kF32 &&
           first.dtype == DType::kF32 && first.rank() == out.tensor->rank() &&
           uses_.is_inner(&out) && state_.planned[id(&out)];
  }

  // Finds the readers of the joined matrix and of its views. All of them must be bmm.
  bool find_products(const Step& cat, Join& join) const {
    const Value* out = cat.args[pte::ops::Cat::kOut];
    for (size_t reader : uses_.readers(out)) {
      if (!uses_.is(reader, pte::ops::View::kName)) {
        if (!add_product(cat, reader, out, join)) return false;
        continue;
      }
      const Value* view = state_.steps[reader].args[pte::ops::View::kOut];
      if (!uses_.is_inner(view) || !is_plain(*view->tensor) ||
          !std::ranges::all_of(state_.steps[reader].args[pte::ops::View::kSize]->items,
                               [&](const Value* size) { return uses_.is_constant(size); })) {
        return false;
      }
      for (size_t product : uses_.readers(view)) {
        if (!add_product(cat, product, view, join)) return false;
      }
    }
    return !join.products.empty();
  }

  bool add_product(const Step& cat, size_t reader, const Value* matrix, Join& join) const {
    if (!uses_.is(reader, pte::ops::Bmm::kName)) return false;
    const Step& step = state_.steps[reader];
    const Tensor& whole = *cat.args[pte::ops::Cat::kOut]->tensor;
    const Tensor& first = *cat.args[pte::ops::Cat::kTensors]->items[0]->tensor;
    const Tensor& b = *matrix->tensor;
    for (size_t i : {pte::ops::Bmm::kSelf, pte::ops::Bmm::kOut}) {
      const Tensor& other = *step.args[i]->tensor;
      if (!is_plain(other) || other.dtype != DType::kF32 || other.rank() != 3) return false;
    }
    if (step.args[pte::ops::Bmm::kMat2] != matrix || step.args[pte::ops::Bmm::kSelf] == matrix ||
        b.rank() != 3 || b.numel != whole.numel) {
      return false;
    }
    // The operator itself reports shapes that do not fit.
    const Tensor& self = *step.args[pte::ops::Bmm::kSelf]->tensor;
    const Tensor& out = *step.args[pte::ops::Bmm::kOut]->tensor;
    if (self.size(0) != b.size(0) || self.size(2) != b.size(1) || out.size(0) != b.size(0) ||
        out.size(1) != self.size(1) || out.size(2) != b.size(2)) {
      return false;
    }
    const int64_t dim = cat.args[pte::ops::Cat::kDim]->integer;
    const int at = static_cast<int>(dim < 0 ? dim + whole.rank() : dim);
    if (at < 0 || at >= whole.rank()) return false;
    const int64_t outer = product(whole.sizes, 0, at), along = whole.size(at);
    const int64_t inner = product(whole.sizes, at + 1, whole.rank());
    const bool columns = inner == 1 && along == b.size(2);
    const bool rows = inner == b.size(2) && along == b.size(1) && outer == b.size(0);
    if (!columns && !rows) return false;
    const int64_t count = first.size(at);
    if (outer * count * inner != first.numel || count >= along) return false;
    join.columns = columns;
    join.count = count;
    join.products.push_back(reader);
    return true;
  }

  // Returns whether the steps follow each other in that order whenever one of them is executed, and
  // nothing else uses the memory of the joined matrix meanwhile.
  bool in_one_go(const Join& join) const {
    size_t first = join.cat;
    for (size_t step : join.source.steps) {
      if (step > join.cat) return false;
      first = std::min(first, step);
    }
    const size_t last = *std::ranges::max_element(join.products);
    if (*std::ranges::min_element(join.products) < join.cat) return false;
    const Tensor& whole = *state_.steps[join.cat].args[pte::ops::Cat::kOut]->tensor;
    return uses_.in_one_go(first, join.cat + 1, last) && !uses_.writes(join.cat + 1, last, whole);
  }

  Value* made(Value value) { return &state_.joined.made.emplace_back(std::move(value)); }
  Value* made_integer(int64_t n) {
    return made({.kind = Value::Kind::kInt, .integer = n, .real = static_cast<double>(n)});
  }

  // The columns of caches in memory, which the caller may change.
  Value* stored() {
    if (state_.joined.stored == nullptr) state_.joined.stored = made_integer(0);
    return state_.joined.stored;
  }

  Step& changed(size_t step) {
    state_.joined.stated.emplace_back(step, state_.steps[step]);
    return state_.steps[step];
  }

  void apply(const Join& join) {
    std::vector<int32_t>& values = state_.joined.values;
    for (size_t step : join.source.steps) changed(step).kind = Step::Kind::kNothing;
    for (size_t value : join.source.values) values.push_back(static_cast<int32_t>(value));
    Step& cat = changed(join.cat);
    cat.kernel = &kCatRest;
    if (join.rest != nullptr) cat.kind = Step::Kind::kNothing;
    values.push_back(cat.args[pte::ops::Cat::kOut]->id);
    for (size_t reader : uses_.readers(cat.args[pte::ops::Cat::kOut])) {
      for (int32_t view : state_.written[reader]) {
        if (uses_.is(reader, pte::ops::View::kName)) values.push_back(view);
      }
    }
    Value* extra[] = {
        made({.kind = Value::Kind::kTensor, .tensor = join.source.input}),
        made_integer(join.source.offset),
        made({.kind = Value::Kind::kDouble, .real = join.source.scale}),
        made_integer(join.source.zero_point),
        made({.kind = Value::Kind::kBool, .boolean = join.columns}),
        made_integer(join.count),
        made({.kind = join.rest == nullptr ? Value::Kind::kNone : Value::Kind::kTensor,
              .tensor = join.rest}),
        join.whole ? stored() : made_integer(0)};
    for (size_t at : join.products) {
      Step& step = changed(at);
      step.kernel = &kJoinedBmm;
      // The arguments of a call end with the returned value, which is the out again.
      auto& args = state_.joined.args.emplace_back(step.args.begin(),
                                                   step.args.begin() + pte::ops::Bmm::kOut + 1);
      args.insert(args.end(), std::begin(extra), std::end(extra));
      auto& inputs = state_.joined.inputs.emplace_back(step.inputs.begin(), step.inputs.end());
      inputs.push_back(join.source.input);
      if (join.rest != nullptr) inputs.push_back(join.rest);
      step.args = args;
      step.inputs = inputs;
    }
  }

  Loading& loading_;
  MethodState& state_;
  StepUses uses_;
};

}  // namespace

void join_caches(Loading& loading) { Joiner(loading).run(); }

void compute_again(MethodState& state, int32_t value) {
  JoinedCaches& joined = state.joined;
  if (std::ranges::count(joined.values, value) == 0) return;
  for (auto& [step, stated] : joined.stated) {
    stated.observed = state.steps[step].observed;
    state.steps[step] = stated;
  }
  joined.stated.clear();
  joined.values.clear();
  joined.strided.clear();
}

}  // namespace ferry::runner
