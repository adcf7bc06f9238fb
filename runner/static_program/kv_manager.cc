#include "runner/static_program/kv_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/checked.h"
#include "runner/static_program/attention_mask.h"

namespace ferry::runner {
namespace {

constexpr uint64_t kCacheAlignment = 64;  // alignment of each cache in memory
// Packed caches have so many columns at first, and twice as many whenever they are full.
constexpr int64_t kFirstColumns = 256;
// append() fetches so many rows ahead.
constexpr int64_t kRowsAhead = 16;

bool is_cache_dtype(DType dtype) { return is_castable(dtype) || is_encoded(dtype); }

// Returns the bytes of a cache of `columns`, with the padding before the next cache.
std::optional<uint64_t> cache_bytes(const CacheTensor& tensor, int64_t columns, DType dtype) {
  const int64_t dims[] = {tensor.heads, tensor.head_dim, columns, dtype_bytes(dtype)};
  const auto bytes = checked_numel(dims);
  if (!bytes || *bytes > INT64_MAX - int64_t{kCacheAlignment}) return std::nullopt;
  return align_up(static_cast<uint64_t>(*bytes), kCacheAlignment);
}

// Converts `count` consecutive elements from one encoding to another.
void encode_anew(const std::byte* from, const Encoding& old_encoding, std::byte* to,
                 const Encoding& new_encoding, size_t count, DType dtype) {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  for (size_t i = 0; i < count; ++i) {
    uint16_t code = 0;
    std::memcpy(&code, from + i * size, size);
    code = static_cast<uint16_t>(new_encoding.code(old_encoding.real(code), dtype));
    std::memcpy(to + i * size, &code, size);
  }
}

}  // namespace

Result<KvManager> KvManager::make(DType dtype, const std::vector<CacheTensor>& tensors, int64_t cl,
                                  std::span<const int64_t> ar_lengths, MemoryBudget& budget,
                                  ThreadPool* pool) {
  if (!is_cache_dtype(dtype)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("KV caches of {}; supported are f32, f16, bf16, u16 and u8",
                            dtype_name(dtype)));
  }
  KvManager manager;
  manager.pool_ = pool;
  manager.dtype_ = dtype;
  manager.element_ = static_cast<size_t>(dtype_bytes(dtype));
  manager.cl_ = cl;
  manager.ar_ = ar_lengths.front();
  const int64_t most_columns = cl - *std::ranges::min_element(ar_lengths);
  manager.most_ = most_columns;
  manager.stored_ = cl - manager.ar_;
  uint64_t total = 0;
  for (const CacheTensor& tensor : tensors) {
    const auto bytes = cache_bytes(tensor, most_columns, dtype);
    const auto sum = bytes ? checked_add(total, *bytes) : std::nullopt;
    if (!sum || *sum > PTRDIFF_MAX) return fail(ErrorCode::kIo, "the KV caches are too large");
    const uint32_t zero = tensor.encoding ? static_cast<uint32_t>(tensor.encoding->zero_point) : 0;
    manager.caches_.push_back({tensor, static_cast<size_t>(total), zero});
    total = *sum;
  }
  manager.memory_ = FERRY_TRY(Arena::allocate(total, budget));
  manager.runs_.reserve(index(*std::ranges::max_element(ar_lengths)));
  for (const Cache& cache : manager.caches_) {
    const size_t end = index(cache.rows() * most_columns) * manager.column_bytes(cache);
    if (cache.zero != 0) manager.zero(cache, 0, end);
  }
  return manager;
}

// Calls body(cache, index) for each cache, which share no memory.
template <class Body>
void KvManager::for_each_cache(const Body& body) {
  const auto run = [&](size_t i) { body(caches_[i], i); };
  if (pool_ != nullptr) {
    // std::ref avoids a copy of the body, which would allocate.
    pool_->parallel_for(caches_.size(), std::ref(run));
  } else {
    for (size_t i = 0; i < caches_.size(); ++i) run(i);
  }
}

size_t KvManager::column_bytes(const Cache& cache) const { return index(cache.unit()) * element_; }

std::span<const std::byte> KvManager::view(size_t index_of, int64_t ar) const {
  const Cache& cache = caches_[index_of];
  return {memory_.data() + cache.offset, index(cache.rows() * (cl_ - ar)) * column_bytes(cache)};
}

// Sets bytes [begin, end) of a cache to the element of zero.
void KvManager::zero(const Cache& cache, size_t begin, size_t end) {
  if (begin < end) fill(at(cache) + begin, (end - begin) / element_, {cache.zero, element_});
}

void KvManager::clear() {
  for (const Cache& cache : caches_) {
    const size_t column = column_bytes(cache);
    for (int64_t row = 0; row < cache.rows(); ++row) {
      const size_t begin = index(row * stored_) * column;
      zero(cache, begin, begin + index(length_) * column);
    }
  }
  length_ = 0;
}

