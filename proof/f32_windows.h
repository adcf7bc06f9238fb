// What a checkpoint's model computes in f32 for token windows, layer by layer: one layer's weights
// are in memory at a time, and the hidden states of all windows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "plan/conversion.h"
#include "proof/perplexity_run.h"

namespace ferry::proof {

// Logits [rows, V] of a window from `position` on, in the order of for_each_part().
using WindowLogits =
    std::function<Status(size_t window, int64_t position, std::span<const float> rows)>;

// `conversion` is planned by plan_f32_layers() for calls of proof::rows_of_part() tokens. `name` is
// what messages call it.
Status run_f32_windows(const plan::Conversion& conversion, const WindowedTokens& tokens,
                       const std::string& name, ThreadPool& pool, const WindowLogits& visit);

}  // namespace ferry::proof
