// Delegate: the XNNPACK graph of one DelegateCall, compiled to steps over our kernels.
// docs/delegates.md says which nodes and types are supported, and with which arithmetic.
//
// Shapes follow from those of the call's inputs at run time: they go through the nodes, and the
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

// The memory that the delegates of one program share, whatever method they are called from: packed
// matrices and scratch memory.
class DelegateMemory {
 public:
  explicit DelegateMemory(bool poison) : poison_(poison) {}

  // The matrix packed, once for the same bytes and coding. Its memory counts as planned memory.
  // Valid as long as this object and the bytes.
  Result<const kernels::PackedMatrix*> packed(const kernels::CodedMatrix& matrix,
                                              MemoryBudget& budget);

  // At least `bytes` bytes of scratch memory, aligned to 64. A larger request moves it; nothing in
  // it outlasts one execution of a delegate.
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
  // Bytes of Graph::constants, which outlive the Delegate; [0] is unused.
  std::span<const std::span<const std::byte>> constants;
  // Arguments of the call, with their largest sizes; they outlive the Delegate.
  std::span<kernels::Tensor* const> args;
  // A copy of constants that lasts as long as `memory` and is aligned for f32.
  std::function<std::span<const std::byte>(std::span<const std::byte>)> aligned_copy;
  // Execute every FullyConnected by itself, also where several read the same rows.
  bool literal = false;
  // Take the rows of products as they are, where the graph quantises them to 8 bits.
  bool widen = false;
  // With `widen`: take what these rows stand for once they are quantised.
  bool round_rows = false;
};

class Delegate {
 public:
  // kUnsupported names the first node or value that is not supported; kBadInput a graph that is
  // not consistent with itself, the arguments or the sizes of its constants; kIo memory beyond
  // `budget`.
  static Result<std::unique_ptr<Delegate>> compile(const DelegateSource& source,
                                                   DelegateMemory& memory, MemoryBudget& budget);
  ~Delegate();

  // Arguments that are read and written, each once.
  std::span<kernels::Tensor* const> inputs() const;
  std::span<kernels::Tensor* const> outputs() const;

  // Inputs have data and outputs are writable and lie apart from each other and from the inputs.
  // Allocates nothing unless shapes need more scratch memory than any before. Errors name the node.
  Status run(ThreadPool& pool);

  // Whether it is one FullyConnected from its input to its output, so that each row of the output
  // depends on the same row of the input alone.
  bool is_linear() const;
  // The rows of `input` into those of `out`, which are as many, for such a delegate.
  Status run_rows(const kernels::Tensor& input, kernels::Tensor& out, ThreadPool& pool);

  struct Plan;

 private:
  explicit Delegate(std::unique_ptr<Plan> plan);
  std::unique_ptr<Plan> plan_;
};

}  // namespace ferry::runner
