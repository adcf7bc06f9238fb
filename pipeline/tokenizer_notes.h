// What a bundle's tokenizer will not do, said when the bundle is made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "packer/bundle_writer.h"

namespace ferry::pipeline {

// Lines for the user; none where `copied` has no tokenizer, or one that loads and whose ids a
// model of `vocab_size` takes. Not an error: a bundle serves without text too.
std::vector<std::string> tokenizer_notes(const std::vector<packer::CopiedFile>& copied,
                                         int64_t vocab_size);

}  // namespace ferry::pipeline
