// program_metadata() gives the methods without inputs that tell runners about a program.
#pragma once

#include <vector>

#include "converters/build_options.h"
#include "converters/config/model_config.h"
#include "graph/lower.h"

namespace ferry::plan {

// A stateful program gets the methods that ExecuTorch's LLM runners read. A static program gets
// those of ExecuTorch's static llama (static_llama.py, get_metadata), with the lengths of
// kv_forward.
std::vector<graph::MetadataMethod> program_metadata(const converters::ModelConfig& config,
                                                    const converters::BuildOptions& build);

}  // namespace ferry::plan
