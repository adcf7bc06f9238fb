// Rewrites of the steps of a loaded method that leave out work without changing the bits of any
// result. Each of them applies where nothing can tell the difference: a value in between has one
// writer and no reader that is not rewritten too, is no input or output, and its memory is not used
// for anything else meanwhile. Call them once all steps are made. Not a public header.
#pragma once

#include <string_view>
#include <vector>

#include "formats/pte/program.h"
#include "runner/method_loading.h"

namespace ferry::runner {

// Selects from constants without copying: replaces select_copy along dimension 0 of a constant by a
// view, because such a selection is contiguous. Programs with experts select three matrices per
// expert, and copying them costs as much as using them.
void view_selected_constants(const pte::Method& method, MethodState& state);

// Attention over a cache that is an input, without copies of the cache. Programs state it as slice,
// dequantize or to_copy of the cache, cat with the new columns, view, bmm. Each of these writes all
// of the cache again; the product alone reads it once. Lets bmm read caches where the caller has
// them, in the dtype that they have; cat copies what follows the cache.
void join_caches(Loading& loading);
// Attention over f16, bf16 or i8 caches without f32 copies of them. Programs state it as slice,
// _to_copy or dequantize of a cache, custom_sdpa. Each of these writes all positions again; the
// attention alone reads them once. Lets custom_sdpa read caches as they are stored.
void read_stored_caches(Loading& loading);
// Restores the steps that the program states, if `value` is one that join_caches or
// read_stored_caches leaves out.
void compute_again(MethodState& state, int32_t value);

// Finds outputs that are the result of a linear layer, cast or quantised or neither. Their rows do
// not depend on each other, so a caller can ask for some of them: a prompt needs the logits of its
// last token, and programs state those of all tokens. For a small model with a large vocabulary
// that is a quarter of the work.
void find_row_outputs(Loading& loading);
// From now on rows [begin, begin + count) of an output are computed at least. A row is what the
// last dimension holds; others keep what was in their memory. Allocates nothing.
void want_rows(MethodState& state, size_t output, int64_t begin, int64_t count);
// From now on all rows of all outputs are computed.
void want_all_rows(MethodState& state);

// Who writes and who reads the values of a method.
class StepUses {
 public:
  explicit StepUses(const Loading& loading);

  const std::vector<size_t>& writers(const kernels::Value* value) const {
    return writers_[id(value)];
  }
  const std::vector<size_t>& readers(const kernels::Value* value) const {
    return readers_[id(value)];
  }
  // Whether the step calls that operator.
  bool is(size_t step, std::string_view name) const;
  // Never written, no input and no output.
  bool is_constant(const kernels::Value* value) const {
    return writers(value).empty() && !ports_[id(value)];
  }
  bool are_constant(const Step& step, size_t begin, size_t end) const;
  // Written by one step, no input and no output.
  bool is_inner(const kernels::Value* value) const {
    return writers(value).size() == 1 && !ports_[id(value)];
  }
  // Whether a view is written, whose memory may be that of any value.
  bool written_through_views(const Loading& loading) const;
  // Whether the steps [first, last] always follow each other, and no value is moved from `from` on.
  bool in_one_go(size_t first, size_t from, size_t last) const;
  // Whether a step of [begin, end) writes to that memory.
  bool writes(size_t begin, size_t end, const kernels::Tensor& memory) const;

 private:
  static size_t id(const kernels::Value* value) { return static_cast<size_t>(value->id); }

  const MethodState& state_;
  std::vector<std::vector<size_t>> writers_, readers_;  // per value: steps
  std::vector<bool> ports_;                             // per value
  std::vector<size_t> jumps_;
};

}  // namespace ferry::runner
