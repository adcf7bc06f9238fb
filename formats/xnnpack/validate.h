// Validation of a Graph in memory. Reader and writer use the same rules.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

inline constexpr size_t kMaxRank = 6;            // a limit of the backend
inline constexpr uint32_t kMaxExternals = 4096;  // a limit of the backend
inline constexpr uint32_t kGroupMultiple = 32;   // a limit of the backend

// Returns the bytes of a value at its upper bounds, without scales; nullopt on overflow, or if the
// size of its datatype is not known.
std::optional<uint64_t> value_bytes(const Value& value);

// Checks every promise of the reader:
//   - ids are unique and known; externals 0 to num_externals - 1 occur once each, inputs first;
//   - each value has one source: an input, a constant or one node; nodes come in order;
//   - datatypes fit their quantisation, and constants and scales have the bytes of their shapes;
//   - nodes have the shapes, datatypes and numbers that their kind asks for. Shapes are upper
//     bounds where the program is dynamic, and the rules hold for them.
// kBadInput for a malformed graph, kUnsupported for a well-formed one that Ferry does not support.
Status validate_graph(const Graph& graph, const std::string& name);

// Returns the bytes of a key, or nullopt. They must stay valid as long as they are used.
using NamedLookup = std::function<std::optional<std::span<const std::byte>>(std::string_view key)>;

// Returns the bytes of a constant of a validated graph that was read from `blob`. They are a part
// of the blob, or named data. kBadInput if there is no such key, or if it has another number of
// bytes.
Result<std::span<const std::byte>> constant_bytes(const Constant& constant,
                                                  std::span<const std::byte> blob,
                                                  const NamedLookup& lookup,
                                                  const std::string& name);

// Checks that all constants exist with the number of bytes that the graph states, and that every
// scale is positive and normal, which the backend demands too.
Status check_constants(const Graph& graph, std::span<const std::byte> blob,
                       const NamedLookup& lookup, const std::string& name);

}  // namespace ferry::xnnpack
