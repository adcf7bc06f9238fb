// Method is one method of a program, ready to execute: its memory is allocated, its constants and
// operators are looked up, and its state is kept between executions.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/reader.h"
#include "runner/profile.h"

namespace ferry::runner {

// A named constant outside of the program. The bytes must outlive the Method.
struct ExternalTensor {
  std::string_view key;
  DType dtype;
  std::span<const int32_t> sizes;
  std::span<const std::byte> bytes;
  bool is_tensor = true;  // false for data of delegates, which has no dtype and no sizes
};

// A borrowed view of a tensor: row-major, contiguous, little-endian. It does not own `bytes`; each
// function below states how long they stay valid.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// Returns f32 values unchanged and f64 and i64 values converted; empty for other dtypes.
std::vector<float> probe_floats(const TensorView& value);

// The bits of keys and of values in the caches of a stateful decoder: 8 or 4, or 0 as the program
// states them. kernels/cache_codes.h documents the codes.
struct KvBits {
  int keys = 0, values = 0;
  explicit operator bool() const { return keys != 0; }
};
// Reads "8" or "4", or two of them for keys and values, as "8,4". nullopt for another text.
std::optional<KvBits> parse_kv_bits(std::string_view text);
inline constexpr std::string_view kKvBitsForms = "8, 4, or two of them as in 8,4";
// Returns the text that parse_kv_bits() reads.
std::string to_text(KvBits bits);

struct MethodOptions {
  // Fill planned memory with NaN bytes (0xff) instead of zeros before the first execution. State
  // buffers with stored contents get these contents afterwards.
  bool poison = false;
  // Keep the program's f16 and bf16 activations in f32, and widen matrices as they are read, so
  // that the method computes without the rounding of these dtypes. Delegates do not quantise
  // activations. Takes more memory.
  bool widen = false;
  // With `widen`: delegates quantise and dequantise rows of activations with plain code, and
  // compute with them in f32. This measures the loss of 8-bit activations without the products of
  // codes.
  bool round_rows = false;
  // Compute in f64 where the program computes in a floating-point dtype. Activations, buffers and
  // constants are f64; matrices are read in their stored dtype. Inputs, outputs and value() have
  // the dtypes that the program states; inputs may also be f64, and output_f64() rounds nothing.
  // kUnsupported for programs with delegates. Takes up to four times the planned memory.
  bool f64 = false;
  // Move every f32 vector outside of the program, or inside if nothing is outside, and every one
  // that is a constant of a delegate (norms, biases), up or down by one unit in the last place,
  // with this seed. Any honest execution could be of such a program.
  std::optional<uint64_t> disturb = {};
  // Execute every instruction as stated, even if its result is available without it. The bits of
  // the results are equal, but execution takes longer.
  bool literal = false;
  // Multiply matrices of bf16 by the processor's own products of bf16, whose sums differ in
  // rounding from those of f32 (kernels/bf16_linear.h). Proofs leave this out.
  bool own_bf16 = false;
  // Hold caches as codes, in place of the planned buffers that update_cache writes. value() and
  // overwrite() do not give these. kUnsupported for a cache that something else writes or reads.
  KvBits kv_bits = {};
  // The limit of the bytes of planned memory. The default is the memory that the system has
  // available.
  std::optional<uint64_t> memory = {};
  // Measure every instruction. The times are added here.
  Profile* profile = nullptr;
};

class MemoryBudget;

class Method {
 public:
  // `program` and the external bytes must outlive the Method. kUnsupported lists every operator
  // that has no kernel; kBadInput is for external tensors that are absent or differ in dtype or
  // shape, kIo for planned memory beyond MethodOptions::memory. `file_name` begins error messages.
  static Result<Method> load(const pte::LoadedProgram& program, std::string_view method,
                             const std::vector<ExternalTensor>& external, ThreadPool& pool,
                             const MethodOptions& options, const std::string& file_name);
  // Loads several methods of one program, in the order of `methods`. They share all planned memory:
  // each memory id is one arena, with the size of the largest request. So they share their state,
  // and the outputs of a method are valid until any of them executes. The memory is taken from
  // `budget`.
  static Result<std::vector<Method>> load_all(const pte::LoadedProgram& program,
                                              std::span<const std::string_view> methods,
                                              const std::vector<ExternalTensor>& external,
                                              ThreadPool& pool, const MethodOptions& options,
                                              MemoryBudget& budget, const std::string& file_name);
  ~Method();
  Method(Method&&) noexcept;
  Method& operator=(Method&&) noexcept;

