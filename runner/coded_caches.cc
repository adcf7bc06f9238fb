// Holds the caches of a method as codes of 8 or 4 bits (MethodOptions::kv_bits). Steps that write
// a cache write codes, attention reads them, and a slice of a cache that something else reads is
// computed from them. The planned memory of the buffers is never touched, so it costs nothing.
#include <algorithm>
#include <set>
#include <tuple>

#include "core/text.h"
#include "formats/pte/operator_args.h"
#include "kernels/cache_codes.h"
#include "kernels/compute.h"
#include "kernels/kernels.h"
#include "runner/step_rewrites.h"

namespace ferry::runner {
namespace {

using kernels::Tensor;
using kernels::Value;

constexpr kernels::Kernel kCodedUpdate = {"ferry::coded_update_cache.out",
                                          kernels::coded_update_cache};
constexpr kernels::Kernel kCodedUpdateIndices = {"ferry::coded_update_cache_with_indices.out",
                                                 kernels::coded_update_cache_indices};
constexpr kernels::Kernel kCodedSlice = {"ferry::coded_slice_copy.out", kernels::coded_slice_copy};
constexpr kernels::Kernel kCodedSdpa = {"ferry::coded_sdpa.out", kernels::coded_sdpa};

class Coder {
 public:
  explicit Coder(Loading& loading)
      : loading_(loading), state_(loading.state), uses_(loading), bits_(loading.state.kv_bits) {
    codes_.resize(state_.values.size());
    state_.coded.resize(state_.values.size());
  }

  Status run() {
    find_caches();
    for (const int32_t id : caches_) {
      FERRY_RETURN_IF_ERROR(check_cache(at(id)));
      FERRY_RETURN_IF_ERROR(check_readers(at(id)));
      FERRY_RETURN_IF_ERROR(make_codes(at(id)));
    }
    for (size_t i = 0; i < state_.steps.size(); ++i) FERRY_RETURN_IF_ERROR(change(i));
    return {};
  }

 private:
  using Update = pte::ops::UpdateCache;
  using UpdateIndices = pte::ops::UpdateCacheIndices;
  using Sdpa = pte::ops::CustomSdpa;
  using Slice = pte::ops::SliceCopy;

  // The memory of the codes of a cache and the number of their bits, as arguments of a step.
  struct Codes {
    Value *memory = nullptr, *bits = nullptr;
  };

  Value& at(int32_t id) { return state_.values[static_cast<size_t>(id)]; }
  Codes& codes(const Value& cache) { return codes_[static_cast<size_t>(cache.id)]; }
  bool is_coded(const Value& value) { return codes(value).memory != nullptr; }

  bool is_update(size_t step) const {
    return uses_.is(step, Update::kName) || uses_.is(step, UpdateIndices::kName);
  }

  void find_caches() {
    for (size_t i = 0; i < state_.steps.size(); ++i) {
      if (is_update(i)) caches_.insert(state_.steps[i].args[Update::kCache]->id);
    }
  }

  Failure unsupported(const Value& cache, const std::string& why) const {
    return state_.error(
        ErrorCode::kUnsupported,
        fmt::format("caches in fewer bits: {} {}", kernels::describe(*cache.tensor), why));
  }

  Status check_cache(const Value& cache) const {
    const Tensor& buffer = *cache.tensor;
    if (buffer.dtype != DType::kF32 && !is_half(buffer.dtype)) {
      return unsupported(cache, "is not in f32, f16 or bf16");
    }
    if (buffer.rank() != 4 || buffer.size(0) != 1 || !kernels::CacheCodes::takes(buffer.size(3)) ||
        buffer.size(3) > kernels::kMaxStoredDim) {
      return unsupported(
          cache,
          "does not have the shape [1,context,heads,dim] with a dim that is a multiple of 4");
    }
    const auto is = [&](int32_t port) { return port == cache.id; };
    if (std::ranges::any_of(state_.inputs, is) || std::ranges::any_of(state_.outputs, is)) {
      return unsupported(cache, "is an input or output");
    }
    if (buffer.dynamic || buffer.widened || buffer.data == nullptr ||
        !state_.planned[static_cast<size_t>(cache.id)]) {
      return unsupported(cache, "is no buffer");
    }
    return {};
  }

  // Everything that reads or writes a cache must be one of the steps that change() knows.
  Status check_readers(const Value& cache) const {
    const auto known = [&](size_t i) {
      const Step& step = state_.steps[i];
      if (is_update(i)) return step.args[Update::kCache] == &cache && step.args[0] != &cache;
      if (uses_.is(i, Sdpa::kName)) {
        return step.args[Sdpa::kQuery] != &cache && step.args[Sdpa::kAttnMask] != &cache &&
               step.args[Sdpa::kOut] != &cache;
      }
      return uses_.is(i, Slice::kName) && is_constant_slice(step) &&
             step.args[Slice::kOut] != &cache;
    };
    for (const std::vector<size_t>* steps : {&uses_.readers(&cache), &uses_.writers(&cache)}) {
      const auto other = std::ranges::find_if_not(*steps, known);
      if (other != steps->end()) return unsupported(cache, "is used by " + name(*other));
    }
    return {};
  }

