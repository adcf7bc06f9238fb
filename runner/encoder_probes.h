// observe_encoder() delivers the probes of an encoder whose output a text decoder attends to.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/result.h"
#include "runner/program_set.h"

namespace ferry::runner {

using EncoderProbeSink =
    std::function<void(const std::string& name, int64_t rows, std::span<const float> values)>;

// Calls `*sink`, unless it is empty, for every probe that the chain computes from now on: name, and
// f32 values [rows, width]. `sink` must outlive the chain.
Status observe_encoder(const MethodChain& chain, const EncoderProbeSink* sink);

}  // namespace ferry::runner
