// The operators of llama::, which are caches, attention and the gated delta rule.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cache_codes.h"
#include "kernels/compute.h"
#include "kernels/compute_f64.h"
#include "kernels/compute_scratch.h"
#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

// Gives the f32 values of a tensor: its own memory, or a converted copy.
class F32View {
 public:
  explicit F32View(const Tensor& tensor) : data_(tensor.as<float>()) {
    if (!is_half(tensor.dtype)) return;
    copy_.resize(static_cast<size_t>(tensor.numel));
    data_ = copy_.data();
    load(tensor.dtype, tensor.data, copy_.data(), tensor.numel);
  }
  const float* data() const { return data_; }

 private:
  const float* data_;
  std::vector<float> copy_;
};

// Keys or values. Codes also have scales and zero points.
struct Cache {
  const Tensor& rows;  // [B,context,KV,D]
  const float* scales = nullptr;
  const int8_t* zero_points = nullptr;
  const CacheCodes* codes = nullptr;  // in place of the data of `rows`

  StoredRows stored() const {
    if (codes != nullptr) return {.dtype = DType::kU8, .at = codes->at, .codes = codes};
    return {rows.dtype, rows.data, scales, zero_points};
  }
};

struct Attention {
  const Tensor& query;  // [B,S,H,D]; codes only with query_codes
  Cache key, value;
  int64_t start_pos;
  const Tensor* mask;  // [S,context], possibly with leading dimensions of 1
  bool causal;
  std::optional<Number> scale;
  Tensor& out;
  StoredRows query_codes{};  // what the codes of the query stand for
};

// Returns the numbers that codes stand for, with a scale and a zero point for each row.
std::vector<float> decoded(const Tensor& codes, const StoredRows& rows) {
  std::vector<float> values(static_cast<size_t>(codes.numel));
  const auto width = static_cast<size_t>(codes.sizes.back());
  const int8_t* code = codes.as<int8_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t row = i / width;
    values[i] = static_cast<float>(code[i] - rows.zero_points[row]) * rows.scales[row];
  }
  return values;
}

Status check_dtypes(const Attention& a) {
  for (const Tensor* t : {&a.query, &a.key.rows, &a.value.rows}) {
    FERRY_RETURN_IF_ERROR(require_same_dtype(*t, a.out));
    if (t->dtype != DType::kF64 && !is_castable(t->dtype))
      return bad_input(fmt::format("{} must be floating", describe(*t)));
  }
  return {};
}

Status check_attention(const Attention& a) {
  const Tensor& key = a.key.rows;
  for (const Tensor* t : {&a.query, &key, &a.value.rows}) {
    FERRY_RETURN_IF_ERROR(require_rank(*t, 4));
  }
  FERRY_RETURN_IF_ERROR(require_sizes(a.value.rows, key.sizes));
  const int64_t kv_heads = key.size(2);
  if (a.query.size(0) != key.size(0) || a.query.size(3) != key.size(3) || kv_heads == 0 ||
      a.query.size(2) % kv_heads != 0) {
    return bad_input(
        fmt::format("shape mismatch: query {}, key {}", describe(a.query), describe(key)));
  }
  const bool wide = key.dtype == DType::kF32 || key.dtype == DType::kF64;
  if (!wide && key.size(3) > kMaxStoredDim) {
    return bad_input(
        fmt::format("{} has heads of more than {} values", describe(key), kMaxStoredDim));
  }
  const int64_t context = key.size(1);
  // With a mask every query is compared with all keys, and there may be more queries than keys.
  const int64_t queries = a.mask == nullptr ? a.query.size(1) : 0;
  if (a.start_pos < 0 || a.start_pos > context || queries > context - a.start_pos) {
    return bad_input(fmt::format("{} positions from {} do not fit a context of {}", a.query.size(1),
                                 a.start_pos, context));
  }
  if (a.mask == nullptr) return {};
  if (a.causal) return bad_input("attention has both a mask and the causal flag");
  const Tensor& mask = *a.mask;
  const bool f64 = a.out.dtype == DType::kF64;
  FERRY_RETURN_IF_ERROR(require_dtype(mask, f64 ? DType::kF64 : DType::kF32));
  if (mask.rank() < 2 || mask.numel != a.query.size(1) * context || mask.sizes.back() != context ||
      mask.size(mask.rank() - 2) != a.query.size(1)) {
    return bad_input(fmt::format("shape mismatch: mask {}, {} queries, context of {}",
                                 describe(mask), a.query.size(1), context));
  }
  return {};
}

