// calibrate(): the encodings of quantised inputs and outputs of a static program, from what the
// model computes in f32 for some prompts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "plan/conversion.h"
#include "proof/token_file.h"

namespace ferry::proof {

// Whether a port is quantised and has no encoding yet.
bool needs_calibration(const plan::ConvertOptions& options);

// Fills ports.keys, ports.values and ports.logits_encoding of `options` where the port is u8 or
// u16; does nothing for float ports. Each encoding spans 0, the least and the greatest value of its
// tensor, times 1.1 for u8 and times 2 for u16. Without prompts: 4 prompts of 64 tokens at most,
// the same for every model of a vocabulary. One layer's weights are in memory at a time. kUsage for
// a prompt that does not fit into the context, or a token outside of the vocabulary.
Status calibrate(plan::ConvertOptions& options, const Prompts& prompts, ThreadPool& pool);

// Calibrates the caches of prefill_forward alone, after calibrate(): fills ports.prefill_keys and
// ports.prefill_values, or empties them where they are those of kv_forward. kUsage unless caches
// are u8 or u16.
Status calibrate_prefill(plan::ConvertOptions& options, const Prompts& prompts, ThreadPool& pool);

}  // namespace ferry::proof
