// Rules for the keys of vision towers that several vision-language families have, to names under
// `vision.`.
#pragma once

#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Rule for the tensor SOURCE, which is stored in one shape and used in another of the same order.
// `rows` are those of the stored one.
KeyRule reshape_rule(const std::string& name, const std::string& source, const std::string& target,
                     const Shape& stored, const Shape& used, int64_t rows);

// Rules for SOURCE.weight (out, in) with further sizes of 1, such as a convolution over one place,
// which becomes a matrix, and, if `bias`, SOURCE.bias. "{i}" counts `layers`.
std::vector<KeyRule> matrix_rules(const std::string& source, const std::string& target,
                                  const Shape& stored, int64_t layers, bool bias);

// Rules for SOURCE.weight (hidden_size, channels, patch_size, patch_size) of a convolution whose
// windows do not overlap, which becomes the matrix of a linear (hidden_size, channels *
// patch_size^2), and for SOURCE.bias. Of a tower over images of any shape the third size is
// temporal_patch_size, and there may be no bias.
std::vector<KeyRule> patch_rules(const std::string& source, const VisionConfig& vision);

// Rules for a tower of SigLIP or CLIP below `tower`, or of SigLIP 2 where tiles are lists of
// patches, whose embedding is a linear. Layers behind those that features need are dropped, and so
// is what makes one vector of an image.
std::vector<KeyRule> siglip_rules(const std::string& tower, const VisionConfig& vision);

// The embeddings of the two tokens of VisionConfig::row_marks, [2,hidden_size]: copies of rows of
// the token embedding.
inline constexpr const char* kRowMarksWeight = "vision.row_marks.weight";
// Makes the rule of the token embedding make them too.
void add_row_marks(std::vector<KeyRule>& rules);

// Rules for a tower of Pixtral below `tower`. Layers behind those that features need are dropped.
std::vector<KeyRule> pixtral_rules(const std::string& tower, const VisionConfig& vision);

}  // namespace ferry::converters
