// The inputs and outputs of the encoders of a bundle that make rows of images or sounds, and which
// of them a prompt of a reference needs.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/image_grid.h"
#include "core/program_interface.h"
#include "packer/manifest.h"
#include "proof/reference.h"

namespace ferry::proof {

// Returns the names of tensors that prompts with images or sounds have beside the outputs of their
// encoders.
std::set<std::string> row_inputs();

// Returns [1,3,S,S] or [1,P,V], the shape that the vision encoder of the bundle takes, or that of a
// window of sound; empty if the bundle has no such encoder.
Shape tile_shape(const packer::Manifest& manifest, const RowEncoder& encoder = kPictureRows);
// Returns the number of feature rows per tile; 0 for a bundle without such an encoder.
int64_t rows_of_tile(const packer::Manifest& manifest, const RowEncoder& encoder = kPictureRows);
// Returns what makes rows of the images and the sounds of a prompt, as far as the bundle takes such
// rows.
std::vector<const RowEncoder*> encoders_of(const ReferencePrompt& prompt,
                                           const packer::Manifest& manifest);
// Whether a prompt has images, or sounds that become such rows.
bool has_rows(const ReferencePrompt& prompt, const packer::Manifest& manifest);
// Returns the most blocks of patches of an image of any shape; 0 for other encoders.
int64_t most_blocks(const packer::Manifest& manifest);
// Returns the patches of the pictures that the vision encoder takes, if it takes one shape alone of
// those that its processor makes.
std::optional<ImageShape> picture_of(const packer::Manifest& manifest);

}  // namespace ferry::proof
