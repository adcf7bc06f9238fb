// Writes the model card of a bundle, the README.md of a repository at Hugging Face.
#pragma once

#include <string>

#include "card/facts.h"

namespace ferry::card {

// Front matter that huggingface_hub accepts, and Markdown. Texts of the checkpoint's card, names of
// files and lines of a proof are untrusted and appear as they are. Equal facts give equal bytes.
std::string readme(const Facts& facts);

}  // namespace ferry::card
