// KvManager holds the KV caches of a static program, which its methods take as inputs. Methods
// whose caches have equal encodings use the same memory. A call of AR tokens in a context of CL has
// C = CL - AR columns, so that caches are arranged anew for a method of another AR. For methods
// that read them in place they are packed instead: the first columns of each row alone have memory.
// Then prompts and decoding share one arrangement, and the rows of keys, each of which gets one
// number per token, lie in few pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/encoding.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "runner/memory.h"

namespace ferry::runner {

// Keys or values of one layer, [1,G,D,C] or [1,G,C,D].
struct CacheTensor {
  int64_t layer = 0;
  bool is_key = false;
  int64_t heads = 0, head_dim = 0;
  std::optional<Encoding> encoding = {};  // for u8 and u16
};

// The columns that a call gives for one CacheTensor: [1,G,D,AR] or [1,G,AR,D], in the cache's
// dtype. If their encoding is not that of the cache, elements are converted once, as they are
// copied.
struct NewColumns {
  std::span<const std::byte> bytes;
  std::optional<Encoding> encoding = {};
};

// Columns from length() on always hold the number zero in every cache, so that a column that a mask
// fails to hide is no NaN, and does not differ from run to run.
class KvManager {
 public:
  // Makes caches for methods of these numbers of tokens; the first one is active. kUnsupported for
  // dtypes other than f32, f16, bf16, u16 and u8; kIo for more memory than `budget` has.
  // `pool`, if there is one, copies the columns of several caches at a time and must outlive them.
  static Result<KvManager> make(DType dtype, const std::vector<CacheTensor>& tensors, int64_t cl,
                                std::span<const int64_t> ar_lengths, MemoryBudget& budget,
                                ThreadPool* pool = nullptr);

  int64_t length() const { return length_; }
  int64_t call_length() const { return ar_; }
  int64_t room() const { return cl_ - ar_ - length_; }  // columns that update() can append
  uint64_t bytes() const { return memory_.size(); }     // bytes of all caches

  // Returns the input for tensor `index` of a method of `ar` tokens. The address never changes.
  std::span<const std::byte> view(size_t index, int64_t ar) const;

  // Moves the columns to their places for a method of `ar` tokens. kUsage if they do not fit.
  Status rearrange(int64_t ar);
  // Moves them to where a method of `ar` tokens finds them that is told stored_columns(). kUsage as
  // for rearrange().
  Status pack(int64_t ar);
  // Returns the columns of each row, or of each head of values, in memory.
  int64_t stored_columns() const { return stored_; }
  // Appends columns of a call, one NewColumns for each tensor: the first n_update, or the first
  // n_update of those that are `selected`. The call had `call_length` tokens, by default
  // call_length(). kUsage if they do not fit.
  Status update(std::span<const NewColumns> columns, int64_t n_update,
                std::span<const bool> selected = {}, std::optional<int64_t> call_length = {});
  // Empties the caches and keeps the arrangement.
  void clear();

  const CacheTensor& tensor(size_t index) const { return caches_[index].tensor; }
  // Returns the numbers of tensor `index` up to length(), as [length(),G,D] for keys and values.
  std::vector<float> floats(size_t index) const;

 private:
  struct Cache {
    CacheTensor tensor;
    size_t offset = 0;  // offset in memory_
    uint32_t zero = 0;  // the element that represents 0
    // Keys are G * D rows of elements; values are G rows of D elements each.
    int64_t rows() const { return tensor.is_key ? tensor.heads * tensor.head_dim : tensor.heads; }
    int64_t unit() const { return tensor.is_key ? 1 : tensor.head_dim; }
  };
  KvManager() = default;

  std::byte* at(const Cache& cache) { return memory_.data() + cache.offset; }
  template <class Body>
  void for_each_cache(const Body& body);
  float number(const Cache& cache, size_t element) const;
  size_t column_bytes(const Cache& cache) const;
  Status check_fit(int64_t ar) const;
  void store_columns(int64_t columns);
  void move_rows(const Cache& cache, int64_t from, int64_t to);
  void zero(const Cache& cache, size_t begin, size_t end);
  int64_t choose(int64_t n_update, std::span<const bool> selected, int64_t call_length);
  void append(const Cache& cache, const NewColumns& from, int64_t call_length);
  void copy(const Cache& cache, const std::byte* from, std::byte* to, size_t columns,
            const NewColumns& of) const;

  DType dtype_ = DType::kF32;
  size_t element_ = 4;
  int64_t cl_ = 0, ar_ = 0, length_ = 0;
  int64_t stored_ = 0, most_ = 0;  // columns of each row in memory now, and at most
  std::vector<Cache> caches_;
  Arena memory_;
  ThreadPool* pool_ = nullptr;
  // The columns of a call that update() copies, as runs of adjacent columns.
  struct Run {
    int64_t begin = 0, count = 0;
  };
  std::vector<Run> runs_;
};

}  // namespace ferry::runner
