// Normalizes a whole text to a Unicode normal form.
#pragma once

#include <string>

#include "core/result.h"

namespace ferry::text {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` is valid UTF-8. Only parts that can change are normalized, so a text that is already
// normalized costs one pass.
Status normalize(std::string& text, NormalForm form);

}  // namespace ferry::text