  std::string name(size_t step) const {
    return fmt::format("instruction {} ({})", step, state_.step_names[step]);
  }

  bool is_constant_slice(const Step& step) const {
    return uses_.is_constant(step.args[Slice::kDim]) && step.args[Slice::kDim]->integer == 1 &&
           uses_.is_constant(step.args[Slice::kStep]) && step.args[Slice::kStep]->integer == 1;
  }

  // Keys lose more than values, so what is not known to be values alone counts as keys.
  int bits_of(const Value& cache) const {
    bool values = false;
    for (const size_t i : uses_.readers(&cache)) {
      if (is_update(i)) continue;
      const Step& step = state_.steps[i];
      const Value* const read = uses_.is(i, Slice::kName) ? step.args[Slice::kOut] : &cache;
      if (read != &cache && uses_.readers(read).empty()) continue;
      for (const size_t reader : read == &cache ? std::vector{i} : uses_.readers(read)) {
        if (!uses_.is(reader, Sdpa::kName) || state_.steps[reader].args[Sdpa::kKey] == read) {
          return bits_.keys;
        }
        values = true;
      }
    }
    return values ? bits_.values : bits_.keys;
  }

  Status make_codes(const Value& cache) {
    const Tensor& buffer = *cache.tensor;
    std::map<const std::byte*, CodedCache>& all = state_.memory->coded;
    for (const auto& [at, other] : all) {
      const bool is_same =
          at == buffer.data && other.sizes == buffer.sizes && other.buffer_bytes == buffer.capacity;
      const bool overlaps =
          at < buffer.data + buffer.capacity && buffer.data < at + other.buffer_bytes;
      if (overlaps && !is_same) return unsupported(cache, "has memory of another cache");
    }
    const auto [found, is_new] = all.try_emplace(buffer.data);
    if (is_new) {
      found->second.sizes = buffer.sizes;
      found->second.bits = bits_of(cache);
      found->second.buffer_bytes = buffer.capacity;
      const kernels::CacheCodes shape{nullptr, static_cast<size_t>(buffer.size(1)),
                                      static_cast<size_t>(buffer.size(2)),
                                      static_cast<size_t>(buffer.size(3)), found->second.bits};
      Result<Arena> arena = Arena::allocate(shape.bytes(), loading_.budget);
      if (!arena) return state_.error(arena.error().code, arena.error().message);
      found->second.arena = std::move(*arena);
    }
    JoinedCaches& joined = state_.joined;
    Tensor& memory = joined.code_tensors.emplace_back();
    memory.id = cache.id;
    memory.dtype = DType::kU8;
    memory.data = found->second.arena.data();
    memory.numel = static_cast<int64_t>(found->second.arena.size());
    memory.capacity = found->second.arena.size();
    memory.sizes = {memory.numel};
    state_.coded[static_cast<size_t>(cache.id)] = true;
    codes(cache) = {
        &joined.made.emplace_back(Value{.kind = Value::Kind::kTensor, .tensor = &memory}),
        &joined.made.emplace_back(Value{.kind = Value::Kind::kInt, .integer = found->second.bits})};
    return {};
  }

  // Replaces a step that uses a cache.
  Status change(size_t i) {
    Step& step = state_.steps[i];
    if (is_update(i)) {
      const Codes c = codes(*step.args[Update::kCache]);
      uses_.is(i, Update::kName)
          ? use(step, kCodedUpdate, Update::kOut, {c.memory, c.bits})
          : use(step, kCodedUpdateIndices, UpdateIndices::kOut, {c.memory, c.bits});
    } else if (uses_.is(i, Slice::kName) && is_coded(*step.args[Slice::kSelf])) {
      const Codes c = codes(*step.args[Slice::kSelf]);
      use(step, kCodedSlice, Slice::kOut, {c.memory, c.bits});
    } else if (uses_.is(i, Sdpa::kName)) {
      return change_sdpa(i);
    }
    return {};
  }

  // The positions of a cache that attention reads.
  struct Part {
    Value* cache;
    Value *start, *end;
    std::optional<size_t> slice;  // the step that states them
  };

  std::optional<Part> part_of(size_t sdpa, size_t arg) {
    Value* const read = state_.steps[sdpa].args[arg];
    if (is_coded(*read)) return Part{read, none(), none(), std::nullopt};
    if (read->tensor == nullptr || !uses_.is_inner(read)) return std::nullopt;
    const size_t maker = uses_.writers(read).front();
    const Step& step = state_.steps[maker];
    const bool is_slice = step.kind == Step::Kind::kKernel && step.kernel == &kCodedSlice;
    if (!is_slice || maker > sdpa || !uses_.in_one_go(maker, maker, sdpa)) return std::nullopt;
    Value* const cache = step.args[Slice::kSelf];
    for (const size_t writer : uses_.writers(cache)) {
      if (writer > maker && writer < sdpa) return std::nullopt;
    }
    for (const Value* bound : {step.args[Slice::kStart], step.args[Slice::kEnd]}) {
      if (std::ranges::any_of(uses_.writers(bound), [&](size_t at) { return at >= maker; })) {
        return std::nullopt;
      }
    }
    return Part{cache, step.args[Slice::kStart], step.args[Slice::kEnd], maker};
  }

