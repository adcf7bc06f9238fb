// Whether two bundles can be compared.
#pragma once

#include "core/result.h"
#include "packer/bundle_reader.h"

namespace ferry::proof {

// kBadInput, with what each is, unless model type, layers, hidden size and vocabulary are equal.
Status check_same_model(const packer::Bundle& bundle, const packer::Bundle& other);

}  // namespace ferry::proof
