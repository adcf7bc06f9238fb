// The documents of --json: one envelope around what each verb has to say (docs/command_line.md,
// docs/schemas).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry::cli {

inline constexpr int kSchema = 1;

// The document in parts, in their order, the last of which ends with a newline. `verb` is empty
// where the line names none, `error` nullptr where there is none, `result` the text of an object or
// empty.
void write_envelope(std::string_view verb, int exit, const Error* error, std::string_view result,
                    const std::function<void(std::string_view)>& write);

// The whole document of an error.
std::string error_document(std::string_view verb, const Error& error);

}  // namespace ferry::cli
