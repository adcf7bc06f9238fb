// ferry verify BUNDLE, where the bundle is a text encoder.
#pragma once

#include <string>

#include "cli/context.h"
#include "core/result.h"
#include "packer/bundle_reader.h"
#include "pipeline/verify.h"

namespace ferry::cli {

// Compares states and vectors with the reference that was given, or with that in the bundle. The
// exit code: 0, or 1 where a tensor is beyond its bounds, which stderr names. `path` is the bundle
// as given. kUsage where there is no reference.
Result<int> verify_encoder(Context& context, const packer::Bundle& bundle, const std::string& path,
                           const pipeline::VerifyOptions& options);

}  // namespace ferry::cli
