// Delegate is the XNNPACK graph of one DelegateCall, compiled to steps over the kernels of
// kernels/. docs/delegates.md says which nodes and types are supported, and with which arithmetic.
//
// Shapes follow from those of the call's inputs at run time: they pass through the nodes, and the
// outputs of the call are resized. The values between nodes are in scratch memory that all
// delegates of a program share.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "formats/xnnpack/graph.h"
#include "kernels/quantized_linear.h"
#include "kernels/tensor.h"
#include "runner/memory.h"

namespace ferry::runner {

// The packed matrices and the scratch memory that the delegates of all methods of one program
// share.
class DelegateMemory {
 public:
  explicit DelegateMemory(bool poison) : poison_(poison) {}

  // Returns the packed matrix, which is shared by equal bytes and coding. Its memory counts as
  // planned memory. Valid while this object and the bytes live.
  Result<const kernels::PackedMatrix*> packed(const kernels::CodedMatrix& matrix,
                                              MemoryBudget& budget);

  // Provides at least `bytes` bytes of scratch memory, aligned to 64. A larger request moves the
  // memory. Its contents last for one execution of a delegate.
  Status reserve(uint64_t bytes, MemoryBudget& budget);
  std::byte* scratch() const { return scratch_.data(); }

 private:
  struct Key {
    const std::byte *codes, *scales;
    int64_t rows, columns, group;
    int bits;
    DType scale_dtype;
    auto operator<=>(const Key&) const = default;
  };

  bool poison_;
  std::map<Key, kernels::PackedMatrix> packed_;
  Arena scratch_;
};

struct DelegateSource {
  const xnnpack::Graph& graph;
  // Bytes of Graph::constants, which must outlive the Delegate; [0] is unused.
  std::span<const std::span<const std::byte>> constants;
  // Arguments of the call, with their largest sizes. They must outlive the Delegate.
  std::span<kernels::Tensor* const> args;
  // The order in which the dimensions of each lie in memory in the official runtime; empty for
  // row-major. They must outlive the compilation.
  std::span<const std::span<const uint8_t>> orders;
  // Returns a copy of constants that lives as long as `memory` and is aligned for f32.
  std::function<std::span<const std::byte>(std::span<const std::byte>)> aligned_copy;
  // Execute every FullyConnected separately, even if several read the same rows.
  bool literal = false;
  // Do not quantise the rows of products to 8 bits where the graph does.
  bool widen = false;
  // With `widen`: quantise these rows and use the dequantised values.
  bool round_rows = false;
};

class Delegate {
 public:
  // kUnsupported names the first unsupported node or value. kBadInput is for a graph that
  // contradicts itself, the arguments or the sizes of its constants. kIo is for memory beyond
  // `budget`.
  static Result<std::unique_ptr<Delegate>> compile(const DelegateSource& source,
                                                   DelegateMemory& memory, MemoryBudget& budget);
  ~Delegate();

  // Returns the arguments that are read and those that are written, each once.
  std::span<kernels::Tensor* const> inputs() const;
  std::span<kernels::Tensor* const> outputs() const;

  // Inputs must have data. Outputs must be writable and overlap neither each other nor inputs.
  // Allocates nothing unless shapes need more scratch memory than ever before. Errors name the
  // node.
  Status run(ThreadPool& pool);

  // Returns whether the delegate is one FullyConnected from its input to its output, so that each
  // row of the output depends on the same row of the input only.
  bool is_linear() const;
  // Returns whether the delegate has one input, and each row of its outputs depends on the same row
  // of the input only.
  bool is_by_rows() const;
  // Computes the rows of `out` from those of `input`, equally many, for a delegate with
  // is_linear().
  Status run_rows(const kernels::Tensor& input, kernels::Tensor& out, ThreadPool& pool);

  struct Plan;

 private:
  explicit Delegate(std::unique_ptr<Plan> plan);
  std::unique_ptr<Plan> plan_;
};

}  // namespace ferry::runner
