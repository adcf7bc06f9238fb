// Method: one method of a program, ready to execute: its memory is allocated, its constants and
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
#include "core/shape.h"
#include "core/thread_pool.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/reader.h"

namespace ferry::runner {

// A named constant outside of the program. The bytes must outlive the Method.
struct ExternalTensor {
  std::string_view key;
  DType dtype;
  std::span<const int32_t> sizes;
  std::span<const std::byte> bytes;
  bool is_tensor = true;  // false: data of delegates, which has no dtype and no sizes
};

// A borrowed view of a tensor: row-major, contiguous, little-endian. It does not own `bytes`; each
// function below states how long they stay valid.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// f32 values as they are, f64 and i64 ones converted; empty for other dtypes.
std::vector<float> probe_floats(const TensorView& value);

struct MethodOptions {
  // Fill planned memory with NaN bytes (0xff) instead of zeros before the first execution. State
  // buffers with stored contents get those afterwards.
  bool poison = false;
  // Hold activations that the program has in f16 or bf16 in f32, and widen matrices as they are
  // read: what the program computes without the rounding of its dtype. Delegates do not quantise
  // activations. Takes more memory.
  bool widen = false;
  // With `widen`: delegates round rows of activations to what they would be quantised to, by plain
  // code, and compute with them in f32. What 8-bit activations lose, without the products of codes.
  bool round_rows = false;
  // Compute in f64 whatever the program computes in a floating-point dtype: activations, buffers
  // and constants are f64; matrices are read as they are stored. Inputs are taken, and outputs and
  // value() are given, in the dtypes that the program states; inputs may also be f64, and
  // output_f64() rounds nothing. kUnsupported for programs with delegates. Takes up to four times
  // the planned memory.
  bool f64 = false;
  // Moves every f32 constant of rank 1 outside of the program (norms, biases) up or down by one
  // unit in the last place, by this seed: a program that any honest execution could be of.
  std::optional<uint64_t> disturb = {};
  // Execute every instruction as it is stated, also where a result could be had without it. The
  // bits of the results are the same; it takes longer.
  bool literal = false;
  // Bytes that planned memory may have. Without a value: what the system has available.
  std::optional<uint64_t> memory = {};
};

class MemoryBudget;

class Method {
 public:
  // `program` and the external bytes must outlive the Method. kUnsupported lists every operator
  // that has no kernel; kBadInput for external tensors that are absent or differ in dtype or shape;
  // kIo for planned memory beyond MethodOptions::memory. `file_name` begins the messages.
  static Result<Method> load(const pte::LoadedProgram& program, std::string_view method,
                             const std::vector<ExternalTensor>& external, ThreadPool& pool,
                             const MethodOptions& options, const std::string& file_name);
  // Several methods of one program, in the order of `methods`. They share all planned memory: each
  // memory id is one arena, as large as the method that asks for most. So they share their state,
  // and the outputs of one are valid until any of them executes. Takes the memory from `budget`.
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
  // Dtype and upper-bound shape; of what is no tensor those of its view, see output().
  TensorView input_meta(size_t index) const;
  TensorView output_meta(size_t index) const;

  // Copies the input's shape and, where memory is planned for it, its bytes; otherwise refers to
  // the caller's bytes, which must stay until execute() returns. kBadInput for dtype, rank, or
  // sizes beyond the bounds, with the input's index.
  Status set_input(size_t index, const TensorView& tensor);
  // Only rows [begin, begin + count) of the output will be read, until this is called again; a row
  // is what the last dimension holds. What other rows hold is unspecified: the method computes them
  // or not. The rows must exist.
  void want_rows(size_t index, int64_t begin, int64_t count);
  // Runs every instruction. Changes of planned memory stay for the next call; numbers start with
  // what the program stores, or with what set_input() gave. Errors name the instruction.
  // Once the method has been executed, it allocates nothing for the same shapes.
  Status execute();
  // Valid until the next execute(). A number (Int, Bool, Double) appears as rank 0, a String of n
  // bytes as u8 [n].
  const TensorView& output(size_t index) const;
  // With MethodOptions::f64, output() without rounding to f32.
  TensorView output_f64(size_t index) const;
  // Whether the output is a String.
  bool output_is_text(size_t index) const;

  // Calls `observer` right after each instruction that produces value `value`, an index into the
  // method's values. The view is valid during the call. A value has one observer at most. kUsage if
  // nothing produces the value.
  Status observe(int32_t value, const std::function<void(const TensorView&)>& observer);
  // Dtype and declared shape of a tensor among the method's values. kUsage for other values.
  Result<TensorView> value_meta(int32_t value) const;
  // Current contents of a value with planned memory or a constant; for state buffers between calls.
  // Activations may hold anything then.
  Result<TensorView> value(int32_t value) const;
  // Replaces the contents of a tensor in planned memory; inside an observer this decides what the
  // instructions that follow read; f32 values of a tensor that is held in f64 are widened. kUsage
  // if the tensor has another size or no memory of its own.
  Status overwrite(int32_t value, std::span<const std::byte> bytes);
  // Sets all planned memory to its initial contents, which are zeros where none are stored, and
  // every tensor to its declared sizes. Inputs that are numbers keep what they were given.
  void reset();

 private:
  struct Impl;
  explicit Method(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::runner
