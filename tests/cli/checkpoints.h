// Checkpoints of text, of vision-language models and of encoders, for tests that start the program.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/ferry_process.h"

namespace ferry {

// Makes a text model with a tokenizer of bytes and a chat template, in `dir`.
std::string text_checkpoint(const TempDir& dir, const std::string& model = "llama3_tied");

// Copies vision/NAME to `dir`, with the processor and tokenizer files that fit it. `copy` names the
// new directory.
std::string vision_checkpoint(const TempDir& dir, const std::string& name,
                              const std::string& copy = "checkpoint");
// Returns the path of the reference outputs for vision/NAME.
std::string vision_golden(const std::string& name);

// Returns the path of a checkpoint in testdata/encoder.
std::string encoder(const std::string& name);
// Converts an encoder to a bundle of encoders.
Outcome convert_encoder(const std::string& source, const std::string& to,
                        std::vector<std::string> more);
// Copies embedding_gemma and adds a tokenizer.
std::string with_tokenizer(const TempDir& dir);

}  // namespace ferry
