// open_encoder() opens the bundle of an encoder, or makes one of a GGUF file in memory.
#pragma once

#include <string>

#include "cli/context.h"
#include "core/result.h"
#include "packer/bundle_reader.h"

namespace ferry::cli {

// `config` is the path of a config.json for a GGUF file, or empty. kUsage for one beside a bundle;
// other errors are those of opening a bundle and of converting a file.
Result<packer::Bundle> open_encoder(Context& context, const std::string& path,
                                    const std::string& config);

}  // namespace ferry::cli
