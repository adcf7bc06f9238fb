// Reads blobs of the XNNPACK backend with full validation (validate.h), so that whoever executes a
// Graph needs no further structural checks. Everything that the official runtime refuses is refused
// here, and much that it does not check. docs/xnnpack_blob.md has the layout.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/result.h"
#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

// `name` begins the messages. kBadInput for a malformed blob, kUnsupported for a well-formed one
// that Ferry does not support, such as one with kinds of nodes without a Form. The bytes of named
// data are not needed; check_constants() checks them.
Result<Graph> read_blob(std::span<const std::byte> blob, const std::string& name);

}  // namespace ferry::xnnpack
