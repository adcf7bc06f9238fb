// Reads blobs of the XNNPACK backend with full validation (validate.h), so that whoever executes a
// Graph needs no further structural checks. What the official runtime refuses is refused, and much
// that it does not check. docs/xnnpack_blob.md has the layout.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/result.h"
#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

// `name` begins the messages. kBadInput for what is malformed, kUnsupported for what is well formed
// but not for us, such as kinds of nodes without a Form. Bytes of named data are not needed;
// check_constants() checks them.
Result<Graph> read_blob(std::span<const std::byte> blob, const std::string& name);

}  // namespace ferry::xnnpack