Status attend(const Call& call, const Attention& a) {
  FERRY_RETURN_IF_ERROR(check_attention(a));
  FERRY_RETURN_IF_ERROR(resize(a.out, a.query.sizes));
  if (a.out.numel == 0) return {};
  const Tensor& key = a.key.rows;
  kernels::SdpaShape shape{a.query.size(0), a.query.size(1), a.query.size(2),
                           key.size(2),     a.query.size(3), key.size(1)};
  if (a.out.dtype == DType::kF64) {
    const double wide_scale = a.scale ? a.scale->real : 1 / std::sqrt(double(shape.dim));
    kernels::sdpa_f64(shape, a.query.as<double>(), key.as<double>(), a.value.rows.as<double>(),
                      a.mask == nullptr ? nullptr : a.mask->as<double>(), a.causal, a.start_pos,
                      wide_scale, a.out.as<double>(), call.pool);
    return {};
  }
  const bool coded = a.query_codes.scales != nullptr;
  const std::vector<float> numbers = coded ? decoded(a.query, a.query_codes) : std::vector<float>();
  const F32View query(a.query);
  const float* queries = coded ? numbers.data() : query.data();
  const bool turned = a.key.codes != nullptr;
  const auto dim = static_cast<size_t>(shape.dim), rows = static_cast<size_t>(a.out.numel) / dim;
  const Scratch turned_queries(turned ? rows * dim : 0);
  if (turned) {
    std::memcpy(turned_queries.data(), queries, rows * dim * sizeof(float));
    turn_rows(dim, rows, turned_queries.data(), call.pool);
    queries = turned_queries.data();
  }
  const float scale =
      a.scale ? static_cast<float>(a.scale->real) : 1.0F / std::sqrt(static_cast<float>(shape.dim));
  std::vector<float> result(a.out.dtype == DType::kF32 ? 0 : static_cast<size_t>(a.out.numel));
  float* const out = result.empty() ? a.out.as<float>() : result.data();
  kernels::sdpa_f32(shape, queries, a.key.stored(), a.value.stored(),
                    a.mask == nullptr ? nullptr : a.mask->as<float>(), a.causal, a.start_pos, scale,
                    out, call.pool);
  if (turned) turn_rows(dim, rows, out, call.pool);
  if (!result.empty()) store(a.out.dtype, result.data(), a.out.data, a.out.numel);
  return {};
}

// A range of positions of a cache [1,context,KV,D], in the stored dtype.
struct CacheSlice {
  Tensor rows;
  const float* scales = nullptr;
  const int8_t* zero_points = nullptr;

  Cache cache() const { return {rows, scales, zero_points}; }
};

// The codes of positions [start, end) of a cache, and a tensor with their shape and no memory.
struct CodedSlice {
  Tensor rows;
  CacheCodes codes;

  Cache cache() const { return {.rows = rows, .codes = &codes}; }
};

// Returns the codes of `buffer` [1,context,KV,D]. The arguments from `at` on are their memory and
// the number of bits.
CacheCodes codes_at(const Call& call, size_t at, const Tensor& buffer) {
  return {tensor(call, at).data, static_cast<size_t>(buffer.size(1)),
          static_cast<size_t>(buffer.size(2)), static_cast<size_t>(buffer.size(3)),
          static_cast<int>(integer(call, at + 1))};
}

// The arguments from `at` on are memory, bits, buffer, start, end.
Result<CodedSlice> coded_slice(const Call& call, size_t at) {
  CodedSlice slice{tensor(call, at + 2), codes_at(call, at, tensor(call, at + 2))};
  Tensor& rows = slice.rows;
  const Range range = FERRY_TRY(
      slice_range(rows.size(1), optional_int(call, at + 3), optional_int(call, at + 4), 1));
  rows.sizes[1] = range.count;
  rows.numel = range.count * rows.size(2) * rows.size(3);
  slice.codes.at += static_cast<size_t>(range.start) * slice.codes.row_bytes();
  return slice;
}

// Checks scales as the operator that dequantises rows of codes does: 0 is that of an unwritten row.
Status check_scales(const float* scales, int64_t n) {
  constexpr float kLeast = std::numeric_limits<float>::min(), kGreatest = 1 / kLeast;
  for (int64_t i = 0; i < n; ++i) {
    if (scales[i] != 0 && !(scales[i] >= kLeast && scales[i] <= kGreatest)) {
      return bad_input(fmt::format("a scale of {}", scales[i]));
    }
  }
  return {};
}

