// sha256_tree: what identifies the files of a checkpoint (docs/bundle_format.md, "Source files").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/sha256.h"
#include "core/tensor_source.h"

namespace ferry::packer {

// Of each file of `source`, as hexadecimal digits. `entries` has the digest of each tensor that the
// conversion reads, and none of the others.
std::vector<std::string> source_tree_digests(const TensorSource& source,
                                             const std::vector<std::optional<Digest>>& entries);

}  // namespace ferry::packer
