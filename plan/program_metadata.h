// program_metadata: methods without inputs that tell runners about a program.
#pragma once

#include <vector>

#include "converters/build_options.h"
#include "converters/config/model_config.h"
#include "graph/lower.h"

namespace ferry::plan {

// For a stateful program what ExecuTorch's LLM runners read. For a static one what its static
// llama states (static_llama.py, get_metadata); lengths are those of kv_forward.
std::vector<graph::MetadataMethod> program_metadata(const converters::ModelConfig& config,
                                                    const converters::BuildOptions& build);

}  // namespace ferry::plan
