// Settles how long the calls of programs are, and what they have room for: tokens, images and
// sounds.
#pragma once

#include <cstdint>

#include "converters/build_options.h"
#include "converters/config/model_config.h"
#include "core/result.h"
#include "plan/conversion.h"

namespace ferry::plan {

// Returns the build options of the programs. kUsage, with the field, for lengths that the model or
// the style does not have; kUnsupported for models that the style cannot run.
Result<converters::BuildOptions> settle_lengths(const ConvertOptions& options,
                                                const converters::ModelConfig& config);
// Returns whether a call has room for an image, where all of its rows are in one.
bool has_room_for_image(const ConvertOptions& options, const converters::ModelConfig& config);
// Returns the most rows of the text decoder that an input of the audio encoder becomes.
int64_t rows_of_sound(const ConvertOptions& options, const converters::ModelConfig& config);

}  // namespace ferry::plan