  size_t input_count() const;
  size_t output_count() const;
  // Returns dtype and upper-bound shape. For values that are no tensors these are those of
  // output(). With MethodOptions::widen the dtype of what the program states in half precision is
  // f32.
  TensorView input_meta(size_t index) const;
  TensorView output_meta(size_t index) const;
  bool widens() const;  // whether it was loaded with MethodOptions::widen

  // Copies the input's shape and, if it has planned memory, its bytes. Otherwise the method refers
  // to the caller's bytes, which must stay until execute() returns. kBadInput, with the input's
  // index, for a wrong dtype or rank, or sizes beyond the bounds.
  Status set_input(size_t index, const TensorView& tensor);
  // Says that only rows [begin, begin + count) of the output will be read, until the next call. A
  // row is the last dimension. The contents of other rows are unspecified, because the method may
  // leave them out. The rows must exist.
  void want_rows(size_t index, int64_t begin, int64_t count);
  // Returns whether an input, a cache [1,G,D,C] or [1,G,C,D], may have its C columns at the
  // distance that set_stored_columns() says: attention that reads it in place is all that does. An
  // observer may change the answer.
  bool can_be_strided(size_t index) const;
  // Says that such inputs have only the first `columns` of each row or head in memory, which follow
  // each other there; the other columns are zeros. 0: all of them, as their shape says. More than C
  // leave a gap behind each row. The caller's memory must have them for every row.
  void set_stored_columns(int64_t columns);
  // Runs every instruction. Changes of planned memory stay for the next call. Numbers start with
  // the program's stored values, or with those of set_input(). Errors name the instruction. After
  // the first execution, it allocates nothing for unchanged shapes.
  Status execute();
  // Executes several loads of one method, each once. Every result has the bits that execute() gives
  // it, but a matrix is read only once for all of them. Errors as for execute().
  static Status execute_together(std::span<Method* const> methods);
  // Valid until the next execute(). A number (Int, Bool, Double) appears as rank 0, a String of n
  // bytes as u8 [n].
  const TensorView& output(size_t index) const;
  // With MethodOptions::f64, returns output() without rounding to f32.
  TensorView output_f64(size_t index) const;
  // Returns whether the output is a String.
  bool output_is_text(size_t index) const;

  // Calls `observer` right after each instruction that produces `value`, an index into the method's
  // values. The view is valid during the call. A value has at most one observer. kUsage if no
  // instruction produces the value.
  Status observe(int32_t value, const std::function<void(const TensorView&)>& observer);
  // Returns dtype and declared shape of a tensor among the method's values. kUsage for other
  // values.
  Result<TensorView> value_meta(int32_t value) const;
  // Returns the current contents of a value with planned memory or of a constant. It serves state
  // buffers between calls; the contents of activations are unspecified then.
  Result<TensorView> value(int32_t value) const;
  // Replaces the contents of a tensor in planned memory. In an observer, later instructions read
  // the new contents. f32 values of a tensor that is kept in f64 are widened. kUsage if the tensor
  // has another size or no memory of its own.
  Status overwrite(int32_t value, std::span<const std::byte> bytes);
  // Replaces the first bytes of such a tensor. kUsage if the tensor is smaller, or kept in f64.
  Status overwrite_front(int32_t value, std::span<const std::byte> bytes);
  // Returns whether caches are held as codes (MethodOptions::kv_bits).
  bool has_coded_caches() const;
  // Sets all planned memory to its initial contents, which are zeros if none are stored, and every
  // tensor to its declared sizes. Inputs that are numbers keep their values.
  void reset();

 private:
  struct Impl;
  explicit Method(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::runner