// The arguments from `at` on are cache, scales, zero_points, start, end.
Result<CacheSlice> cache_slice(const Call& call, size_t at) {
  CacheSlice slice{tensor(call, at)};
  Tensor& rows = slice.rows;
  const Range range = FERRY_TRY(
      slice_range(rows.size(1), optional_int(call, at + 3), optional_int(call, at + 4), 1));
  const int64_t heads = rows.size(2), row = heads * rows.size(3);
  rows.sizes[1] = range.count;
  rows.numel = range.count * row;
  rows.data += range.start * row * rows.element_bytes();
  const Tensor* const scales = optional_tensor(call, at + 1);
  if (scales == nullptr) return slice;
  slice.scales = scales->as<float>() + range.start * heads;
  slice.zero_points = tensor(call, at + 2).as<int8_t>() + range.start * heads;
  FERRY_RETURN_IF_ERROR(check_scales(slice.scales, range.count * heads));
  return slice;
}

// Reads the arguments of custom_sdpa.
Attention sdpa_of(const Call& call, Cache key, Cache value) {
  return {tensor(call, 0),
          key,
          value,
          integer(call, 3),
          optional_tensor(call, 4),
          boolean(call, 6),
          optional_number(call, 7),
          tensor(call, 8)};
}

// Reads the codes, and the zero points and scales [B,S,H,1] in the arguments from `at` on, which
// must be there.
Result<StoredRows> coded_rows(const Call& call, const Tensor& codes, size_t at) {
  const Tensor* const zero_points = optional_tensor(call, at);
  const Tensor* const scales = optional_tensor(call, at + 1);
  if (zero_points == nullptr || scales == nullptr) {
    return bad_input(fmt::format("{} has no scales and zero points", describe(codes)));
  }
  FERRY_RETURN_IF_ERROR(require_rank(codes, 4));
  FERRY_RETURN_IF_ERROR(require_dtype(codes, DType::kI8));
  FERRY_RETURN_IF_ERROR(require_dtype(*zero_points, DType::kI8));
  FERRY_RETURN_IF_ERROR(require_dtype(*scales, DType::kF32));
  Dims rows = codes.sizes;
  rows[3] = 1;
  FERRY_RETURN_IF_ERROR(require_sizes(*zero_points, rows));
  FERRY_RETURN_IF_ERROR(require_sizes(*scales, rows));
  return StoredRows{codes.dtype, codes.data, scales->as<float>(), zero_points->as<int8_t>()};
}

// Checks that the rows of `value` [B,S,KV,D] and `cache` [B,context,KV,D] have equal shapes.
Status check_cache(const Tensor& value, const Tensor& cache) {
  FERRY_RETURN_IF_ERROR(require_rank(value, 4));
  FERRY_RETURN_IF_ERROR(require_same_dtype(value, cache));
  Dims sizes = value.sizes;
  if (cache.rank() == 4) sizes[1] = cache.size(1);
  return require_sizes(cache, sizes);
}

// Checks that the rows of `value` fit the positions of the cache from `start` on.
Status check_positions(const Tensor& value, const Tensor& cache, int64_t start) {
  FERRY_RETURN_IF_ERROR(check_cache(value, cache));
  const int64_t tokens = value.size(1);
  const int64_t context = cache.size(1);
  if (start >= 0 && start <= context && tokens <= context - start) return {};
  return bad_input(
      fmt::format("{} positions from {} do not fit cache {}", tokens, start, describe(cache)));
}

Status write_cache(const Tensor& value, Tensor& cache, int64_t start) {
  FERRY_RETURN_IF_ERROR(check_positions(value, cache, start));
  if (value.numel == 0) return {};
  const int64_t tokens = value.size(1), context = cache.size(1);
  const int64_t row = value.size(2) * value.size(3) * value.element_bytes();
  for (int64_t b = 0; b < value.size(0); ++b) {
    std::memcpy(cache.data + (b * context + start) * row, value.data + b * tokens * row,
                static_cast<size_t>(tokens * row));
  }
  return {};
}

