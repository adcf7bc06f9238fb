// Listings of native packages of ExecuTorch (.ptn).
#pragma once

#include "core/file.h"
#include "core/result.h"
#include "listing/listing.h"

namespace ferry::listing {

// Whether a program file is such a package, judged by its first bytes or its name.
Result<bool> is_native_package(const InputFile& file);

Result<Listing> list_native_package(const InputFile& file);

}  // namespace ferry::listing
