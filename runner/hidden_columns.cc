// Attention of static programs, which mask most columns of the context, without those columns.
#include <algorithm>
#include <map>
#include <optional>

#include "formats/pte/operator_args.h"
#include "kernels/joined.h"
#include "kernels/seen_columns.h"
#include "runner/step_rewrites.h"

namespace ferry::runner {
namespace {

using kernels::Tensor;
using kernels::Value;
using pte::ops::Add;
using pte::ops::Bmm;
using pte::ops::Softmax;
using pte::ops::View;

constexpr kernels::Kernel kSeenAdd = {Add::kName, kernels::seen_add, 0,
                                      kernels::Kernel::Memory::kInPlace};
constexpr kernels::Kernel kSeenSoftmax = {Softmax::kName, kernels::seen_softmax};
constexpr kernels::Kernel kAttention = {Bmm::kName, kernels::masked_attention};
// Arguments of joined_bmm: the cache, whether it is joined along the columns, what follows it, and
// how many of its columns are stored.
constexpr size_t kFirst = Bmm::kOut + 1, kColumns = Bmm::kOut + 5, kRest = Bmm::kOut + 7,
                 kStored = Bmm::kOut + 8;

// The steps of one attention: softmax(query keys + mask) values.
struct MaskedAttention {
  size_t scores, add, softmax, product;
  std::vector<const Value*> values;  // results of these steps and their views, but the last
};

class HiddenColumns {
 public:
  explicit HiddenColumns(Loading& loading) : state_(loading.state), uses_(loading) {}

  void run() {
    const size_t count = state_.steps.size();
    // Jumps and moves would let steps follow each other in another order.
    if (count == 0 || !uses_.in_one_go(0, 0, count - 1)) return;
    std::vector<MaskedAttention> found;
    for (size_t i = 0; i < count; ++i) {
      if (std::optional<MaskedAttention> attention = attention_at(i)) {
        found.push_back(std::move(*attention));
      }
    }
    std::ranges::sort(found, {}, &MaskedAttention::scores);
    for (const MaskedAttention& attention : found) apply(attention);
    for (const int32_t input : state_.inputs) {
      state_.joined.strided.push_back(can_be_strided(input));
    }
  }

 private:
  static bool is_plain(const Tensor& tensor) {
    return tensor.dtype == DType::kF32 && !tensor.dynamic && tensor.numel > 0 && tensor.rank() >= 2;
  }
  bool is_joined_product(size_t step) const {
    const kernels::Kernel* kernel = state_.steps[step].kernel;
    return kernel != nullptr && kernel->run == kernels::joined_bmm;
  }
  static bool joins_columns(const Step& step) { return step.args[kColumns]->boolean; }

  // Returns the step that makes `value`, which one step reads; views on the way are added to
  // `values`.
  std::optional<size_t> made_by(const Value* value, std::vector<const Value*>& values) const {
    for (;;) {
      if (!uses_.is_inner(value) || uses_.readers(value).size() != 1 || !is_plain(*value->tensor)) {
        return std::nullopt;
      }
      values.push_back(value);
      const size_t step = uses_.writers(value).front();
      if (!uses_.is(step, View::kName)) return step;
      value = state_.steps[step].args[View::kSelf];
      if (value->tensor == nullptr || value->tensor->sizes.back() != last(values)) {
        return std::nullopt;
      }
    }
  }
  static int64_t last(const std::vector<const Value*>& values) {
    return values.back()->tensor->sizes.back();
  }

  // Returns the attention whose second product is step `product`.
  std::optional<MaskedAttention> attention_at(size_t product) const {
    if (!is_joined_product(product) || joins_columns(state_.steps[product])) return std::nullopt;
    MaskedAttention a{};
    a.product = product;
    const std::optional<size_t> softmax = made_by(state_.steps[product].args[Bmm::kSelf], a.values);
    if (!softmax || !is_last_softmax(*softmax)) return std::nullopt;
    const std::optional<size_t> add =
        made_by(state_.steps[*softmax].args[Softmax::kSelf], a.values);
    if (!add || !adds_mask(*add)) return std::nullopt;
    const std::optional<size_t> scores = made_by(state_.steps[*add].args[Add::kSelf], a.values);
    if (!scores || !is_joined_product(*scores) || !joins_columns(state_.steps[*scores])) {
      return std::nullopt;
    }
    a.softmax = *softmax;
    a.add = *add;
    a.scores = *scores;
    if (!stays(*state_.steps[*add].args[Add::kOther], *scores, *add)) return std::nullopt;
    return a;
  }

