// calibrate() finds the encodings of quantised inputs and outputs of a static program, from the
// values that the model computes in f32 for some prompts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "plan/conversion.h"
#include "proof/prompts.h"

namespace ferry::proof {

// Plans the model in f32 for execution layer by layer: one part per layer, logits of all positions,
// and memory for the longest prompt. An encoder has no logits and takes texts up to its context.
Result<plan::Conversion> plan_calibration(const plan::ConvertOptions& options,
                                          const Prompts& prompts, bool is_encoder = false);

// Whether an input or output is quantised and has no encoding yet.
bool needs_calibration(const plan::ConvertOptions& options);

// Fills ports.keys, ports.values and ports.logits_encoding of `options` if they are u8 or u16. Does
// nothing for floats. Each encoding spans 0, the least and the greatest value of its tensor, times
// 1.1 for u8 and times 2 for u16. Without prompts, at most 4 prompts of 64 tokens are used, which
// depend only on the size of the vocabulary. The weights of one layer are in memory at a time.
// kUsage for a prompt that does not fit into the context, or a token outside of the vocabulary.
Status calibrate(plan::ConvertOptions& options, const Prompts& prompts, ThreadPool& pool);

// Calibrates only the caches of prefill_forward, after calibrate(): fills ports.prefill_keys and
// ports.prefill_values, or empties them if they equal those of kv_forward. kUsage unless caches are
// u8 or u16.
Status calibrate_prefill(plan::ConvertOptions& options, const Prompts& prompts, ThreadPool& pool);

}  // namespace ferry::proof
