// Signatures as files. Private to signing/.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry::signing {

// kUsage where something else than a signature is at `path`, which must not be lost. Removes what a
// run that was killed has left beside it.
Status prepare_signature_file(const std::string& path);

// Puts `text` there at once: the file is absent, or the old one, or the new one as a whole. One
// line end is added.
Status write_signature_file(const std::string& path, std::string_view text);

}  // namespace ferry::signing