// Calls write(i, at) for each token i of the value and its position, which `indices` [B,S] holds; a
// token with the position -1 is skipped.
template <class Write>
Status for_indices(const Call& call, const Write& write) {
  const Tensor& value = tensor(call, 0);
  const Tensor& cache = tensor(call, 1);
  const Tensor& indices = tensor(call, 3);
  FERRY_RETURN_IF_ERROR(check_cache(value, cache));
  FERRY_RETURN_IF_ERROR(require_dtype(indices, DType::kI64));
  FERRY_RETURN_IF_ERROR(require_sizes(indices, {value.size(0), value.size(1)}));
  for (int64_t i = 0; i < indices.numel; ++i) {
    const int64_t at = indices.as<int64_t>()[i];
    if (at == -1 || value.numel == 0) continue;
    if (at < 0 || at >= cache.size(1)) {
      return bad_input(fmt::format("position {} does not fit cache {}", at, describe(cache)));
    }
    write(i, at);
  }
  return {};
}

int64_t bytes_of_token(const Tensor& value) {
  return value.size(2) * value.size(3) * value.element_bytes();
}

}  // namespace

Status update_cache(const Call& call) {
  return write_cache(tensor(call, 0), tensor(call, 1), integer(call, 2));
}

Status update_cache_indices(const Call& call) {
  return for_indices(call, [&](int64_t i, int64_t at) {
    const Tensor& value = tensor(call, 0);
    Tensor& cache = tensor(call, 1);
    const int64_t row = bytes_of_token(value), b = i / value.size(1);
    std::memcpy(cache.data + (b * cache.size(1) + at) * row, value.data + i * row,
                static_cast<size_t>(row));
  });
}

Status coded_update_cache(const Call& call) {
  const Tensor& value = tensor(call, 0);
  const Tensor& cache = tensor(call, 1);
  const int64_t start = integer(call, 2);
  FERRY_RETURN_IF_ERROR(check_positions(value, cache, start));
  store_codes(codes_at(call, 4, cache), static_cast<size_t>(start), value.dtype, value.data,
              static_cast<size_t>(value.size(1)), call.pool);
  return {};
}

Status coded_update_cache_indices(const Call& call) {
  const Tensor& value = tensor(call, 0);
  const CacheCodes codes = codes_at(call, 5, tensor(call, 1));
  return for_indices(call, [&](int64_t i, int64_t at) {
    store_codes(codes, static_cast<size_t>(at), value.dtype, value.data + i * bytes_of_token(value),
                1, call.pool);
  });
}

Status custom_sdpa(const Call& call) {
  const Attention a = sdpa_of(call, {tensor(call, 1)}, {tensor(call, 2)});
  FERRY_RETURN_IF_ERROR(check_dtypes(a));
  return attend(call, a);
}

// The arguments behind those of custom_sdpa are zero points and scales of query, key and value.
Status custom_quantized_sdpa(const Call& call) {
  if (boolean(call, 14)) {
    return fail(ErrorCode::kUnsupported,
                "llama::custom_quantized_sdpa.out with is_seq_at_dim_2: expected caches [B,S,H,D]");
  }
  const StoredRows query = FERRY_TRY(coded_rows(call, tensor(call, 0), 8));
  const StoredRows key = FERRY_TRY(coded_rows(call, tensor(call, 1), 10));
  const StoredRows value = FERRY_TRY(coded_rows(call, tensor(call, 2), 12));
  FERRY_RETURN_IF_ERROR(require_dtype(tensor(call, 15), DType::kF32));
  return attend(call, {tensor(call, 0),
                       {tensor(call, 1), key.scales, key.zero_points},
                       {tensor(call, 2), value.scales, value.zero_points},
                       integer(call, 3),
                       optional_tensor(call, 4),
                       boolean(call, 6),
                       optional_number(call, 7),
                       tensor(call, 15),
                       query});
}

Status stored_sdpa(const Call& call) {
  const CacheSlice key = FERRY_TRY(cache_slice(call, 9));
  const CacheSlice value = FERRY_TRY(cache_slice(call, 14));
  return attend(call, sdpa_of(call, key.cache(), value.cache()));
}

Status coded_sdpa(const Call& call) {
  const CodedSlice key = FERRY_TRY(coded_slice(call, 9));
  const CodedSlice value = FERRY_TRY(coded_slice(call, 14));
  const Attention a = sdpa_of(call, key.cache(), value.cache());
  FERRY_RETURN_IF_ERROR(check_dtypes(a));
  return attend(call, a);
}

