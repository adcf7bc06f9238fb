// The pictures that a vision tower takes, in patches: what the options say, and what the image
// processor of a checkpoint decides and its config does not state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "core/image_grid.h"
#include "core/result.h"
#include "packer/bundle_plan.h"
#include "plan/conversion.h"

namespace ferry::plan {

bool is_one_program(const ConvertOptions& options);

// Returns the rows of features of an image or tile; 0 where an image has any number of them.
int64_t rows_of_image(const ConvertOptions& options, const converters::VisionConfig& vision);

// Returns the rows and columns of patches of the pictures that the programs take, where the options
// state their size. kUsage for other towers and layouts, and for sides that are not whole blocks.
Result<std::optional<ImageShape>> picture_shape(const ConvertOptions& options,
                                                const converters::ModelConfig& config);

// Returns the most patches of an image, in whole blocks; 0 where no tower takes images of any
// shape, or pictures have one size. kUsage for less than a block.
Result<int64_t> image_patches(const ConvertOptions& options, const converters::ModelConfig& config,
                              int64_t context_length);

// Sets the length of the lists of patches that a vision tower takes, or the size of the pictures of
// a tower of convolutions, and the tokens behind rows of a picture that it gives in one program,
// and checks that the processor leaves pictures of options.image_size as they are. `copied` are the
// files of the checkpoint. Without a processor the length is that of the defaults of its class.
// kBadInput for a processor whose patches or squares of patches are not those of the tower;
// kUnsupported for a tower without positions for a picture of that length, and for a tokenizer
// without the tokens that the processor puts behind rows of a picture; errors as for
// media::settings_from(). Other towers stay as they are.
Status settle_patches(const ConvertOptions& options, const std::vector<packer::CopiedFile>& copied,
                      converters::ModelConfig& config);

}  // namespace ferry::plan
