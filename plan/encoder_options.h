// What convert settles for encoders: whether the program is one, and its lengths.
#pragma once

#include <string>

#include "converters/build_options.h"
#include "converters/config/model_config.h"
#include "core/result.h"
#include "plan/conversion.h"

namespace ferry::plan {

// Sets config.is_encoder. kUnsupported for a style that the model cannot have; `config_name` begins
// messages about the config.
Status settle_style(const ConvertOptions& options, const std::string& config_name,
                    converters::ModelConfig& config);

// Tokens of the longest text where the user states no --context-length.
int64_t default_text_length(const converters::ModelConfig& config);

// The options of an encoder of build.context_length tokens. kUsage for options that mean nothing to
// it.
Result<converters::BuildOptions> settle_encoder(const ConvertOptions& options,
                                                const converters::ModelConfig& config,
                                                converters::BuildOptions build);

}  // namespace ferry::plan
