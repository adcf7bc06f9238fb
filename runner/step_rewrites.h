// Rewrites of the steps of a loaded method that leave out work without changing the bits of any
// result. A rewrite is applied only if nothing can observe the difference: an intermediate value
// has one writer and no reader that is not rewritten too, is no input or output, and its memory is
// not used for another value meanwhile. The functions must be called after all steps are made. This
// is not a public header.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "formats/pte/program.h"
#include "runner/method_loading.h"

namespace ferry::runner {

// Selects from constants without copying: a view replaces select_copy along dimension 0 of a
// constant, because such a selection is contiguous. Programs with experts select three matrices per
// expert, and copying them costs as much as using them.
void view_selected_constants(const pte::Method& method, MethodState& state);

// Removes copies of a cache that is an input of attention. Programs state attention as slice,
// dequantize or to_copy of the cache, cat with the new columns, view, bmm. Each of these writes the
// whole cache again, but the product reads it only once. After the rewrite bmm reads caches in the
// caller's memory and in their dtype. Where the new columns keep their memory, bmm reads them there
// too, and cat is left out; elsewhere it copies them alone.
void join_caches(Loading& loading);
// Leaves out the columns that the mask hides from the attention of joined caches, stated as bmm,
// add of the mask, softmax, bmm. The mask lowers their scores so far that the softmax is exactly 0.
// Attention then costs as much as the positions of the sequence, not as much as the context. This
// must follow join_caches.
void leave_out_hidden_columns(Loading& loading);
// Removes f32 copies of f16, bf16 or i8 caches before attention. Programs state attention as slice,
// _to_copy or dequantize of a cache, custom_sdpa. Each of these writes all positions again, but
// attention reads them only once. After the rewrite custom_sdpa reads caches in their stored dtype.
void read_stored_caches(Loading& loading);
// Holds the caches that update_cache writes as codes (MethodOptions::kv_bits). This is no rewrite
// that keeps the bits, and must precede the others. kUnsupported names a cache that has another
// shape, or that another operator uses.
Status code_caches(Loading& loading);
// Returns kUnsupported if a step uses the memory of the buffer of such a cache.
Status check_coded_memory(const MethodState& state);
// Returns the bytes of the buffers that update_cache writes, by the id of their memory.
std::vector<uint64_t> cache_bytes(std::span<const pte::Method* const> methods);
// Computes RMS norms as one step each. Programs state a norm as _to_copy to f32, mul, mean, add of
// eps, rsqrt, mul, _to_copy back, mul with the weight, where the casts and the weight may be
// absent. A decoder has two to four norms in each layer, and each step writes and reads memory.
void join_norms(Loading& loading);
inline constexpr std::string_view kRmsNormName = "ferry::rms_norm_steps.out";
// Computes the gate of an MLP as one step. Programs state it as _to_copy of both halves to f32,
// sigmoid and mul or gelu, mul, _to_copy back, where the casts may be absent.
void join_gates(Loading& loading);
inline constexpr std::string_view kGatedProductName = "ferry::gated_product.out";

// Restores the stated steps if `value` is one that these functions leave out.
void compute_again(MethodState& state, int32_t value);

// Finds outputs that are the result of a linear layer, optionally cast or quantised. Their rows do
// not depend on each other, so a caller can ask for some of them: a prompt needs the logits of its
// last token, but programs state those of all tokens. For a small model with a large vocabulary
// these logits are a quarter of the work.
void find_row_outputs(Loading& loading);
// Says that at least rows [begin, begin + count) of an output must be computed from now on. A row
// is the last dimension. Other rows keep the contents of their memory. Allocates nothing.
void want_rows(MethodState& state, size_t output, int64_t begin, int64_t count);
// Says that all rows of all outputs must be computed from now on.
void want_all_rows(MethodState& state);

// The steps that write and read each value of a method.
class StepUses {
 public:
  explicit StepUses(const Loading& loading);

  const std::vector<size_t>& writers(const kernels::Value* value) const {
    return writers_[id(value)];
  }
  const std::vector<size_t>& readers(const kernels::Value* value) const {
    return readers_[id(value)];
  }
  // Returns whether the step calls that operator.
  bool is(size_t step, std::string_view name) const;
  // Returns whether a value is never written and no input or output.
  bool is_constant(const kernels::Value* value) const {
    return writers(value).empty() && !ports_[id(value)];
  }
  bool are_constant(const Step& step, size_t begin, size_t end) const;
  // Returns whether one step writes a value that is no input or output.
  bool is_inner(const kernels::Value* value) const {
    return writers(value).size() == 1 && !ports_[id(value)];
  }
  // Returns whether a view is written, whose memory may be that of any value.
  bool written_through_views(const Loading& loading) const;
  // Returns whether the steps [first, last] always follow each other, and no value is moved from
  // `from` on.
  bool in_one_go(size_t first, size_t from, size_t last) const;
  // Returns whether a step of [begin, end), but for those of `except`, writes to that memory.
  bool writes(size_t begin, size_t end, const kernels::Tensor& memory,
              std::span<const size_t> except = {}) const;

 private:
  static size_t id(const kernels::Value* value) { return static_cast<size_t>(value->id); }

  const MethodState& state_;
  std::vector<std::vector<size_t>> writers_, readers_;  // per value: steps
  std::vector<bool> ports_;  // per value: whether it is an input or output
  std::vector<size_t> jumps_;
};

}  // namespace ferry::runner