  bool is_last_softmax(size_t at) const {
    using Op = Softmax;
    if (!uses_.is(at, Op::kName)) return false;
    const Step& step = state_.steps[at];
    const Tensor& self = *step.args[Op::kSelf]->tensor;
    const int64_t dim = step.args[Op::kDim]->integer;
    return uses_.are_constant(step, Op::kDim, Op::kOut) && !step.args[Op::kHalfToFloat]->boolean &&
           (dim == -1 || dim == self.rank() - 1) &&
           self.sizes == step.args[Op::kOut]->tensor->sizes;
  }

  // Returns whether a mask [1,...,rows,columns] is added to scores [...,rows,columns].
  bool adds_mask(size_t at) const {
    if (!uses_.is(at, Add::kName)) return false;
    const Step& step = state_.steps[at];
    const Tensor& self = *step.args[Add::kSelf]->tensor;
    const Tensor* mask = step.args[Add::kOther]->tensor;
    if (mask == nullptr || !is_plain(*mask) || !is_plain(self)) return false;
    const int64_t columns = self.sizes.back(), rows = self.size(self.rank() - 2);
    return uses_.is_constant(step.args[Add::kAlpha]) &&
           step.args[Add::kAlpha]->number().real == 1 &&
           self.sizes == step.args[Add::kOut]->tensor->sizes && mask->rank() <= self.rank() &&
           mask->numel == rows * columns && mask->sizes.back() == columns &&
           mask->size(mask->rank() - 2) == rows;
  }

  // Returns whether a value is set before step `first`, and its memory is not written from then on
  // until step `last`.
  bool stays(const Value& value, size_t first, size_t last) const {
    return std::ranges::all_of(uses_.writers(&value), [&](size_t at) { return at < first; }) &&
           !uses_.writes(first, last, *value.tensor);
  }

  // Returns whether the attention of one step, which reads caches as they are in memory, is all
  // that reads an input.
  bool can_be_strided(int32_t input) const {
    const Value& value = state_.values[static_cast<size_t>(input)];
    if (value.tensor == nullptr || std::ranges::count(state_.outputs, input) > 0) return false;
    bool read = false;
    for (const Step& step : state_.steps) {
      if (step.kind == Step::Kind::kNothing || std::ranges::count(step.inputs, value.tensor) == 0) {
        continue;
      }
      if (!reads_stored(step, *value.tensor)) return false;
      read = true;
    }
    return read;
  }
  bool reads_stored(const Step& step, const Tensor& cache) const {
    if (step.kernel == nullptr || step.kernel->run != kernels::masked_attention) return false;
    for (const size_t at : {size_t{0}, kStored + 1}) {
      if (step.args[at + kFirst]->tensor == &cache &&
          step.args[at + kStored] != state_.joined.stored) {
        return false;
      }
    }
    return true;
  }

  void append(Step& step, std::initializer_list<Value*> extra) {
    auto& args = state_.joined.args.emplace_back(step.args.begin(), step.args.end());
    args.insert(args.end(), extra);
    step.args = args;
  }

  // Returns the SeenMask of the mask of an attention. Attentions share it while the memory of the
  // mask stays as it is.
  Value* seen_of(const MaskedAttention& a) {
    const Value* mask = mask_of(a);
    Seen& seen = seen_[mask];
    if (seen.value == nullptr || !stays(*mask, seen.scores, a.add)) {
      Tensor& tensor = state_.joined.seen_tensors.emplace_back();
      tensor.dtype = DType::kU8;
      tensor.data = reinterpret_cast<std::byte*>(&state_.joined.seen.emplace_back());
      seen.value =
          &state_.joined.made.emplace_back(Value{.kind = Value::Kind::kTensor, .tensor = &tensor});
    }
    seen.scores = a.scores;
    return seen.value;
  }

