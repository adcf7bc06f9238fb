// The options of a conversion as a manifest states them.
#pragma once

#include <string_view>
#include <vector>

#include "converters/build_options.h"
#include "packer/manifest.h"
#include "plan/conversion.h"

namespace ferry::plan {

// "stateful", as on the command line and in manifests.
std::string_view style_name(converters::ProgramStyle style);

// Every option that decides bytes of the bundle, under its name on the command line and with the
// value that it has there, in a fixed order: given or not, lengths as `build` settles them. An
// option without a meaning for the style of the program is left out, and so is one that may be
// absent and is. No paths: what files have decided is in the bundle itself (config.json,
// encodings, the reference).
std::vector<packer::ManifestOption> recorded_options(const ConvertOptions& options,
                                                     const converters::BuildOptions& build);

}  // namespace ferry::plan
