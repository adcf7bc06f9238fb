// settle_endless: the lengths of a program whose sequences have no end (core/attention_sink.h), and
// the models that may have one.
#pragma once

#include "converters/build_options.h"
#include "core/result.h"
#include "plan/conversion.h"

namespace ferry::plan {

// Returns the build options of a program with options.attention_sink. kUnsupported for a model or a
// program kind in which the first and the last tokens of a sequence do not make it up; kUsage for
// lengths that do not fit.
Result<converters::BuildOptions> settle_endless(const ConvertOptions& options,
                                                const converters::ModelConfig& config);

}  // namespace ferry::plan