  Value* mask_of(const MaskedAttention& a) const { return state_.steps[a.add].args[Add::kOther]; }

  // Gives a step another kernel, which takes `extra` in place of the returned value.
  void restate(size_t at, const kernels::Kernel& kernel, size_t args,
               std::initializer_list<Value*> extra) {
    state_.joined.stated.emplace_back(at, state_.steps[at]);
    Step& step = state_.steps[at];
    step.kernel = &kernel;
    step.args = step.args.first(args);
    append(step, extra);
  }

  // Returns whether the second product may compute the whole attention: the queries, the keys, the
  // mask and the memory of scores stay untouched until then.
  bool fits_one_step(const MaskedAttention& a) const {
    const Step& scores = state_.steps[a.scores];
    const Step& product = state_.steps[a.product];
    const Tensor& query = *scores.args[Bmm::kSelf]->tensor;
    const Tensor& keys = *scores.args[Bmm::kMat2]->tensor;
    const Tensor& out = *product.args[Bmm::kOut]->tensor;
    const Tensor& memory = *scores.args[Bmm::kOut]->tensor;
    const Tensor& weights = *product.args[Bmm::kSelf]->tensor;
    const Tensor& mask = *mask_of(a)->tensor;
    const Tensor* rest = scores.args[kRest]->tensor;
    if (weights.size(0) != query.size(0) || weights.size(1) != query.size(1) ||
        query.size(1) % mask.size(mask.rank() - 2) != 0 ||
        scores.args[kFirst]->tensor->dtype != product.args[kFirst]->tensor->dtype ||
        memory.bytes() < out.bytes()) {
      return false;
    }
    for (size_t i = a.scores + 1; i < a.product; ++i) {
      if (i == a.add || i == a.softmax) continue;
      for (const Tensor* kept : {&query, &keys, &mask, &memory, rest}) {
        if (kept != nullptr && uses_.writes(i, i + 1, *kept)) return false;
      }
    }
    return true;
  }

  void leave_out(size_t at) {
    state_.joined.stated.emplace_back(at, state_.steps[at]);
    state_.steps[at].kind = Step::Kind::kNothing;
  }

  void apply_in_one_step(const MaskedAttention& a, Value* mask, Value* seen) {
    const Step& scores = state_.steps[a.scores];
    Step& product = state_.steps[a.product];
    // Queries, keys and mask may lie under the result, so they are not among the inputs.
    auto& inputs = state_.joined.inputs.emplace_back(
        std::initializer_list<Tensor*>{product.args[Bmm::kMat2]->tensor,
                                       product.args[kFirst]->tensor, scores.args[kFirst]->tensor});
    auto& args = state_.joined.args.emplace_back(scores.args.begin(), scores.args.end());
    args.insert(args.end(), product.args.begin(), product.args.end());
    args.insert(args.end(), {mask, seen});
    product.args = args;
    product.inputs = inputs;
    product.kernel = &kAttention;
    for (size_t step : {a.scores, a.add, a.softmax}) leave_out(step);
  }

  void apply(const MaskedAttention& a) {
    for (const Value* value : a.values) state_.joined.values.push_back(value->id);
    Value* mask = mask_of(a);
    Value* seen = seen_of(a);
    if (fits_one_step(a)) return apply_in_one_step(a, mask, seen);
    restate(a.add, kSeenAdd, Add::kOut + 1, {seen});
    restate(a.softmax, kSeenSoftmax, Softmax::kOut + 1, {mask, seen});
    for (size_t step : {a.scores, a.product}) append(state_.steps[step], {mask, seen});
  }

  struct Seen {
    Value* value = nullptr;
    size_t scores = 0;  // the last attention that uses it: its first step
  };

  MethodState& state_;
  StepUses uses_;
  std::map<const Value*, Seen> seen_;  // per mask
};

}  // namespace

void leave_out_hidden_columns(Loading& loading) { HiddenColumns(loading).run(); }

}  // namespace ferry::runner