// Changes rows of `from` columns to rows of `to` columns. If rows move closer together, the first
// row moves first, otherwise the last, so that none is overwritten before it has moved. The rest of
// each row is zeroed.
void KvManager::move_rows(const Cache& cache, int64_t from, int64_t to) {
  const size_t column = column_bytes(cache);
  const size_t used = index(length_) * column;
  for (int64_t i = 0; i < cache.rows(); ++i) {
    const int64_t row = to < from ? i : cache.rows() - 1 - i;
    const size_t source = index(row * from) * column, target = index(row * to) * column;
    std::memmove(at(cache) + target, at(cache) + source, used);
    if (target < source) {
      zero(cache, std::max(source, target + used), source + used);
    } else {
      zero(cache, source, std::min(source + used, target));
    }
  }
}

Status KvManager::check_fit(int64_t ar) const {
  if (length_ <= cl_ - ar) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{} cached positions exceed the {} of calls of {} tokens", length_,
                          cl_ - ar, ar));
}

void KvManager::store_columns(int64_t columns) {
  if (columns == stored_) return;
  for_each_cache([&](const Cache& cache, size_t) { move_rows(cache, stored_, columns); });
  stored_ = columns;
}

Status KvManager::rearrange(int64_t ar) {
  FERRY_RETURN_IF_ERROR(check_fit(ar));
  store_columns(cl_ - ar);
  ar_ = ar;
  return {};
}

Status KvManager::pack(int64_t ar) {
  FERRY_RETURN_IF_ERROR(check_fit(ar));
  if (length_ == 0) store_columns(std::min(stored_, kFirstColumns));
  ar_ = ar;
  return {};
}

// Fills runs_ with the columns that update() copies. Returns their number.
int64_t KvManager::choose(int64_t n_update, std::span<const bool> selected, int64_t call_length) {
  runs_.clear();
  int64_t chosen = 0;
  for (int64_t i = 0; i < call_length && chosen < n_update; ++i) {
    if (!selected.empty() && (i >= std::ssize(selected) || !selected[index(i)])) continue;
    const bool follows = !runs_.empty() && runs_.back().begin + runs_.back().count == i;
    if (!follows) runs_.push_back({i, 0});
    ++runs_.back().count;
    ++chosen;
  }
  return chosen;
}

void KvManager::copy(const Cache& cache, const std::byte* from, std::byte* to, size_t columns,
                     const NewColumns& of) const {
  if (of.encoding == cache.tensor.encoding) {
    std::memcpy(to, from, columns * column_bytes(cache));
  } else {
    encode_anew(from, *of.encoding, to, *cache.tensor.encoding, columns * index(cache.unit()),
                dtype_);
  }
}

// Copies the chosen columns of a call, for every head.
void KvManager::append(const Cache& cache, const NewColumns& from, int64_t call_length) {
  const size_t column = column_bytes(cache);
  for (int64_t row = 0; row < cache.rows(); ++row) {
    const std::byte* source = from.bytes.data() + index(row * call_length) * column;
    std::byte* target = at(cache) + index(row * stored_ + length_) * column;
    // A token has one number in each row of keys. Processors store one after the other, so each
    // would wait for its row.
    __builtin_prefetch(
        target + index(std::min(kRowsAhead, cache.rows() - 1 - row) * stored_) * column, 1);
    for (const Run& run : runs_) {
      copy(cache, source + index(run.begin) * column, target, index(run.count), from);
      target += index(run.count) * column;
    }
  }
}

Status KvManager::update(std::span<const NewColumns> columns, int64_t n_update,
                         std::span<const bool> selected, std::optional<int64_t> call_length) {
  const int64_t tokens = call_length.value_or(ar_);
  if (choose(n_update, selected, tokens) != n_update || n_update > room()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} new columns do not fit: a call has {} tokens, and {} of {} columns "
                            "are cached",
                            n_update, tokens, length_, cl_ - ar_));
  }
  if (length_ + n_update > stored_) {
    store_columns(std::min(std::max(length_ + n_update, 2 * stored_), most_));
  }
  for_each_cache([&](const Cache& cache, size_t i) { append(cache, columns[i], tokens); });
  length_ += n_update;
  return {};
}

float KvManager::number(const Cache& cache, size_t element) const {
  const std::byte* from = memory_.data() + cache.offset + element * element_;
  if (cache.tensor.encoding) {
    uint16_t code = 0;
    std::memcpy(&code, from, element_);
    return static_cast<float>(cache.tensor.encoding->real(code));
  }
  float value = 0;
  to_f32(dtype_, from, &value, 1);
  return value;
}

std::vector<float> KvManager::floats(size_t index_of) const {
  const Cache& cache = caches_[index_of];
  const auto [layer, is_key, heads, dim, encoding] = cache.tensor;
  std::vector<float> out;
  out.reserve(index(length_ * heads * dim));
  for (int64_t t = 0; t < length_; ++t) {
    for (int64_t row = 0; row < heads * dim; ++row) {
      // Keys are [G,D,C], values [G,C,D].
      const int64_t at = is_key ? row * stored_ + t : (row / dim * stored_ + t) * dim + row % dim;
      out.push_back(number(cache, index(at)));
    }
  }
  return out;
}

}  // namespace ferry::runner