Status coded_slice_copy(const Call& call) {
  const Tensor& cache = tensor(call, 0);
  Tensor& out = tensor(call, 5);
  FERRY_RETURN_IF_ERROR(require_same_dtype(cache, out));
  const Range range =
      FERRY_TRY(slice_range(cache.size(1), optional_int(call, 2), optional_int(call, 3), 1));
  FERRY_RETURN_IF_ERROR(resize(out, {1, range.count, cache.size(2), cache.size(3)}));
  const bool direct = out.dtype == DType::kF32;
  const Scratch values(direct ? 0 : static_cast<size_t>(out.numel));
  float* const rows = direct ? out.as<float>() : values.data();
  load_codes(codes_at(call, 6, cache), static_cast<size_t>(range.start),
             static_cast<size_t>(range.count), rows, call.pool);
  if (!direct) store(out.dtype, rows, out.data, out.numel);
  return {};
}

Status sdpa_with_kv_cache(const Call& call) {
  Tensor& key_cache = tensor(call, 3);
  Tensor& value_cache = tensor(call, 4);
  const int64_t start = integer(call, 5);
  FERRY_RETURN_IF_ERROR(write_cache(tensor(call, 1), key_cache, start));
  FERRY_RETURN_IF_ERROR(write_cache(tensor(call, 2), value_cache, start));
  const Attention a = {tensor(call, 0),
                       {key_cache},
                       {value_cache},
                       start,
                       optional_tensor(call, 7),
                       boolean(call, 9),
                       optional_number(call, 10),
                       tensor(call, 11)};
  FERRY_RETURN_IF_ERROR(check_dtypes(a));
  return attend(call, a);
}

Status gated_delta_rule(const Call& call) {
  const Tensor& query = tensor(call, 0);
  const Tensor& value = tensor(call, 2);
  const Tensor& decay = tensor(call, 3);
  const Tensor& state = tensor(call, 5);
  Tensor& out = tensor(call, 6);
  Tensor& final_state = tensor(call, 7);
  const bool f64 = out.dtype == DType::kF64;
  for (size_t i = 0; i < 8; ++i) {
    FERRY_RETURN_IF_ERROR(require_dtype(tensor(call, i), f64 ? DType::kF64 : DType::kF32));
  }
  FERRY_RETURN_IF_ERROR(require_rank(query, 4));
  FERRY_RETURN_IF_ERROR(require_rank(value, 4));
  const Tensor& key = tensor(call, 1);
  FERRY_RETURN_IF_ERROR(require_rank(key, 4));
  const int64_t b = query.size(0), t = query.size(2), k = query.size(3), v = value.size(3);
  const int64_t h = key.size(1);
  // Several heads of the query may read one state.
  const int64_t queries = h == 0 ? 1 : std::max<int64_t>(1, query.size(1) / h);
  const bool per_key = decay.rank() == 4;
  FERRY_RETURN_IF_ERROR(require_sizes(query, {b, h * queries, t, k}));
  FERRY_RETURN_IF_ERROR(require_sizes(key, {b, h, t, k}));
  FERRY_RETURN_IF_ERROR(require_sizes(value, {b, h, t, v}));
  FERRY_RETURN_IF_ERROR(require_sizes(decay, per_key ? Dims{b, h, t, k} : Dims{b, h, t}));
  FERRY_RETURN_IF_ERROR(require_sizes(tensor(call, 4), {b, h, t}));
  FERRY_RETURN_IF_ERROR(require_sizes(state, {b, h, k, v}));
  FERRY_RETURN_IF_ERROR(resize(out, {b, h * queries, t, v}));
  FERRY_RETURN_IF_ERROR(resize(final_state, state.sizes));
  if (state.numel == 0) {
    fill(out, Number::of_int(0));
    return {};
  }
  const DeltaRuleShape shape{b, h, t, k, v, per_key, queries};
  if (f64) {
    kernels::gated_delta_rule_f64(shape, query.as<double>(), key.as<double>(), value.as<double>(),
                                  decay.as<double>(), tensor(call, 4).as<double>(),
                                  state.as<double>(), out.as<double>(), final_state.as<double>(),
                                  call.pool);
    return {};
  }
  kernels::gated_delta_rule_f32(shape, query.as<float>(), key.as<float>(), value.as<float>(),
                                decay.as<float>(), tensor(call, 4).as<float>(), state.as<float>(),
                                out.as<float>(), final_state.as<float>(), call.pool);
  return {};
}

}  // namespace ferry::kernels
