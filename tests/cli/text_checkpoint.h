// A checkpoint that takes and gives text.
#pragma once

#include <string>

#include "tests/formats/temp_dir.h"

namespace ferry {

// Makes a text model with a tokenizer of bytes and a chat template, in `dir`.
std::string text_checkpoint(const TempDir& dir, const std::string& model = "llama3_tied");

}  // namespace ferry
