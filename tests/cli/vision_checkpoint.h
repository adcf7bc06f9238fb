// Checkpoints of vision-language models, with the files that prompts with images need.
#pragma once

#include <string>

#include "tests/cli/ferry_process.h"

namespace ferry {

// Copies vision/NAME to `dir`, with the processor and tokenizer files that fit it. `copy` names the
// new directory.
std::string vision_checkpoint(const TempDir& dir, const std::string& name,
                              const std::string& copy = "checkpoint");
// Returns the path of the reference outputs for vision/NAME.
std::string vision_golden(const std::string& name);

}  // namespace ferry