  // Attention to other tensors stays as it is.
  Status change_sdpa(size_t i) {
    Step& step = state_.steps[i];
    const std::optional<Part> keys = part_of(i, Sdpa::kKey), values = part_of(i, Sdpa::kValue);
    if (!keys || !values) {
      for (const size_t arg : {Sdpa::kKey, Sdpa::kValue}) {
        if (is_coded(*step.args[arg])) return unsupported(*step.args[arg], "is used by " + name(i));
      }
      return {};
    }
    std::vector<Value*> more;
    for (const Part& part : {*keys, *values}) {
      const Codes c = codes(*part.cache);
      more.insert(more.end(), {c.memory, c.bits, part.cache, part.start, part.end});
      if (part.slice) read_by_attention(*part.slice);
    }
    use(step, kCodedSdpa, Sdpa::kOut, more);
    return {};
  }

  // Leaves out a slice if only attention to codes reads it.
  void read_by_attention(size_t slice) {
    const std::vector<size_t>& readers = uses_.readers(state_.steps[slice].args[Slice::kOut]);
    if (readers.size() == 1) state_.steps[slice].kind = Step::Kind::kNothing;
  }

  // Gives a step another kernel, which takes `more` behind the arguments up to `out`.
  void use(Step& step, const kernels::Kernel& kernel, size_t out, std::vector<Value*> more) {
    auto& args = state_.joined.args.emplace_back(
        step.args.begin(), step.args.begin() + static_cast<std::ptrdiff_t>(out) + 1);
    args.insert(args.end(), more.begin(), more.end());
    step.args = args;
    step.kernel = &kernel;
  }

  Value* none() { return &state_.joined.made.emplace_back(); }

  Loading& loading_;
  MethodState& state_;
  StepUses uses_;
  KvBits bits_;
  std::set<int32_t> caches_;  // values
  std::vector<Codes> codes_;  // per value
};

}  // namespace

std::optional<KvBits> parse_kv_bits(std::string_view text) {
  for (const int keys : {8, 4}) {
    for (const int values : {8, 4}) {
      const KvBits bits = {keys, values};
      if (text == to_text(bits) || text == fmt::format("{},{}", keys, values)) return bits;
    }
  }
  return std::nullopt;
}

std::string to_text(KvBits bits) {
  return bits.keys == bits.values ? fmt::format("{}", bits.keys)
                                  : fmt::format("{},{}", bits.keys, bits.values);
}

Status code_caches(Loading& loading) { return Coder(loading).run(); }

Status check_coded_memory(const MethodState& state) {
  const auto overlaps_cache = [&](const Tensor& tensor) {
    return std::ranges::any_of(state.memory->coded, [&](const auto& cache) {
      return tensor.data < cache.first + cache.second.buffer_bytes &&
             cache.first < tensor.data + tensor.capacity;
    });
  };
  for (size_t i = 0; i < state.steps.size(); ++i) {
    for (const auto& tensors : {state.steps[i].inputs, state.steps[i].outs}) {
      for (const Tensor* tensor : tensors) {
        const bool coded = tensor->id >= 0 && state.is_coded(tensor->id);
        if (coded || tensor->data == nullptr || !overlaps_cache(*tensor)) continue;
        return state.error(ErrorCode::kUnsupported,
                           fmt::format("a cache that is held in codes has the memory of {}, which "
                                       "instruction {} ({}) uses",
                                       kernels::describe(*tensor), i, state.step_names[i]));
      }
    }
  }
  return {};
}

std::vector<uint64_t> cache_bytes(std::span<const pte::Method* const> methods) {
  using Update = pte::ops::UpdateCache;
  std::set<std::tuple<uint32_t, uint64_t, uint64_t>> caches;
  for (const pte::Method* method : methods) {
    for (const pte::Instruction& instruction : method->instructions) {
      const auto* call = std::get_if<pte::KernelCall>(&instruction);
      if (call == nullptr || call->args.size() <= Update::kCache) continue;
      const std::string name = method->operators[static_cast<size_t>(call->op)].full_name();
      if (name != Update::kName && name != pte::ops::UpdateCacheIndices::kName) continue;
      const auto* tensor = std::get_if<pte::Tensor>(
          &method->values[static_cast<size_t>(call->args[Update::kCache])]);
      if (tensor == nullptr || !tensor->allocation) continue;
      uint64_t bytes = static_cast<uint64_t>(dtype_bytes(tensor->dtype));
      for (const int32_t size : tensor->sizes) bytes *= static_cast<uint64_t>(std::max(size, 0));
      caches.emplace(tensor->allocation->memory, tensor->allocation->offset, bytes);
    }
  }
  std::vector<uint64_t> by_memory;
  for (const auto& [memory, offset, bytes] : caches) {
    by_memory.resize(std::max<size_t>(by_memory.size(), memory + 1));
    by_memory[memory] += bytes;
  }
  return by_memory;
}

}  // namespace ferry::runner
