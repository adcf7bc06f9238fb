// Validation of a Graph in memory, the same for what was read and for what is to be written.
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

inline constexpr size_t kMaxRank = 6;            // the backend's own limits
inline constexpr uint32_t kMaxExternals = 4096;  //
inline constexpr uint32_t kGroupMultiple = 32;   //

// Bytes of a value of its upper bounds, without scales; nullopt on overflow, or where its datatype
// has none that we know.
std::optional<uint64_t> value_bytes(const Value& value);

// Every promise of the reader:
//   - ids are unique and known; externals 0 to num_externals - 1 occur once each, inputs first;
//   - each value has one source: an input, a constant or one node; nodes come in order;
//   - datatypes fit their quantisation, and constants and scales have the bytes of their shapes;
//   - nodes have the shapes, datatypes and numbers that their kind asks for. Shapes are upper
//     bounds where the program is dynamic, and the rules hold for them.
// kBadInput for what is malformed, kUnsupported for what is well formed but not for us.
Status validate_graph(const Graph& graph, const std::string& name);

// The bytes of a key, or nullopt. They must stay valid as long as they are used.
using NamedLookup = std::function<std::optional<std::span<const std::byte>>(std::string_view key)>;

// The bytes of a constant of a validated graph that was read from `blob`: a part of it, or named
// data. kBadInput where there is no such key, or where it has another number of bytes.
Result<std::span<const std::byte>> constant_bytes(const Constant& constant,
                                                  std::span<const std::byte> blob,
                                                  const NamedLookup& lookup,
                                                  const std::string& name);

// All constants are there, with the bytes that the graph states, and every scale is positive and
// normal, which the backend wants too.
Status check_constants(const Graph& graph, std::span<const std::byte> blob,
                       const NamedLookup& lookup, const std::string& name);

}  // namespace ferry::xnnpack
